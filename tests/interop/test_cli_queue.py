"""`headrace queue` against a real broker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from headrace import Client
from headrace.cli.main import app
from headrace.model.errors import HeadraceError
from headrace.testing.process import BrokerProcess

from .subject import SELDOM

HEADRACE = [sys.executable, "-m", "headrace", "queue"]
_ENOUGH_S = 60.0


class Result(NamedTuple):
    stdout: bytes
    stderr: bytes


Run = Callable[..., Result]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=SELDOM) as running:
        yield running


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    """Runs a command in this process, which takes a tenth of the time."""

    def command(*arguments: str, stdin: bytes = b"", fails: bool = False) -> Result:
        result = CliRunner().invoke(
            app, ["queue", *arguments], input=stdin, env={"HEADRACE_BOOTSTRAP": broker.bootstrap}, prog_name="headrace"
        )
        assert isinstance(result.exception, HeadraceError | None), result.exception
        assert (result.exit_code != 0) is fails, result
        said = result.stderr_bytes if result.exception is None else str(result.exception).encode()
        return Result(result.stdout_bytes, said)

    return command


def test_a_queue_from_its_making_to_its_end(run: Run) -> None:
    made = run("create", "emails", "--max-receives", "1", "--dead-letter", "emails-dead", "--visibility", "5m")
    assert made.stdout == b"Created the queue emails\n"
    assert b"Sent 3 messages" in run("send", "emails", "--priority", "2", stdin=b"one\ntwo\nthree\n").stderr
    sent = json.loads(run("send", "emails", '{"to": "alice"}', "--priority", "9", "-H", "tenant=7", "--json").stdout)
    shown = json.loads(run("peek", "emails", "--json").stdout)
    assert [each["body"] for each in shown] == ["one", "two", "three", {"to": "alice"}]
    assert {each["state"] for each in shown} == {"available"}
    received = json.loads(run("receive", "emails", "--format", "json").stdout)
    assert (received["id"], received["body"], received["attempt"]) == (sent[0]["id"], {"to": "alice"}, 1)
    assert ["tenant", "7"] in received["headers"]
    # Received as often as it may be, and returned: it is a dead letter.
    assert run("receive", "emails", "--then", "nack").stdout == b"one\n"
    assert run("receive", "emails", "-n", "5", "--wait", "0s").stdout == b"two\nthree\n"
    assert b"No message came to emails" in run("receive", "emails", "--wait", "0s").stderr
    described = json.loads(run("describe", "emails", "--json").stdout)
    assert described["settings"]["queue.visibility.timeout.ms"] == 300_000
    listed = {each["queue"]: each for each in json.loads(run("list", "--json").stdout)}
    assert listed["emails"]["available"] == 0
    give_up_at_s = time.monotonic() + _ENOUGH_S
    while "returned at the command line" not in run("peek", "emails-dead").stdout.decode():
        assert time.monotonic() < give_up_at_s
    assert b"Moved 1 message out of emails-dead" in run("redrive", "emails-dead", "--reason", "returned").stdout
    assert run("receive", "emails").stdout == b"one\n"
    assert b"no terminal to confirm on" in run("purge", "emails", fails=True).stderr
    assert run("purge", "emails", "--yes").stdout == b"Purged the queue emails\n"
    run("alter", "emails", "--delay", "1h", "--unset", "max.receives")
    text = run("describe", "emails").stdout.decode()
    assert "queue.delay.ms" in text
    assert "queue.max.receives " not in text
    assert run("delete", "emails", "emails-dead", "--yes").stdout.count(b"Deleted") == 2
    assert b"no queue" in run("describe", "emails", fails=True).stderr


def test_what_a_reader_that_left_did_not_get_is_there_at_once(broker: BrokerProcess, run: Run) -> None:
    """As with `headrace queue receive … | head -1`."""
    run("create", "piped")
    run("send", "piped", stdin=b"%s\n" % (b"x" * 5_000) * 100)
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap}
    command = [*HEADRACE, "receive", "piped", "-n", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"x" * 5_000 + b"\n"
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(_ENOUGH_S) != 0
    left = json.loads(run("list", "piped", "--json").stdout)[0]
    assert left["in_flight"] == 0
    assert 50 < left["available"] < 100


def test_a_redrive_is_cancelled_by_ctrl_c(broker: BrokerProcess, run: Run) -> None:
    run("create", "slow-target")
    run("create", "slow-source")
    run("send", "slow-source", stdin=b"x\n" * 500)
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap}
    command = [*HEADRACE, "redrive", "slow-source", "--to", "slow-target", "--rate", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        try:
            with Client(broker.bootstrap) as client:
                target = client.queue("slow-target")
                give_up_at_s = time.monotonic() + _ENOUGH_S
                while not target.counts().available:
                    assert time.monotonic() < give_up_at_s
                    time.sleep(0.05)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=_ENOUGH_S)
                (move,) = client.queue("slow-source").redrives()
        finally:
            process.kill()
    assert process.returncode == 1
    assert b"cancelled" in errors
    assert move.status == "CANCELLED"
    assert 0 < move.moved < 500


def test_what_is_wrong_is_said_in_one_sentence(run: Run) -> None:
    assert b"no queue nothing" in run("send", "nothing", "x", fails=True).stderr
    assert b"is not a duration" in run("create", "x", "--delay", "soon", fails=True).stderr
    assert b"queues have no setting" in run("create", "x", "--set", "cleanup.policy=compact", fails=True).stderr
    run("create", "x.fifo", "--fifo")
    assert b"headrace queue alter x.fifo" in run("create", "x.fifo", "--fifo", "--delay", "1s", fails=True).stderr
    refused = run("send", "x.fifo", "nobody's", fails=True)
    assert b"fifo queue" in refused.stderr
    assert b"\n" not in refused.stderr
    unreachable = run("list", "--http", "http://127.0.0.1:1", fails=True)
    assert b"no broker serves queues at http://127.0.0.1:1;" in unreachable.stderr


def test_a_queue_that_is_refused_leaves_no_dead_letter_queue(run: Run) -> None:
    assert b"its own" in run("create", "refused", "--dead-letter", "refused", fails=True).stderr
    wrong = run("create", "refused", "--dead-letter", "refused-dead", "--max-receives", "100000", fails=True)
    assert b"queue.max.receives=100000 is out of range" in wrong.stderr
    assert json.loads(run("list", "refused", "--json").stdout) == []
