import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.load import load_settings


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("serve",),
        ("topic",),
        ("topic", "create"),
        ("produce",),
        ("consume",),
        ("bench",),
        ("doctor",),
        ("cluster",),
    ],
)
def test_every_command_has_help(command):
    result = run(*command, "--help")
    assert result.returncode == 0, result.stderr
    assert "Usage: headrace" in result.stdout


@pytest.mark.parametrize(
    "command",
    [
        *("serve", "produce", "consume", "bench", "doctor", "health", "topic create", "topic alter"),
        *("cert dev", "cert show"),
        *(f"cluster {name}" for name in ("dev", "status", "drain", "rebalance", "reassign", "throttle")),
    ],
)
def test_help_teaches_by_example(command):
    assert f"headrace {command} " in run(*command.split(), "--help").stdout.partition("Example")[2]


@cache
def commands() -> "list[tuple[str, Any]]":
    """Every command that can be typed, by its words."""

    def walk(command: Any, words: tuple[str, ...]) -> "Iterator[tuple[str, Any]]":
        if words and command.callback is not None and words[-1:] != ("help",):
            yield " ".join(words), command
        for name, each in getattr(command, "commands", {}).items():
            yield from walk(each, (*words, name))

    root = get_command(app)
    return [(words, each) for words, each in walk(root, ()) if not hasattr(each, "commands") or words == "cluster dev"]


def options_of(command: Any) -> set[str]:
    return {text for each in command.params for text in each.opts}


@pytest.mark.parametrize(("words", "command"), commands(), ids=[words for words, _ in commands()])
def test_json_and_format_json_are_offered_together(words, command):
    assert ("--json" in options_of(command)) == ("--format" in options_of(command))


@pytest.mark.parametrize(("words", "command"), commands(), ids=[words for words, _ in commands()])
def test_every_command_has_an_example_and_every_option_a_meaning(words, command):
    text = command.help or ""
    assert f"headrace {words}" in text.partition("Example")[2], text
    assert [each.name for each in command.params if not getattr(each, "hidden", False) and not each.help] == []


@pytest.mark.parametrize(
    ("words", "command"),
    [each for each in commands() if not each[0].startswith("pipeline")],
    ids=str,
)
def test_the_environment_names_the_broker_for_every_command(words, command):
    for each in command.params:
        # Only a link is created and changed with the addresses of another cluster.
        if ("--here" if words in ("link create", "link alter") else "--bootstrap") in each.opts:
            assert each.envvar == "HEADRACE_BOOTSTRAP"


CONNECTING = {
    "topic": [
        "list",
        "create t",
        "describe t",
        "alter t --set a=b",
        "delete t --yes",
        "truncate t --yes",
        "shred t --yes",
    ],
    "": ["produce t", "consume t", "bench", "health", "probe --once", "top"],
    "group": ["list", "describe g", "alter g --set a=b", "reset-offsets g --to-latest", "delete g --yes"],
    "queue": [
        "list",
        "create q",
        "describe q",
        "send q x",
        "receive q",
        "peek q",
        "purge q --yes",
        "redrive q",
        "delete q --yes",
        "alter q --delay 1s",
    ],
    "user": ["create u --generate", "list", "passwd u --generate", "delete u --yes"],
    "user key": ["create u", "list u", "delete u HRX --yes"],
    "audit": ["tail", "search"],
    "clients": ["list", "show c", "subscribe s", "unsubscribe s", "subscriptions"],
    "acl": ["add u --read t", "list", "remove u --yes", "explain u read t"],
    "quota": ["set --user u --produce 1", "list", "remove --user u", "top --once"],
    "link": [
        "create l --bootstrap h:1",
        "alter l --no-groups",
        "list",
        "describe l",
        "pause l",
        "resume l",
        "delete l",
        "promote t",
        "failover t",
        "reverse l t --yes",
    ],
    "schedule": ["list", "run s", "remove s --yes"],
    "schema": [
        "register s x.avsc",
        "check s x.avsc",
        "list",
        "show s",
        "diff s 1",
        "delete s --yes",
        "config",
        "mode",
        "export",
        "import -",
    ],
    "txn": ["list", "describe x", "abort x --yes"],
    "cluster": [
        "status",
        "drain 1",
        "undrain 1",
        "rebalance",
        "rebalance --move",
        "reassign t --replication-factor 1",
        "throttle off",
        "upgrade",
        "settings",
        "alter --set a=b",
        "log-level info",
    ],
}
"""What is typed, by the group of commands that it belongs to."""


def test_every_command_that_connects_is_tried_below():
    tried = {f"{group} {each.split()[0]}".strip() for group, typed in CONNECTING.items() for each in typed}
    connecting = {words for words, command in commands() if "--bootstrap" in options_of(command)}
    # The doctor says more than that; pipelines have tests of their own.
    assert {each for each in connecting if not each.startswith(("pipeline", "doctor"))} == tried


@pytest.mark.parametrize("typed", [f"{group} {each}" for group, typed in CONNECTING.items() for each in typed])
def test_a_wrong_address_is_one_sentence(typed):
    result = CliRunner().invoke(app, typed.split(), env={"HEADRACE_BOOTSTRAP": "localhost:1"}, input="")
    assert result.output == ""
    assert str(result.exception).startswith("no broker answers at localhost:1; ")


def test_the_version_is_printed():
    assert run("--version").stdout.startswith("headrace ")


def test_a_broker_that_is_not_there_is_one_sentence_and_exit_code_1():
    result = run("topic", "list", "--bootstrap", "127.0.0.1:1")
    assert result.returncode == 1
    assert result.stderr == (
        "headrace: no broker answers at 127.0.0.1:1; `headrace doctor --bootstrap 127.0.0.1:1` finds out why\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("serve", "--set", "nonsense"), "--set nonsense is not NAME=VALUE"),
        (("serve", "--set", "num.partition=1"), "did you mean num.partitions?"),
        (("serve", "--kafka-listen", "9092"), "write HOST:PORT"),
        (("serve", "--config", "/nonexistent/headrace.toml"), "cannot be read"),
        (("consume", "t", "--from-time", "soon"), "is not a time"),
        (("consume", "t", "--offset", "1", "--from-beginning"), "give one of"),
        (("topic", "alter", "t"), "nothing to change"),
        (("cluster", "reassign", "t"), "give one of --replicas"),
        (("cluster", "rebalance", "--yes"), "belong to --move"),
        (("cluster", "throttle", "fast"), "not a number of bytes"),
    ],
)
def test_a_wrong_argument_is_one_sentence_and_exit_code_2(arguments, sentence):
    result = run(*arguments)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "code", ["import headrace.wire", "from headrace import Client; Client", "import headrace.pipelines.sink.writer"]
)
def test_a_program_that_imports_headrace_finds_nothing_new_in_its_folder(code, tmp_path):
    """hypothesis is installed here: it would leave a folder of its own, were it loaded only to please kio."""
    if "pipelines" in code:
        pytest.importorskip("pyspark")
    command = [sys.executable, "-c", f"{code}; import sys; print('hypothesis' in sys.modules); import hypothesis"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    assert result.stdout == "False\n"
    assert list(tmp_path.iterdir()) == []


def test_what_the_client_commands_read_from_the_environment_does_not_keep_a_broker_from_starting():
    names = ("HEADRACE_BOOTSTRAP", "HEADRACE_HTTP", "HEADRACE_ACCESS_KEY", "HEADRACE_PIPELINES", "HEADRACE_CONFIG")
    load_settings(environment=dict.fromkeys(names, "x"))


def test_a_command_loads_no_other_command():
    code = (
        "import atexit, sys; sys.argv = ['headrace', 'txn', '--help']; from headrace.cli.main import main\n"
        "loaded = lambda: [m for m in sys.modules if m.startswith('headrace.cli.') and m.endswith('.commands')]\n"
        "atexit.register(lambda: print(loaded())); main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "abort" in result.stdout
    assert result.stdout.splitlines()[-1] == "['headrace.cli.txn.commands']"


def test_serve_does_not_load_what_only_client_commands_need():
    code = "import sys, headrace.cli.main; print([m for m in ('confluent_kafka', 'rich', 'kio') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[]"
