"""Messages that are received as ranges: the record batches of the log are decoded here, and not by the broker.

Body and send time are decoded at once, everything else when it is read: most programs need neither a receipt nor the
headers of each message.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from uuid import UUID

from headrace.client.message import Header
from headrace.model import queued
from headrace.model.errors import RecordError
from headrace.model.queue_receipts import receipt_prefix, receipt_text
from headrace.model.queue_wire import AllReceived, LeasedRange
from headrace.records.batch import iter_headers
from headrace.records.reader import decompressed, fields_in


class RangeLease:
    """What the messages of a range have in common."""

    __slots__ = ("attempt", "deadline_at_ms", "first_received_at_ms", "ids", "prefix", "topic_id")

    def __init__(self, topic_id: str, ids: queued.MessageIds, leased: LeasedRange) -> None:
        self.topic_id = topic_id
        self.ids = ids
        self.prefix = receipt_prefix(UUID(topic_id))
        self.attempt = leased.attempt
        self.first_received_at_ms = leased.first_received_at_ms
        self.deadline_at_ms = leased.deadline_at_ms


class RangeMessage:
    """A message of a range; it has the fields of `Received`."""

    __slots__ = ("all_headers", "body", "lease", "offset", "sent_at_ms")

    def __init__(
        self, lease: RangeLease, offset: int, sent_at_ms: int, body: bytes, all_headers: tuple[Header, ...]
    ) -> None:
        self.lease = lease
        self.offset = offset
        self.sent_at_ms = sent_at_ms
        self.body = body
        self.all_headers = all_headers

    @property
    def attempt(self) -> int:
        return self.lease.attempt

    @property
    def first_received_at_ms(self) -> int:
        return self.lease.first_received_at_ms

    @property
    def deadline_at_ms(self) -> int:
        return self.lease.deadline_at_ms

    @property
    def receipt(self) -> str:
        return receipt_text(self.lease.prefix, self.offset, self.lease.attempt)

    @property
    def id(self) -> str:
        return self._text(queued.ID) or self.lease.ids.at(self.offset)

    @property
    def priority(self) -> int:
        return queued.read_priority(self._own(queued.PRIORITY))

    @property
    def group(self) -> str | None:
        return self._text(queued.GROUP)

    @property
    def dedupe(self) -> str | None:
        return self._text(queued.DEDUPE)

    @property
    def origin(self) -> str | None:
        return self._text(queued.ORIGIN)

    @property
    def headers(self) -> tuple[Header, ...]:
        return tuple(each for each in self.all_headers if each[0] not in queued.OWN_HEADERS or each[1] is None)

    def _own(self, name: str) -> bytes | None:
        """The last header of this name that has a value."""
        for each, value in reversed(self.all_headers):
            if each == name and value is not None:
                return value
        return None

    def _text(self, name: str) -> str | None:
        value = self._own(name)
        return None if value is None else value.decode("utf-8", "replace")


def ranges_of(messages: Sequence[RangeMessage]) -> list[tuple[int, int, int]]:
    """First offset, last offset and attempt of neighbours in this order."""
    ranges: list[tuple[int, int, int]] = []
    first = last = attempt = -2
    for message in messages:
        offset = message.offset
        if offset != last + 1 or message.lease.attempt != attempt:
            if attempt >= 0:
                ranges.append((first, last, attempt))
            first, attempt = offset, message.lease.attempt
        last = offset
    return [*ranges, (first, last, attempt)] if attempt >= 0 else ranges


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
