"""Messages that are received as ranges with the batches of the log, decoded as the SDK does it."""

import asyncio
from uuid import UUID

import pytest

from headrace.client.queue.range_decoder import messages_of
from headrace.client.queue.ranges import RangeMessage, ranges_of
from headrace.model import queued
from headrace.model.errors import InvalidReceipt, NotInFlight
from headrace.model.queue_wire import AllReceived, Received
from headrace.queues.api import RangeAcks, RangeFailures, ReceiveOptions
from headrace.queues.engine.engine import LeaseRange
from headrace.queues.host.batches import batches_of
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.reader import Record
from headrace.storage.slice import Slice
from tests.unit.queues.brokers import QueueBroker

FIELDS = (
    "id", "receipt", "body", "offset", "sent_at_ms", "attempt", "priority", "group", "dedupe", "origin", "headers",
)  # fmt: skip


def append(broker: QueueBroker, queue: str, count: int, *headers: tuple[str, bytes], **others: int) -> None:
    now_ms = broker.services.clock.wall_ms()
    broker.append(queue, *[Record(0, now_ms, b"key", b"%d" % each, headers) for each in range(count)], **others)


def received(
    broker: QueueBroker, queue: str, most: int = 1_000, *, visibility_ms: int = 600_000, wait_ms: int = 20_000
) -> AllReceived | list[Received]:
    options = ReceiveOptions(most, wait_ms, visibility_ms)
    return broker.run(wait_for(broker, queue, options))


async def wait_for(broker: QueueBroker, queue: str, options: ReceiveOptions) -> AllReceived | list[Received]:
    return await broker.queues.begin_receive_batches(queue, options)


def decoded(found: AllReceived | list[Received]) -> list[RangeMessage]:
    assert isinstance(found, AllReceived)
    messages, unreadable = messages_of(found)
    assert unreadable == []
    return messages


def acknowledged(broker: QueueBroker, queue: str, found: AllReceived | list[Received]) -> RangeFailures:
    assert isinstance(found, AllReceived)
    acks = RangeAcks(found.topic_id, ranges_of(decoded(found)))

    async def run() -> RangeFailures:
        return await broker.queues.begin_acknowledge_ranges(queue, acks)

    return broker.run(run())


def test_a_range_has_the_same_messages_as_a_receive_without_ranges(broker: QueueBroker) -> None:
    first, second = broker.create(), broker.create()
    for queue in (first, second):
        append(broker, queue, 60)
        append(broker, queue, 20, (queued.ID, b"mine"), ("x", b"y"), (queued.GROUP, b"g"), (queued.ORIGIN, b"{}"))
    ranges = decoded(received(broker, first))
    singles = broker.receive(second, 1_000, wait_ms=20_000)
    assert [message.body for message in ranges] == [message.body for message in singles]
    own = ("id", "receipt", "sent_at_ms")
    for one, other in zip(ranges, singles, strict=True):
        for name in FIELDS:
            if name not in own:
                assert getattr(one, name) == getattr(other, name), name
    assert ranges[-1].id == "mine"
    assert broker.run(broker.queues.acknowledge(first, [message.receipt for message in ranges])) == [None] * 80


def test_compressed_messages_are_sent_one_by_one(broker: QueueBroker) -> None:
    """How large they are is known when they are decompressed, and an answer has a bound."""
    queue = broker.create()
    append(broker, queue, 60, codec=Codec.ZSTD)
    found = received(broker, queue)
    assert isinstance(found, list)
    assert len(found) == 60


def test_ranges_are_acknowledged_and_stay_so_after_a_restart(own: QueueBroker) -> None:
    queue = own.create()
    append(own, queue, 300)
    found = received(own, queue, 150)
    assert len(decoded(found)) == 150
    assert acknowledged(own, queue, found) == []
    rest = received(own, queue, visibility_ms=1)
    assert [message.offset for message in decoded(rest)] == list(range(150, 300))
    own.restart()
    again = own.receive(queue, 1_000, wait_ms=20_000)
    assert sorted(message.offset for message in again) == list(range(150, 300))
    assert {message.attempt for message in again} == {2}
    failures = acknowledged(own, queue, rest)
    assert [offset for offset, _ in failures] == list(range(150, 300)), "they were received again"
    assert all(isinstance(error, NotInFlight) for _, error in failures)


def test_a_receive_that_waits_gets_a_range(broker: QueueBroker) -> None:
    queue = broker.create()

    async def run() -> AllReceived | list[Received]:
        await broker.queues.counts(queue)
        waiting = asyncio.ensure_future(wait_for(broker, queue, ReceiveOptions(1_000, 20_000)))
        await asyncio.sleep(0)
        return await waiting

    partition = broker.services.partitions.get(queue, 0)

    async def both() -> AllReceived | list[Received]:
        waiting = asyncio.ensure_future(run())
        await asyncio.sleep(0)
        batch = build_batch([Record(0, broker.services.clock.wall_ms(), None, b"%d" % each) for each in range(50)])
        partition.append(batch, read_header(batch))
        return await waiting

    assert [message.body for message in decoded(broker.run(both()))] == [b"%d" % each for each in range(50)]


def test_few_messages_of_a_large_batch_are_sent_one_by_one(broker: QueueBroker) -> None:
    queue = broker.create()
    append(broker, queue, 500)
    few = received(broker, queue, 20)
    assert isinstance(few, list)
    assert [message.offset for message in few] == list(range(20)), "the other 480 are not sent with them"
    cached = received(broker, queue, 100)
    assert isinstance(cached, list)
    assert [message.offset for message in cached] == list(range(20, 120))
    many = received(broker, queue, 300)
    assert [message.offset for message in decoded(many)] == list(range(120, 420))


def test_what_is_not_in_the_page_cache_is_read_by_a_worker(
    broker: QueueBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = broker.create()
    append(broker, queue, 100)
    partition, ranges = broker.services.partitions.get(queue, 0), [LeaseRange(0, 99, 1, 0, 0)]
    assert batches_of(partition, ranges) is not None
    monkeypatch.setattr(Slice, "read_cached", lambda _: None)
    assert batches_of(partition, ranges) is None
    assert [message.offset for message in broker.receive(queue, 100, wait_ms=20_000)] == list(range(100))


def test_neighbours_that_are_received_again_are_read_together(
    broker: QueueBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a range of its own, with its own attempt."""
    queue, reads, right = broker.create(), [], Slice.read_cached
    for _ in range(60):
        append(broker, queue, 1)

    def watched(cut: Slice) -> object:
        reads.append(cut.length)
        return right(cut)

    monkeypatch.setattr(Slice, "read_cached", watched)
    partition = broker.services.partitions.get(queue, 0)
    assert batches_of(partition, [LeaseRange(at, at, 2, 0, 0) for at in reversed(range(60))]) is not None
    assert len(reads) == 1


def test_ranges_in_the_order_of_their_priority(broker: QueueBroker) -> None:
    queue = broker.create()
    append(broker, queue, 80)
    append(broker, queue, 80, (queued.PRIORITY, b"9"))
    found = received(broker, queue)
    assert [message.offset for message in decoded(found)] == [*range(80, 160), *range(80)]
    assert acknowledged(broker, queue, found) == []


def test_a_fifo_queue_and_few_messages_have_no_ranges(broker: QueueBroker) -> None:
    fifo, few = broker.create(type="fifo"), broker.create()
    append(broker, fifo, 50)
    append(broker, few, 3)
    assert len(received(broker, fifo)) == 50  # type: ignore[arg-type]
    assert [message.body for message in received(broker, few)] == [b"0", b"1", b"2"]  # type: ignore[union-attr]


def test_ranges_of_another_topic_are_refused(broker: QueueBroker) -> None:
    queue = broker.create()
    append(broker, queue, 50)
    received(broker, queue)

    async def run() -> RangeFailures:
        return await broker.queues.begin_acknowledge_ranges(queue, RangeAcks(str(UUID(int=1)), [(0, 49, 1)]))

    with pytest.raises(InvalidReceipt, match="another queue"):
        broker.run(run())
    assert broker.run(broker.queues.counts(queue)).in_flight == 50


def test_records_that_cannot_be_decoded_are_told_by_their_receipts(broker: QueueBroker) -> None:
    queue = broker.create()
    append(broker, queue, 50)
    found = received(broker, queue)
    assert isinstance(found, AllReceived)
    damaged = bytearray(found.batches)
    damaged[-1] = 0x7F  # The number of headers of the last record.
    messages, unreadable = messages_of(AllReceived([], found.ranges, bytes(damaged), found.topic_id))
    assert [message.offset for message in messages] == list(range(49))
    assert broker.run(broker.queues.acknowledge(queue, unreadable)) == [None]
