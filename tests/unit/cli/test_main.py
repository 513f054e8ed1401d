import subprocess
import sys

import pytest


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
        *("serve", "produce", "consume", "bench", "doctor", "topic create", "topic alter"),
        *(f"cluster {name}" for name in ("dev", "status", "drain", "rebalance", "reassign", "throttle")),
    ],
)
def test_help_teaches_by_example(command):
    assert f"headrace {command} " in run(*command.split(), "--help").stdout.partition("Example")[2]


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


def test_serve_does_not_load_what_only_client_commands_need():
    code = "import sys, headrace.cli.main; print([m for m in ('confluent_kafka', 'rich', 'kio') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[]"
