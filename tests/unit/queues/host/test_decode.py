"""What the log says of messages: every offset is told of once, and only what a read_committed consumer gets is one."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from headrace.config.queue import QueueSettings
from headrace.model import queued
from headrace.queues.engine.chunk_index import LogMessage
from headrace.queues.host.decode import IndexStep, PlainRange, SkippedRange, read_messages
from headrace.records.builder import build_batch
from headrace.records.markers import Marker, build_marker
from headrace.records.reader import Record

TOPIC = UUID(int=77)
STANDARD = QueueSettings(type="standard")


def batch(first: int, *values: bytes, producer_id: int = -1, headers: tuple[tuple[str, bytes], ...] = ()) -> bytes:
    return build_batch(
        [Record(0, 1000, None, value, headers) for value in values],
        base_offset=first,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
    )


def marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
    made = bytearray(build_marker(producer_id, 0, Marker(committed, 0), 1000))
    made[:8] = offset.to_bytes(8, "big")
    return bytes(made)


def told(steps: Iterable[IndexStep]) -> list[int]:
    """Every offset that the steps speak of."""
    offsets: list[int] = []
    for step in steps:
        offsets += [step.offset] if isinstance(step, LogMessage) else range(step.first, step.last + 1)
    return offsets


LOG = (
    batch(0, b"a", b"b")
    + batch(2, b"x", producer_id=5)
    + batch(3, b"c", producer_id=6)
    + batch(4, b"p", headers=((queued.PRIORITY, b"8"),))
    + marker(5, 5, committed=False)
    + marker(6, 6, committed=True)
    + batch(9, b"d", b"e")
)
ABORTED = [(5, 2)]


@pytest.mark.parametrize("offset", range(11))
def test_from_any_offset_each_one_is_told_of_once(offset: int) -> None:
    piece = read_messages(LOG, offset, 11, ABORTED, TOPIC, STANDARD)
    assert told(piece.steps) == list(range(offset, 11))
    assert piece.next_offset == 11


def test_markers_aborted_records_and_gaps_are_no_messages() -> None:
    piece = read_messages(LOG, 0, 11, ABORTED, TOPIC, STANDARD)
    assert piece.steps == [
        PlainRange(0, 1, 1000),
        SkippedRange(2, 2),
        PlainRange(3, 3, 1000),
        LogMessage(4, 1000, 8),
        SkippedRange(5, 8),
        PlainRange(9, 10, 1000),
    ]
    assert [message.body for message in piece.messages] == [b"a", b"b", b"c", b"p", b"d", b"e"]


def test_nothing_from_the_last_stable_offset_on_is_read() -> None:
    assert read_messages(LOG, 0, 2, (), TOPIC, STANDARD).next_offset == 2


def test_a_fifo_queue_is_told_of_groups_and_ids() -> None:
    fifo = QueueSettings(type="fifo", dedupe_by_content=True)
    records = [
        Record(0, 1, b"key", b"1"),
        Record(0, 1, b"key", b"2", ((queued.GROUP, b"own"), (queued.DEDUPE, b"d"), (queued.ID, b"i"))),
    ]
    by_key, by_header = read_messages(build_batch(records), 0, 2, (), TOPIC, fifo).steps
    assert isinstance(by_key, LogMessage)
    assert isinstance(by_header, LogMessage)
    assert (by_key.group, by_header.group) == (b"key", b"own")
    assert (by_header.dedupe, by_header.id) == (b"id:d", "i")
    assert by_key.dedupe is not None
    assert by_key.dedupe.startswith(b"body:")


MANY = [b"%d" % number for number in range(100)]


def test_the_index_reads_no_records_of_a_large_plain_batch() -> None:
    log = batch(0, *MANY) + batch(100, b"a")
    piece = read_messages(log, 10, 200, (), TOPIC, STANDARD, is_for_index=True)
    assert piece.steps == [PlainRange(10, 100, 1000)]
    assert [message.body for message in piece.messages] == [b"a"], "only the small batch is decoded"
    whole = read_messages(log, 10, 200, (), TOPIC, STANDARD)
    assert whole.steps == piece.steps
    assert len(whole.messages) == 91


@pytest.mark.parametrize("name", [queued.PRIORITY, queued.DUE, queued.EXPIRES, queued.ORIGIN])
def test_a_large_batch_with_a_property_in_one_message_is_decoded(name: str) -> None:
    records = [Record(0, 1000, None, value, ((name, b"7"),) if value == b"50" else ()) for value in MANY]
    piece = read_messages(build_batch(records), 0, 100, (), TOPIC, STANDARD, is_for_index=True)
    assert piece.steps == read_messages(build_batch(records), 0, 100, (), TOPIC, STANDARD).steps
    assert [type(step) for step in piece.steps] in ([PlainRange, LogMessage, PlainRange], [PlainRange])


def test_a_batch_with_gaps_or_of_a_fifo_queue_is_decoded_for_the_index() -> None:
    fifo = QueueSettings(type="fifo")
    assert told(read_messages(batch(0, *MANY), 0, 100, (), TOPIC, fifo, is_for_index=True).steps) == list(range(100))
    log = bytearray(batch(0, *MANY))
    log[23:27] = (120).to_bytes(4, "big")  # The last offset of a batch that was compacted.
    piece = read_messages(bytes(log), 0, 121, (), TOPIC, STANDARD, is_for_index=True)
    assert piece.steps == [PlainRange(0, 99, 1000), SkippedRange(100, 120)]


def test_a_body_with_the_name_of_a_header_is_a_plain_message() -> None:
    piece = read_messages(batch(0, *MANY, b"hr.priority"), 0, 101, (), TOPIC, STANDARD, is_for_index=True)
    assert piece.steps == [PlainRange(0, 100, 1000)]
