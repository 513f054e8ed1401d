"""Messages that are received as ranges, decoded by `range_decoder.py`.

Body and send time are decoded at once, everything else when it is read: most programs need neither a receipt nor the
headers of each message.
"""

from collections.abc import Sequence
from uuid import UUID

from headrace.client.message import Header
from headrace.model import queued
from headrace.model.queue_receipts import receipt_prefix, receipt_text
from headrace.model.queue_wire import LeasedRange


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
