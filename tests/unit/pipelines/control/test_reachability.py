"""Pipeline commands with an address where there is no broker, as a user types them. They need no Spark."""

import json
import logging
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.cli import main
from headrace.pipelines.control.folder import DEFAULT_STATE_DIR, StateFolder
from headrace.pipelines.control.reachability import WITHIN_S, check_reached
from headrace.pipelines.errors import NotReady
from headrace.testing import Broker

PIPELINE = """\
[source]
topic = "orders"
schema = "id STRING"
[sink]
topic = "out"
"""
COMMANDS = [
    ["run", "p.toml", "--once"],
    ["preview", "p.toml"],
    ["lag", "p.toml"],
    ["reset", "p.toml", "--to", "earliest"],
    ["reset", "p.toml", "--to", "earliest", "--execute"],
    ["dlq", "list", "p.toml"],
    ["dlq", "list", "orders.dlq"],
    ["dlq", "replay", "p.toml"],
    ["archive", "orders", "--to", "lake", "--once"],
]


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A run gives the log of the process to the pipeline."""
    logger = logging.getLogger("headrace")
    before = (logger.handlers, logger.level, logger.propagate)
    yield
    for handler in logger.handlers:
        if handler not in before[0]:
            handler.close()
    logger.handlers, level, logger.propagate = before
    logger.setLevel(level)


@pytest.fixture(autouse=True)
def no_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with a pipeline; a client that waits and tries again fails the test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.toml").write_text(PIPELINE)

    def refuse(seconds: float) -> None:
        raise AssertionError("it tries again")

    for each in ("run", "preview"):
        monkeypatch.setattr(f"headrace.cli.pipeline.{each}.check_ready", lambda: None)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=refuse)
    monkeypatch.setattr("headrace.wire.router.time", clock)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["headrace", "pipeline", *arguments])
    try:
        return main.run()
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_wrong_address_is_told_at_once_in_a_sentence(
    command: list[str], how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("pyarrow")
    address = closed_port()
    if how == "environment":
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", address)
    else:
        command = [*command, "--bootstrap", address]
    assert run(monkeypatch, *command) == 1
    told = capsys.readouterr().err
    reason = f"no broker answers at {address}: connection refused"
    assert told == f"headrace: {reason} (`headrace doctor --bootstrap {address}` finds out why)\n"
    assert_nothing_is_left()


def assert_nothing_is_left() -> None:
    assert [each.name for each in Path().iterdir()] == ["p.toml"]


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_address_that_never_answers_is_told_in_a_sentence(
    command: list[str], silent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("headrace.pipelines.control.reachability.WITHIN_S", 0.1)
    assert run(monkeypatch, *command, "--bootstrap", silent) == 1
    assert capsys.readouterr().err == (
        f"headrace: no broker answers at {silent}: no answer within 0.1 s "
        f"(`headrace doctor --bootstrap {silent}` finds out why)\n"
    )
    assert_nothing_is_left()


def test_several_addresses_that_never_answer_are_told_within_three_seconds(silent: str):
    nobody = closed_port()
    started = time.monotonic()
    with pytest.raises(NotReady) as caught:
        check_reached([f"{silent},{nobody}", silent])
    # Half a second for a busy machine.
    assert time.monotonic() - started < 3.5
    assert str(caught.value).startswith(
        f"no broker answers at {silent}: no answer within 2.5 s; no broker answers at {nobody}: connection refused ("
    )


def test_one_address_that_answers_is_enough(silent: str, headrace_session_broker: Broker):
    started = time.monotonic()
    check_reached([f"{silent},{closed_port()},{headrace_session_broker.bootstrap}"])
    assert time.monotonic() - started < WITHIN_S


def test_what_cannot_be_done_leaves_no_folder_behind(
    headrace_session_broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    address = headrace_session_broker.bootstrap
    Path("p.toml").write_text(PIPELINE.replace('"orders"', '"addresses-none"'))
    assert run(monkeypatch, "run", "p.toml", "--once", "--bootstrap", address) == 1
    assert "there is no topic addresses-none" in capsys.readouterr().err
    assert run(monkeypatch, "reset", "p.toml", "--to", "other:0=7", "--execute", "--bootstrap", address) == 1
    assert "p does not read other/0" in capsys.readouterr().err
    assert run(monkeypatch, "reset", "p.toml", "--to", "earliest", "--bootstrap", address) == 0
    assert_nothing_is_left()


def test_the_broker_that_a_file_names_goes_before_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    address = closed_port()
    Path("p.toml").write_text(f'bootstrap = "{address}"\n{PIPELINE}')
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "127.0.0.1:1")
    assert run(monkeypatch, "lag", "p.toml") == 1
    assert f"no broker answers at {address}" in capsys.readouterr().err


def test_status_knows_of_a_run_that_failed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    address = closed_port()
    StateFolder.of(DEFAULT_STATE_DIR, "p").make()
    run(monkeypatch, "run", "p.toml", "--once", "--bootstrap", address)
    capsys.readouterr()
    assert run(monkeypatch, "status", "--json") == 0
    (status,) = json.loads(capsys.readouterr().out)
    assert (status["name"], status["state"]) == ("p", "failed")
    assert status["last_error"].startswith(f"no broker answers at {address}")
