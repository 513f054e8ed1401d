"""What a broker's memory is after a burst of large messages, or of topics: near what it was before."""

import asyncio
import gc
import json
import os
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.broker import Broker
from headrace.testing.process import BrokerProcess
from tests.faults.churn import QUEUES, Churn, create
from tests.faults.watch import MIB, memory_bytes
from tests.interop import batches, raw_client
from tests.waiting import until

CLIENTS = 200
LARGE_BYTES = 1_000_000
SPARE_BYTES = 40 * MIB
"""Growth that a broker does not bother about (`GROWTH_BYTES`), and pages here and there that are in use."""
CACHED_BYTES = 64 * MIB
"""Messages of queues that are kept in memory."""
POOLED_BYTES = 32 * MIB
"""Buffers of Kafka requests that are used again."""
CHURN_TOPICS = 50
LEFT_OF_A_ROUND_BYTES = 200_000
BOUNDED = (
    ".Change",
    ".QueueInfo",
    ".QueueSettings",
    ".LogSummary",
    ".cleaner._State",
    ".ClientInstance",
    ".ClientFacts",
)
"""Recent changes of the metadata and definitions of queues, of which there are at most so many, what the logs of
internal topics get at some time, too, and librdkafka's clients, which are known for some minutes."""
OF_TOPICS = ("headrace.storage.", "headrace.replication.", "headrace.queues.", "headrace.groups.")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as one:
        yield one


async def ask(port: int, action: str, **fields: Any) -> Any:
    """One request to the SQS API on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2 * LARGE_BYTES)
    body = json.dumps(fields).encode()
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head_bytes, _, content = answer.partition(b"\r\n\r\n")
    assert head_bytes.startswith(b"HTTP/1.1 200 "), answer[:500]
    return json.loads(content or b"{}")


async def send_and_receive(port: int, queue: str, clients: int, body: str) -> list[str]:
    """All clients send a message at the same time, then all receive one; the receipt handles."""
    await asyncio.gather(*[ask(port, "SendMessage", QueueUrl=queue, MessageBody=body) for _ in range(clients)])
    answers = await asyncio.gather(*[ask(port, "ReceiveMessage", QueueUrl=queue) for _ in range(clients)])
    messages = [answer["Messages"][0] for answer in answers]
    assert {message["Body"] for message in messages} == {body}
    return [message["ReceiptHandle"] for message in messages]


async def delete(port: int, queue: str, handles: list[str]) -> None:
    for handle in handles:
        await ask(port, "DeleteMessage", QueueUrl=queue, ReceiptHandle=handle)


@pytest.mark.parametrize("large_bytes", [LARGE_BYTES, LARGE_BYTES // 10])
def test_memory_falls_after_a_burst_of_large_messages_of_a_queue(broker: BrokerProcess, large_bytes: int) -> None:
    port = int(broker.http_url.rsplit(":", 1)[1])
    queue = asyncio.run(ask(port, "CreateQueue", QueueName="burst"))["QueueUrl"]
    asyncio.run(delete(port, queue, asyncio.run(send_and_receive(port, queue, 2, "small"))))
    before = memory_bytes(broker.pid)
    clients = CLIENTS * min(4, LARGE_BYTES // large_bytes)
    handles = asyncio.run(send_and_receive(port, queue, clients, "x" * large_bytes))
    until_fallen(broker, before + CACHED_BYTES)
    asyncio.run(delete(port, queue, handles))
    until_fallen(broker, before)


def test_memory_falls_after_a_burst_of_large_batches_that_are_compressed_anew(broker: BrokerProcess) -> None:
    raw_client.create_topic(broker.bootstrap, "burst", 1, {"compression.type": "lz4"})
    connections = [raw_client.Connection(broker.bootstrap) for _ in range(CLIENTS)]
    try:
        assert (
            raw_client.produce(connections[0], "burst", batches.batch([b"small"])).error_code == raw_client.Error.none
        )
        before = memory_bytes(broker.pid)
        # Only after the first does the allocator take such buffers from the heap.
        for _ in range(2):
            produce_at_once(connections, batches.batch([os.urandom(LARGE_BYTES)]))
        until_fallen(broker, before + POOLED_BYTES)
    finally:
        for connection in connections:
            connection.close()


def produce_at_once(connections: list[raw_client.Connection], batch: bytes) -> None:
    """Every request is there but for its last bytes before any is whole."""
    ends: list[tuple[raw_client.Connection, raw_client.Pending, bytes]] = []
    for number, connection in enumerate(connections):
        pending = raw_client.Pending(raw_client.PRODUCE, 9, number)
        frame = raw_client.encode(raw_client.PRODUCE, 9, raw_client.produce_body("burst", batch), correlation_id=number)
        connection.send_bytes(struct.pack(">i", len(frame)) + frame[:-10])
        ends.append((connection, pending, frame[-10:]))
    for connection, _, end in ends:
        connection.send_bytes(end)
    for connection, pending, _ in ends:
        answer = connection.receive(pending)
        assert answer.responses[0].partition_responses[0].error_code == raw_client.Error.none


def until_fallen(broker: BrokerProcess, to_bytes: int, spare_bytes: int = SPARE_BYTES) -> None:
    most_bytes = to_bytes + spare_bytes
    until(
        lambda: memory_bytes(broker.pid) < most_bytes,
        lambda: f"{memory_bytes(broker.pid) / MIB:.0f} MiB are resident, and not {most_bytes / MIB:.0f} MiB",
        timeout_s=60,
    )


def test_nothing_is_left_of_topics_groups_and_queues_that_are_deleted(tmp_path: Path) -> None:
    """In this process, where its objects can be counted: one for each topic, or each group or queue, is too many."""
    topics, rounds = 5, 4
    with Broker(tmp_path / "data") as broker:
        churn = Churn(broker.bootstrap, broker.http_url, topics)
        churn.leave_a_message()
        for _ in range(rounds):
            churn.round()
        before = objects()
        for _ in range(rounds):
            churn.round()
        most = rounds * min(topics, QUEUES) // 2

        def grown() -> dict[str, int]:
            return {kind: more for kind, count in objects().items() if (more := count - before[kind]) > most}

        until(lambda: not grown(), lambda: f"more than before: {grown()}", timeout_s=60)


def objects() -> Counter[str]:
    """The objects of the broker, by type, without the changes and definitions that are in bounded lists."""
    gc.collect()
    return count(gc.get_objects())


def count(found: list[Any]) -> Counter[str]:
    kinds = (f"{kind.__module__}.{kind.__qualname__}" for kind in map(type, found))
    return Counter(kind for kind in kinds if kind.startswith("headrace.") and not kind.endswith(BOUNDED))


def test_what_is_deleted_is_freed_without_a_garbage_collection(tmp_path: Path) -> None:
    """Garbage collections of a broker are rare, and what waits for one may take megabytes until then."""
    topics, rounds = 5, 2
    with Broker(tmp_path / "data") as broker:
        churn = Churn(broker.bootstrap, broker.http_url, topics)
        churn.leave_a_message()
        churn.round()
        before = objects()
        gc.disable()
        try:
            for _ in range(rounds):
                churn.round()
            until(lambda: not waiting_for_collection(before), lambda: f"left: {waiting_for_collection(before)}")
        finally:
            gc.enable()


def waiting_for_collection(before: Counter[str]) -> dict[str, int]:
    """What a broker has more of than before: of topics, queues and groups, not of connections and requests."""
    now = count(gc.get_objects())
    return {
        kind: now[kind] - before[kind] for kind in now if now[kind] - before[kind] >= 5 and kind.startswith(OF_TOPICS)
    }


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_memory_does_not_grow_with_what_is_created_and_deleted(tmp_path: Path) -> None:
    """Forty rounds, each with 50 topics, 11 queues and 5 groups. Of each of the last thirty 200 KB may be left, since
    caches with a bound are not full yet. Then a start of the same data directory, with the same topics."""
    settings = {"group.initial.rebalance.delay.ms": 0}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with raw_client.Connection(broker.bootstrap) as connection:
            create(connection, [f"stays-{number}" for number in range(CHURN_TOPICS)])
        churn = Churn(broker.bootstrap, broker.http_url, CHURN_TOPICS)
        churn.leave_a_message()
        for _ in range(10):
            churn.round()
        before = memory_bytes(broker.pid)
        for _ in range(30):
            churn.round()
        until_fallen(broker, before, 30 * LEFT_OF_A_ROUND_BYTES)
        after = memory_bytes(broker.pid)
        broker.restart()
        fresh = memory_bytes(broker.pid)
        assert after < 1.5 * fresh, f"{after / MIB:.0f} MiB are resident, and {fresh / MIB:.0f} MiB after a start"
