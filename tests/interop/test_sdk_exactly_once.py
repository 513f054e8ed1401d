"""Consume, transform, produce with the SDK: the output has every input once, whatever happens to the workers."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import Backoff, Client, Fenced, Message, Outgoing
from headrace.aio import Client as AsyncClient

from .quick import broker  # noqa: F401
from .subject import Subject


@pytest.fixture
def client(broker: Subject) -> Iterator[Client]:
    with Client(broker.bootstrap) as one:
        yield one


def fill(client: Client, topic: str, count: int) -> None:
    for number in range(count):
        client.publish_soon(topic, str(number), key=str(number % 11))
    client.flush()


def numbers(client: Client, topic: str) -> list[int]:
    return sorted(int(message.text) for message in client.replay(topic))


def test_results_and_positions_are_committed_together(client: Client, new_topic: Callable[..., str]) -> None:
    source, out = new_topic(), new_topic()
    fill(client, source, 10)
    with client.consume(source, "eo1", "exactly-once", commit_interval_s=60) as stream:
        for _ in range(4):
            stream.publish(out, next(stream).payload)
        # In the transaction, so not seen yet.
        assert numbers(client, out) == []
        stream.commit()
        assert numbers(client, out) == [0, 1, 2, 3]
        stream.publish(out, next(stream).payload)
    assert numbers(client, out) == [0, 1, 2, 3, 4]
    with client.consume(source, "eo1", "exactly-once") as stream:
        assert next(stream).text == "5"


def test_a_failure_undoes_both(client: Client, new_topic: Callable[..., str]) -> None:
    source, out = new_topic(), new_topic()
    fill(client, source, 6)

    def fail() -> None:
        with client.consume(source, "eo2", "exactly-once", commit_interval_s=60) as stream:
            for message in stream:
                stream.publish(out, message.payload)
                if message.text == "3":
                    raise RuntimeError("crash")

    with pytest.raises(RuntimeError):
        fail()
    assert numbers(client, out) == []
    with client.consume(source, "eo2", "exactly-once") as stream:
        for message in stream:
            stream.publish(out, message.payload)
            if message.text == "5":
                break
    assert numbers(client, out) == [0, 1, 2, 3, 4, 5]


def test_a_successor_fences_the_one_before(broker: Subject, client: Client, new_topic: Callable[..., str]) -> None:
    source, out = new_topic(), new_topic()
    fill(client, source, 2)
    # Fenced before its time is over, however slow this machine is: later the broker would have aborted it anyhow.
    settings = {"transaction.timeout.ms": 300_000}
    with Client(broker.bootstrap, settings=settings) as patient, Client(broker.bootstrap) as other:
        first = patient.consume(source, "eo3", "exactly-once", commit_interval_s=600, transactional_id="worker-1")
        first.publish(out, next(first).payload)
        second = other.consume(source, "eo3", "exactly-once", transactional_id="worker-1")
        with pytest.raises(Fenced):
            first.commit()
        with pytest.raises(Fenced):
            first.close()
        for message in second:
            second.publish(out, message.payload)
            if message.text == "1":
                break
    assert numbers(client, out) == [0, 1]


def test_a_handler_dead_letters_within_the_transaction(client: Client, new_topic: Callable[..., str]) -> None:
    source, out = new_topic(partitions=3), new_topic()
    fill(client, source, 300)
    left = threading.Semaphore(0)

    @client.handler(
        source,
        group="eo4",
        delivery="exactly-once",
        retry=Backoff(initial_s=0.01, attempts=2),
        dead_letter=f"{out}.dlq",
        workers=3,
    )
    def double(message: Message) -> list[Outgoing]:
        number = int(message.text)
        if number % 100 == 50:
            raise ValueError("not this one")
        left.release()
        return [Outgoing(out, str(number)), Outgoing(out, str(1000 + number))]

    def stop() -> None:
        for _ in range(297):
            left.acquire(timeout=60)
        client.stop()

    threading.Thread(target=stop, daemon=True).start()
    client.run()
    good = [number for number in range(300) if number % 100 != 50]
    assert set(numbers(client, out)) <= {*good, *(1000 + number for number in good)}
    assert len(numbers(client, out)) == len(set(numbers(client, out)))


def test_async_streams_publish_in_the_transaction(
    broker: Subject, client: Client, new_topic: Callable[..., str]
) -> None:
    source, out = new_topic(), new_topic()
    fill(client, source, 20)

    async def copy() -> None:
        async with AsyncClient(broker.bootstrap) as own, own.consume(source, "eo5", "exactly-once") as stream:
            async for message in stream:
                await stream.publish(out, message.payload)
                if message.text == "19":
                    break

    asyncio.run(copy())
    assert numbers(client, out) == list(range(20))


WORKER = """
import sys
from headrace import Client, Outgoing
bootstrap, source, out, group, name = sys.argv[1:]
client = Client(bootstrap, settings={"session.timeout.ms": 2000})
@client.handler(source, group=group, delivery="exactly-once", workers=2, transactional_id=name)
def copy(message):
    return Outgoing(out, message.payload, key=message.key)
client.run()
"""


@pytest.mark.timeout(180)
def test_workers_that_are_killed_lose_and_repeat_nothing(
    broker: Subject, client: Client, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, out = new_topic(partitions=4), new_topic(partitions=4)
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    count, chance = 10_000, random.Random(7)

    def start(index: int) -> subprocess.Popen[bytes]:
        arguments = [broker.bootstrap, source, out, "eo-kill", f"eo-kill-{index}"]
        return subprocess.Popen([sys.executable, str(script), *arguments], env=os.environ)

    workers = [start(index) for index in range(2)]
    try:
        sent = 0
        for _ in range(5):
            for number in range(sent, sent + count // 5):
                client.publish_soon(source, str(number), key=str(number % 53))
            client.flush()
            sent += count // 5
            time.sleep(1 + chance.random())
            victim = chance.randrange(2)
            workers[victim].send_signal(signal.SIGKILL)
            workers[victim].wait()
            workers[victim] = start(victim)
        end = time.monotonic() + 90
        while len(found := numbers(client, out)) < count and time.monotonic() < end:
            time.sleep(0.5)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            assert worker.wait(60) in (0, -signal.SIGTERM)  # one that was started just now knows no signals yet
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    twice = [number for number, times in Counter(found).items() if times > 1]
    assert not twice
    assert found == list(range(count))
