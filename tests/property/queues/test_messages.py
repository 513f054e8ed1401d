"""Messages as records: what is written is read again, and headers that make no sense do no harm."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.queue import QueueSettings
from headrace.model import queued
from headrace.model.errors import InvalidReceipt
from headrace.model.queue_wire import OutgoingMessage
from headrace.model.queued import MessageIds, read_origin
from headrace.queues.host.codec import Origin, dedupe_key, message_of, moved_record, place_of, record_of
from headrace.queues.host.receipts import Receipts
from headrace.records.reader import Record

TOPIC = UUID(int=99)
NOW_MS = 1_700_000_000_000


def settings(kind: str, **others: int) -> QueueSettings:
    return QueueSettings(type=kind, delay_ms=others.get("delay_ms", 0))


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
outgoing = st.builds(
    OutgoingMessage,
    body=st.binary(max_size=50),
    id=names,
    priority=st.integers(0, 9),
    delay_ms=st.none() | st.integers(0, 10_000),
    ttl_ms=st.none() | st.integers(0, 10_000),
    group=st.none() | names,
    dedupe=st.none() | names,
    headers=st.lists(st.tuples(names.map("x-".__add__), st.none() | st.binary(max_size=9)), max_size=3).map(tuple),
)


@given(outgoing, st.sampled_from(["standard", "fifo"]), st.sampled_from([0, 500]))
def test_what_is_sent_is_read(message: OutgoingMessage, kind: str, delay_ms: int) -> None:
    of_queue = settings(kind, delay_ms=delay_ms)
    got = message_of(
        record_of(message, of_queue, NOW_MS)._replace(offset=7), MessageIds(TOPIC), is_fifo=of_queue.is_fifo
    )
    assert (got.offset, got.sent_at_ms, got.body, got.id) == (7, NOW_MS, message.body, message.id)
    assert (got.priority, got.group_text, got.dedupe, got.headers) == (
        message.priority, message.group, message.dedupe, message.headers
    )  # fmt: skip
    due_ms = NOW_MS + of_queue.delay_ms if got.due_at_ms is None else got.due_at_ms
    assert due_ms == NOW_MS + (of_queue.delay_ms if message.delay_ms is None else message.delay_ms)
    assert got.expires_at_ms == (None if message.ttl_ms is None else NOW_MS + message.ttl_ms)


@given(st.lists(st.tuples(st.sampled_from(sorted(vars(queued).values(), key=str)).map(str), st.none() | st.binary())))
def test_any_headers_are_those_of_a_message(headers: list[tuple[str, bytes | None]]) -> None:
    got = message_of(Record(3, NOW_MS, b"\xff", None, tuple(headers)), MessageIds(TOPIC), is_fifo=True)
    assert 0 <= got.priority <= 9
    assert got.id
    dedupe_key(got, QueueSettings(type="fifo"))
    place_of(got)


@given(outgoing, st.sampled_from(["standard", "fifo"]))
def test_a_message_that_is_moved_stays_what_it_is(message: OutgoingMessage, kind: str) -> None:
    of_queue = settings(kind)
    before = message_of(
        record_of(message, of_queue, NOW_MS)._replace(offset=7), MessageIds(TOPIC), is_fifo=of_queue.is_fifo
    )
    record = moved_record(
        before, Origin("q", TOPIC, "move", 5, 2), reason="why", attempts=3, now_ms=NOW_MS + 5, keeps_send_time=False
    )
    after = message_of(record, MessageIds(UUID(int=1)), is_fifo=of_queue.is_fifo)
    assert (after.id, after.body, after.priority, after.group, after.dedupe) == (
        before.id, before.body, before.priority, before.group, before.dedupe
    )  # fmt: skip
    assert (after.due_at_ms, after.expires_at_ms, after.sent_at_ms) == (NOW_MS + 5, None, NOW_MS + 5)
    assert after.origin is not None
    origin = read_origin(after.origin)
    assert (origin["queue"], origin["offset"], origin["reason"], origin["attempts"]) == ("q", 7, "why", 3)
    assert dedupe_key(after, of_queue) is None
    place = place_of(after)
    assert place is not None
    assert (place.page, place.at) == (5, 2)
    # And once more: only the last place counts.
    again = moved_record(
        after, Origin("r", TOPIC, "dead", 1, 0), reason="", attempts=1, now_ms=NOW_MS, keeps_send_time=True
    )
    other = place_of(message_of(again, MessageIds(UUID(int=2)), is_fifo=of_queue.is_fifo))
    assert other is not None
    assert (other.page, other.at) == (1, 0)
    assert other.stream != place.stream
    assert [name for name, _ in again.headers].count(queued.ORIGIN) == 1
    assert [name for name, _ in again.headers].count(queued.ATTEMPT) == 1


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '"x"'])
def test_an_origin_that_is_none(text: str) -> None:
    assert read_origin(text) == {}


@pytest.mark.parametrize("page", ["null", "7", "[]", '["a", "b", 1]', '["move", 1]', "{}"])
def test_a_page_that_is_none(page: str) -> None:
    headers = ((queued.ORIGIN, f'{{"topic_id": "x", "page": {page}}}'.encode()),)
    assert place_of(message_of(Record(3, NOW_MS, None, b"", headers), MessageIds(TOPIC), is_fifo=False)) is None


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31))
def test_receipts(offset: int, attempt: int) -> None:
    receipt = Receipts(TOPIC).write(offset, attempt)
    assert Receipts(TOPIC).read(receipt) == (offset, attempt)
    with pytest.raises(InvalidReceipt, match="another queue"):
        Receipts(UUID(int=98)).read(receipt)


@given(st.text(max_size=60) | st.text("1 x", min_size=47, max_size=47))
def test_whatever_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(InvalidReceipt):
        Receipts(TOPIC).read(text)
