"""What a user sees of failures: the log, dead letters, health; and of a broker that is not there."""

import asyncio
import logging
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headrace import Backoff, Client, Message, QueueMessage, aio
from headrace.testing import Broker
from headrace.testing.etcd import free_port
from tests.waiting import until

from .quick import broker  # noqa: F401
from .subject import Subject


@pytest.fixture
def client(broker: Subject) -> Iterator[Client]:
    with Client(broker.bootstrap) as one:
        yield one


def test_a_dead_letter_says_what_was_raised_where_and_how_often(
    client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    @client.handler(topic, group="g", retry=Backoff(initial_s=0, attempts=3), dead_letter=f"{topic}.dlq")
    def bill(message: Message) -> None:
        if message.text == "last":
            client.stop()
        else:
            message.json()["item"]

    for text in ("{}", "last"):
        client.publish(topic, text)
    client.run()
    (letter,) = client.replay(f"{topic}.dlq")
    line = bill.__code__.co_firstlineno + 5
    assert letter.header("headrace-exception-type") == "KeyError"
    assert letter.header("headrace-exception-message") == "'item'"
    assert letter.header("headrace-exception-file") == __file__
    assert letter.header("headrace-exception-line") == str(line)
    assert letter.header("headrace-attempts") == "3"
    told = [each for each in caplog.records if "KeyError" in each.getMessage()]
    assert all(each.levelno >= logging.WARNING for each in told)
    assert [each.exc_info is not None for each in told] == [True, False, False]
    assert "failed at attempt 1 of 3 and is tried again in 0 ms" in told[0].getMessage()
    assert "failed at attempt 2 of 3" in told[1].getMessage()
    assert f"dead-lettered to {topic}.dlq after attempt 3" in told[2].getMessage()


def test_a_coroutine_that_fails_is_placed_in_its_own_code(
    broker: Subject, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with aio.Client(broker.bootstrap) as client:

            @client.handler(topic, group="g", retry=Backoff(attempts=1), dead_letter=f"{topic}.dlq")
            async def bill(message: Message) -> None:
                client.stop()
                await asyncio.sleep(0)
                raise ValueError("no")

            await client.publish(topic, "x")
            await client.run()
            letter = await anext(client.replay(f"{topic}.dlq"))
            assert letter.header("headrace-exception-file") == __file__
            assert letter.header("headrace-exception-line") == str(bill.__code__.co_firstlineno + 4)

    asyncio.run(test())
    assert any(record.exc_info for record in caplog.records if record.name == "headrace.client")


def test_a_worker_s_failures_are_in_its_health_and_in_the_log(
    client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = client.queue(f"{topic}-queue").create(max_receives=15, dead_letter=f"{topic}-dead")
    other = client.queue(f"{topic}-idle").create()

    @queue.worker()
    def send(message: QueueMessage) -> None:
        raise ValueError("no")

    @other.worker()
    def idle(message: QueueMessage) -> None: ...

    assert not client.health().is_running
    queue.send("x")
    with client.running():
        until(lambda: client.queue(f"{topic}-dead").counts().available)
        until(lambda: client.health().is_running)
        failing, idling = client.health().workers
        assert (failing.name.rpartition(".")[2], failing.source) == ("send", f"queue {queue.name}")
        assert (failing.failed, failing.handled, idling.failed) == (15, 0, 0)
        assert re.fullmatch(r"ValueError: no \(.*test_sdk_failures\.py:\d+\)", failing.last_error or "")
        assert client.health().last_error == failing.last_error
        until(lambda: client.health().workers[1].lag == 0)
    assert not client.health().is_running
    told = [each for each in caplog.records if "ValueError" in each.getMessage()]
    assert [each.exc_info is not None for each in told] == [True] + [False] * 10
    assert "failed 5 more times" in told[-1].getMessage()


def test_a_message_is_settled_by_its_block(client: Client, topic: str) -> None:
    queue = client.queue(f"{topic}-queue").create(max_receives=1, dead_letter=f"{topic}-dead")
    queue.send_many(["good", "bad", "settled"])
    for message in queue.receive(max=3):
        with suppress(ValueError), message:
            if message.text == "bad":
                raise ValueError("no")
            if message.text == "settled":
                message.ack()
                raise ValueError("after it was acknowledged")
    dead = client.queue(f"{topic}-dead")
    until(lambda: dead.counts().available == 1)
    assert re.fullmatch(r"ValueError: no \(.*:\d+\)", dead.peek()[0].reason or "")
    until(lambda: (counts := queue.counts()).available + counts.in_flight + counts.delayed == 0)
    client.publish(topic, "good")
    client.publish(topic, "bad")
    with client.consume(topic, group="blocks") as stream, next(stream) as record:
        assert record.text == "good"
    with client.consume(topic, group="blocks") as stream, suppress(ValueError), next(stream) as record:
        assert record.text == "bad"
        raise ValueError
    with client.consume(topic, group="blocks") as stream:
        assert next(stream).text == "bad"


def test_a_message_is_settled_by_its_block_with_asyncio(broker: Subject, topic: str) -> None:
    async def test() -> None:
        async with aio.Client(broker.bootstrap) as client:
            queue = await client.queue(f"{topic}-queue").create(max_receives=1, dead_letter=f"{topic}-dead")
            await queue.send_many(["good", "bad"])
            for message in await queue.receive(max=2):
                with suppress(ValueError):
                    async with message:
                        if message.text == "bad":
                            raise ValueError("no")
            (letter,) = await client.queue(f"{topic}-dead").receive(wait=60)
            assert letter.text == "bad"

    asyncio.run(test())


def test_the_lag_of_a_handler(client: Client, topic: str) -> None:
    for number in range(20):
        client.publish(topic, str(number))
    free = threading.Event()

    @client.handler(topic, group="slow")
    def wait(message: Message) -> None:
        if message.text == "5":
            free.wait(120)

    with client.running():
        until(lambda: client.health().lag == 15)
        assert client.health().workers[0].handled == 5
        free.set()
        until(lambda: client.health().lag == 0)
        assert client.health().workers[0].handled == 20


SCRIPT = """
import sys
from headrace import Client
{body}
"""


def run(body: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT.format(body=body), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("call", ["publish('t', 'x')", "queue('q').send('x')", "consume('t', group='g')"])
def test_a_program_with_a_wrong_address_ends_with_a_sentence(call: str) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    ended = run(f"Client(sys.argv[1]).{call}", nobody)
    assert ended.returncode == 1
    assert re.search(
        rf"no broker answers at {nobody} after [0-9.]+ seconds \({nobody}: connection refused\)", ended.stderr
    )
    for raw in ("rdkafka#", "[thrd:", "FAIL"):
        assert raw not in ended.stderr


def test_a_broker_that_restarts_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(settings={"num.partitions": 1}) as own, Client(own.bootstrap, connect_timeout=0.5) as client:
        client.publish("t", "before")
        queue = client.queue("q").create()
        own.stop()
        later = client.publish_soon("t", "meanwhile")
        # Longer than a first contact may take.
        until(lambda: "no broker answers at" in caplog.text)
        assert not later.done()
        assert client.health().last_error == f"no broker answers at {own.bootstrap}"
        assert client.health().is_running
        own.start()
        assert later.result(120).offset == 1
        queue.send("x")
        assert [each.text for each in queue.receive()] == ["x"]


WORKER = """
import signal, sys, time
from headrace import Client
client = Client(sys.argv[1])

@client.handler(sys.argv[2], group="signals")
def work(message):
    print("began", flush=True)
    time.sleep(0.3)
    print("ended", flush=True)

if sys.argv[3] == "theirs":
    def stop(number, frame):
        print("theirs", flush=True)
        client.stop()
    signal.signal(signal.SIGTERM, stop)
client.run()
print("returned", flush=True)
"""


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_a_worker_process_stops_on_sigterm_by_its_own_handler_if_it_has_one(
    broker: Subject, client: Client, topic: str, tmp_path: Path, whose: str
) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    client.publish(topic, "x")
    command = [sys.executable, str(script), broker.bootstrap, topic, whose]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGTERM)
        said = process.stdout.read().split()
        assert process.wait(60) == 0
    assert said == (["theirs"] if whose == "theirs" else []) + ["ended", "returned"]


AIO_WORKER = """
import asyncio, sys
from headrace.aio import Client

async def main():
    async with Client(sys.argv[1]) as client:
        @client.handler(sys.argv[2], group="signals")
        async def work(message):
            print("began", flush=True)
            await asyncio.sleep(0.3)
            print("ended", flush=True)

        await client.run()
        print("returned", flush=True)

if sys.argv[3] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_worker_process_with_asyncio_stops_on_signals(
    broker: Subject, client: Client, topic: str, tmp_path: Path, loop: str, number: signal.Signals
) -> None:
    script = tmp_path / "worker.py"
    script.write_text(AIO_WORKER)
    client.publish(topic, "x")
    command = [sys.executable, str(script), broker.bootstrap, topic, loop]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        process.send_signal(number)
        said = process.stdout.read().split()
        assert process.wait(60) == 0
    assert said == ["ended", "returned"]


def test_a_group_in_a_test_starts_at_once(headrace_broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": headrace_broker.bootstrap})
    resource = ConfigResource(ResourceType.BROKER, "0")
    found = admin.describe_configs([resource])[resource].result(60)
    assert found["group.initial.rebalance.delay.ms"].value == "0"
