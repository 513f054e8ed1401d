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

from headrace.cli.main import main

PIPELINE = """\
[source]
topic = "orders"
schema = "id STRING"
[sink]
topic = "out"
"""
COMMANDS = [
    ["run", "p.toml", "--once"],
    ["lag", "p.toml"],
    ["reset", "p.toml", "--to", "earliest"],
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

    monkeypatch.setattr("headrace.cli.pipeline.run.check_ready", lambda: None)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=refuse)
    monkeypatch.setattr("headrace.wire.routing.time", clock)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["headrace", "pipeline", *arguments])
    try:
        return main()
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
    run(monkeypatch, "run", "p.toml", "--once", "--bootstrap", address)
    capsys.readouterr()
    assert run(monkeypatch, "status", "--json") == 0
    (status,) = json.loads(capsys.readouterr().out)
    assert (status["name"], status["state"]) == ("p", "failed")
    assert status["last_error"].startswith(f"no broker answers at {address}")
