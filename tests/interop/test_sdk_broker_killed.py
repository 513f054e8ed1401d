"""Workers of the SDK whose broker is killed under them: each delivery keeps its promise, and the work goes on.

Times of the machine do not matter: the broker is killed after so much progress, and everything is waited for.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import Client

from . import raw_client
from .subject import Subject

pytestmark = pytest.mark.timeout(300)

WORKER = """
import json, sys
from headrace import Client, Outgoing

bootstrap, kind, delivery, settings = sys.argv[1:]
client = Client(bootstrap, settings={"session.timeout.ms": 6000, **json.loads(settings)})
name = "worker" if delivery == "exactly-once" else None
with client:
    if kind == "stream":
        with client.consume("source", "copying", delivery, transactional_id=name) as stream:
            for message in stream:
                stream.publish("target", message.payload)
    else:
        handler = client.handler("source", "copying", delivery=delivery, batch=20, transactional_id=name)
        handler(lambda message: Outgoing("target", message.payload))
        client.run()
"""


@contextlib.contextmanager
def worker(tmp_path: Path, broker: Subject, kind: str, delivery: str, settings: dict[str, str]) -> Iterator[None]:
    """A process that copies; it must be there to the end, and end when it is told to."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    command = [sys.executable, str(script), broker.bootstrap, kind, delivery, json.dumps(settings)]
    with (tmp_path / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)
    try:
        yield
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == (0 if kind == "handler" else -signal.SIGINT)
    except BaseException:
        print((tmp_path / "worker.log").read_text(errors="replace")[-5000:])
        raise
    finally:
        process.kill()
        process.wait()


def copied(broker: Subject) -> int:
    """How far the group is."""
    asked = [{"name": "source", "partition_indexes": [0]}]
    with raw_client.Connection(broker.bootstrap) as connection:
        answer = connection.call(raw_client.OFFSET_FETCH, 7, group_id="copying", topics=asked, require_stable=False)
    return sum(max(0, part.committed_offset) for topic in answer.topics for part in topic.partitions)


def wait_for(broker: Subject, count: int, timeout_s: float = 90) -> None:
    end = time.monotonic() + timeout_s
    reached = -1
    while reached < count:
        assert time.monotonic() < end, f"{reached} of {count}"
        with contextlib.suppress(OSError, raw_client.Closed):
            reached = copied(broker)
        time.sleep(0.02)


def copy_while_the_broker_dies(
    own_broker: Callable[..., Subject],
    tmp_path: Path,
    kind: str,
    delivery: str,
    *,
    kills: int,
    settings: dict[str, str] | None = None,
) -> tuple[list[int], int]:
    """What is in the target in the end, and how much was put into the source."""
    broker = own_broker(group_initial_rebalance_delay_ms="0")
    raw_client.create_topic(broker.bootstrap, "source", 1)
    raw_client.create_topic(broker.bootstrap, "target", 1)
    sent = 0
    with Client(broker.bootstrap) as client, worker(tmp_path, broker, kind, delivery, settings or {}):
        for _ in range(kills):
            wait_for(broker, sent)
            for _ in range(3_000):
                client.publish_soon("source", str(sent))
                sent += 1
            client.flush()
            wait_for(broker, sent - 2_900)
            broker.kill()
            broker.start()
        wait_for(broker, sent)
        for _ in range(10):
            client.publish("source", str(sent))
            sent += 1
        wait_for(broker, sent)
    with Client(broker.bootstrap) as client:
        return [int(message.text) for message in client.replay("target")], sent


@pytest.mark.parametrize("kind", ["stream", "handler"])
def test_exactly_once(own_broker: Callable[..., Subject], tmp_path: Path, kind: str) -> None:
    found, sent = copy_while_the_broker_dies(own_broker, tmp_path, kind, "exactly-once", kills=2)
    assert found == list(range(sent))


def test_at_least_once(own_broker: Callable[..., Subject], tmp_path: Path) -> None:
    found, sent = copy_while_the_broker_dies(own_broker, tmp_path, "handler", "at-least-once", kills=2)
    assert set(found) == set(range(sent))


def test_at_most_once(own_broker: Callable[..., Subject], tmp_path: Path) -> None:
    found, _ = copy_while_the_broker_dies(own_broker, tmp_path, "handler", "at-most-once", kills=1)
    assert len(found) == len(set(found))
    assert len(found) > 10


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["stream", "handler"])
def test_exactly_once_where_librdkafka_does_not_return(
    own_broker: Callable[..., Subject], tmp_path: Path, kind: str
) -> None:
    """With this setting `send_offsets_to_transaction` may hang after a restart (librdkafka's issue 5511)."""
    settings = {"metadata.recovery.strategy": "rebootstrap"}
    found, sent = copy_while_the_broker_dies(own_broker, tmp_path, kind, "exactly-once", kills=10, settings=settings)
    assert found == list(range(sent))


CRASHES = """
import sys
from headrace import Client

bootstrap, delivery = sys.argv[1:]
with Client(bootstrap) as client:
    with client.consume("source", f"crashing-{delivery}", delivery) as stream:
        message = next(stream)
        message.ack()
        if delivery == "exactly-once":
            stream.publish("target", message.payload)
        print("read", flush=True)
        sys.stdin.readline()
        raise SystemError("a crash")
"""


@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_application_that_crashes_out_of_a_stream_ends(own_broker: Callable[..., Subject], is_killed: bool) -> None:
    broker = own_broker(group_initial_rebalance_delay_ms="0")
    with Client(broker.bootstrap) as client:
        client.publish("source", "0")
    with contextlib.ExitStack() as stack:
        processes = []
        for delivery in ("at-most-once", "at-least-once", "exactly-once"):
            command = [sys.executable, "-c", CRASHES, broker.bootstrap, delivery]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=os.environ, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "read\n"
        if is_killed:
            broker.kill()
        for process in processes:
            _, errors = process.communicate("\n", timeout=100)
            assert process.returncode == 1
            assert errors.rstrip().endswith("SystemError: a crash")
