"""Decodes messages that are received as ranges: record batches of the log, which the broker sends as they are.

It needs packages that the SDK has no other use for. Where they are not installed, messages are received one by one.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from uuid import UUID

from headrace.client.queue.ranges import RangeLease, RangeMessage
from headrace.model import queued
from headrace.model.errors import RecordError
from headrace.model.queue_receipts import receipt_text
from headrace.model.queue_wire import AllReceived
from headrace.records.batch import iter_headers
from headrace.records.reader import decompressed, fields_in


def messages_of(answer: AllReceived) -> tuple[list[RangeMessage], list[str]]:
    """The messages of all ranges, in their order; and the receipts of those that cannot be decoded."""
    ids = queued.MessageIds(UUID(answer.topic_id))
    leases = [RangeLease(answer.topic_id, ids, leased) for leased in answer.ranges]
    found: list[list[RangeMessage]] = [[] for _ in leases]
    by_offset = sorted(range(len(leases)), key=lambda at: answer.ranges[at].first)
    with suppress(StopIteration):
        _decode(answer, leases, found, iter(by_offset))
    messages = found[0] if len(found) == 1 else [each for part in found for each in part]
    if len(messages) == sum(leased.last - leased.first + 1 for leased in answer.ranges):
        return messages, []
    decoded = {message.offset for message in messages}
    return messages, [
        receipt_text(lease.prefix, offset, lease.attempt)
        for lease, leased in zip(leases, answer.ranges, strict=True)
        for offset in range(leased.first, leased.last + 1)
        if offset not in decoded
    ]


def _decode(
    answer: AllReceived, leases: Sequence[RangeLease], found: list[list[RangeMessage]], ranges: Iterator[int]
) -> None:
    """Add the messages to their ranges. `StopIteration` behind the last of `ranges`, which are by offset."""
    at = next(ranges)
    first, last = answer.ranges[at].first, answer.ranges[at].last
    lease, add = leases[at], found[at].append
    data = answer.batches
    for position, header in iter_headers(data):
        with suppress(RecordError):
            records = decompressed(data[position : position + header.size], header)
            for offset, sent_at_ms, _, value, headers in fields_in(records, header):
                while offset > last:
                    at = next(ranges)
                    first, last = answer.ranges[at].first, answer.ranges[at].last
                    lease, add = leases[at], found[at].append
                if offset >= first:
                    add(RangeMessage(lease, offset, sent_at_ms, value or b"", headers))
