"""Encoding of messages as records (see `model.queued`), and decoding. Pure.

A record of any Kafka client is a message. An invalid `hr.*` header (a priority of 17, a time that is no number) is
ignored, so that the message is received all the same.
"""

import json
from datetime import UTC, datetime
from hashlib import blake2b, sha256
from typing import NamedTuple
from uuid import UUID

from headrace.config.queue import QueueSettings
from headrace.model import queued
from headrace.model.errors import InvalidMessage
from headrace.model.failure_headers import failure_headers, read_reason, without_failure
from headrace.model.queue_wire import Headers, OutgoingMessage, Peeked, Received
from headrace.model.queued import HIGHEST_PRIORITY, LOWEST_PRIORITY, NORMAL_PRIORITY, MessageIds
from headrace.queues.engine.moved_pages import PageSlot
from headrace.records.reader import Record

_MAX_TIME_MS = 1 << 53
_MAX_ID_LENGTH = 128
_MAX_HEADERS = 100


class DecodedMessage(NamedTuple):
    """A message as its record has it."""

    offset: int
    sent_at_ms: int
    body: bytes
    id: str
    priority: int
    due_at_ms: int | None
    expires_at_ms: int | None
    key: bytes | None
    group: bytes | None
    dedupe: str | None
    origin: str | None
    headers: Headers
    """All headers without a field here."""

    @property
    def size_bytes(self) -> int:
        """Roughly, the memory that it takes."""
        size_bytes = 500 + len(self.body)
        for name, value in self.headers:
            size_bytes += 100 + len(name) + len(value or b"")
        return size_bytes

    @property
    def group_text(self) -> str | None:
        return None if self.group is None else self.group.decode("utf-8", "replace")


# -- sending


def check_message(message: OutgoingMessage, settings: QueueSettings, now_ms: int) -> None:
    """`InvalidMessage` if a queue does not accept the message."""
    size_bytes = len(message.body)
    for name, value in message.headers:
        if not name.startswith(queued.SYSTEM_ATTRIBUTE_PREFIX):
            size_bytes += _counted_bytes(name, value or b"")
    if size_bytes > settings.max_message_bytes:
        raise InvalidMessage(
            f"a message of {size_bytes} bytes is larger than queue.max.message.bytes, {settings.max_message_bytes}"
        )
    if not LOWEST_PRIORITY <= message.priority <= HIGHEST_PRIORITY:
        raise InvalidMessage(f"the priority {message.priority} is not one of {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}")
    if not 0 < len(message.id) <= _MAX_ID_LENGTH:
        raise InvalidMessage(f"a message's id has 1 to {_MAX_ID_LENGTH} characters")
    if len(message.headers) > _MAX_HEADERS:
        raise InvalidMessage(f"a message has at most {_MAX_HEADERS} headers, this one has {len(message.headers)}")
    if message.group is not None and not 0 < len(message.group) <= _MAX_ID_LENGTH:
        raise InvalidMessage(f"a message's group has 1 to {_MAX_ID_LENGTH} characters")
    if message.dedupe is not None and not 0 < len(message.dedupe) <= _MAX_ID_LENGTH:
        raise InvalidMessage(f"a message's dedupe has 1 to {_MAX_ID_LENGTH} characters")
    if message.ttl_ms is not None or message.due_at_ms is not None or message.delay_ms is not None:
        for time_ms in (message.ttl_ms, message.due_at_ms, message.delay_ms):
            if time_ms is not None and not 0 <= time_ms < _MAX_TIME_MS:
                raise InvalidMessage(f"{time_ms} ms is out of the range of times")


def _counted_bytes(name: str, value: bytes) -> int:
    """The bytes that a header adds to the size of a message: for an SQS attribute its name, type and value, as with
    AWS. A system attribute adds nothing."""
    size_bytes = len(name.encode()) + len(value)
    if name.startswith(queued.ATTRIBUTE_PREFIX):
        size_bytes -= len(queued.ATTRIBUTE_PREFIX) + 1
    return size_bytes


def record_of(message: OutgoingMessage, settings: QueueSettings, now_ms: int) -> Record:
    """The record of a message that is sent."""
    headers: list[tuple[str, bytes | None]] = [(queued.ID, message.id.encode())]
    if message.priority != NORMAL_PRIORITY:
        headers.append((queued.PRIORITY, b"%d" % message.priority))
    due_at_ms = message.due_at_ms
    if due_at_ms is None and message.delay_ms is not None and (message.delay_ms or settings.delay_ms):
        due_at_ms = now_ms + message.delay_ms
    if due_at_ms is not None:
        headers.append((queued.DUE, b"%d" % due_at_ms))
    if message.ttl_ms is not None:
        headers.append((queued.EXPIRES, b"%d" % (now_ms + message.ttl_ms)))
    key: bytes | None = None
    if message.group is not None:
        if settings.is_fifo:
            key = message.group.encode()
        else:
            headers.append((queued.GROUP, message.group.encode()))
    if message.dedupe is not None:
        headers.append((queued.DEDUPE, message.dedupe.encode()))
    headers.extend(message.headers)
    return Record(0, now_ms, key, message.body, tuple(headers))


# -- reading


def plain_message(
    offset: int, sent_at_ms: int, key: bytes | None, body: bytes | None, ids: MessageIds
) -> DecodedMessage:
    """Decode a record without headers, in a standard queue."""
    return DecodedMessage._make(
        (offset, sent_at_ms, body or b"", ids.at(offset), NORMAL_PRIORITY, None, None, key, None, None, None, ())
    )


def message_of(record: Record, ids: MessageIds, *, is_fifo: bool, offset: int | None = None) -> DecodedMessage:
    """Decode a record; `offset` is its place in the log, if the record does not have it."""
    at, sent_at_ms, key, body, headers = record
    if offset is None:
        offset = at
    group = key if is_fifo else None
    if len(headers) == 2 and headers[0][0] == queued.ID and headers[0][1] and headers[1][0] not in queued.OWN_HEADERS:
        # Most messages have an id and a sender.
        text_id = headers[0][1].decode("utf-8", "replace")
        return DecodedMessage._make(
            (offset, sent_at_ms, body or b"", text_id, NORMAL_PRIORITY, None, None, key, group, None, None, headers[1:])
        )
    found: dict[str, bytes] = {}
    others: list[tuple[str, bytes | None]] = []
    for header in headers:
        name, value = header
        if name in queued.OWN_HEADERS and value is not None:
            found[name] = value
        else:
            others.append(header)
    own_id = found.pop(queued.ID, None)
    text_id = own_id.decode("utf-8", "replace") if own_id else ids.at(offset)
    if not found:
        return DecodedMessage._make(
            (offset, sent_at_ms, body or b"", text_id, NORMAL_PRIORITY, None, None, key, group, None, None)
            + (tuple(others),)
        )
    return DecodedMessage(
        offset=offset,
        sent_at_ms=sent_at_ms,
        body=body or b"",
        id=text_id,
        priority=queued.read_priority(found.get(queued.PRIORITY)),
        due_at_ms=_time(found.get(queued.DUE)),
        expires_at_ms=_time(found.get(queued.EXPIRES)),
        key=key,
        group=found.get(queued.GROUP, group),
        dedupe=_text(found.get(queued.DEDUPE)),
        origin=_text(found.get(queued.ORIGIN)),
        headers=tuple(others),
    )


def dedupe_key(message: DecodedMessage, settings: QueueSettings) -> bytes | None:
    """The de-duplication key of a message in a fifo queue; None for a message from another queue."""
    if not settings.is_fifo or message.origin is not None:
        return None
    if message.dedupe is not None:
        return b"id:" + message.dedupe.encode()
    return b"body:" + sha256(message.body).digest() if settings.dedupe_by_content else None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _time(value: bytes | None) -> int | None:
    if value is None or not value.isdigit() or len(value) > 16:
        return None
    return min(int(value), _MAX_TIME_MS)


# -- moving


class Origin(NamedTuple):
    """The queue and the page that a message comes from."""

    queue: str
    topic_id: UUID
    stream: str
    """Pages are numbered within a stream."""
    page: int
    at: int
    """Its place in the page."""


def place_of(message: DecodedMessage) -> PageSlot | None:
    """The page of a message that came from another queue."""
    if message.origin is None:
        return None
    origin = queued.read_origin(message.origin)
    match origin.get("page"):
        case [str(stream), int(page), int(at)]:
            return PageSlot(stream_number(str(origin.get("topic_id")), stream), page, at)
    return None


def stream_number(topic_id: str, stream: str) -> int:
    """The number of a stream of pages from the topic with this id, in hexadecimal."""
    return int.from_bytes(blake2b(f"{topic_id}:{stream}".encode(), digest_size=8).digest())


def periodic_record(queue: str, topic_id: UUID, due_ms: int, expires_ms: int | None, now_ms: int) -> Record:
    """The record of a queue's own schedule for a due time: a page of its own, so that of two copies one counts."""
    due = datetime.fromtimestamp(due_ms / 1000, UTC).isoformat(timespec="milliseconds")
    origin = {"topic_id": topic_id.hex, "page": [queued.SCHEDULE, due_ms, 0]}
    headers: list[tuple[str, bytes | None]] = [
        (queued.ORIGIN, json.dumps(origin, separators=(",", ":")).encode()),
        (queued.DUE_TIME, b"%d" % due_ms),
        ("content-type", b"application/json"),
    ]
    if expires_ms is not None:
        headers.append((queued.EXPIRES, b"%d" % expires_ms))
    body = json.dumps({"schedule": queue, "due": due}).encode()
    return Record(0, now_ms, queued.SCHEDULE.encode(), body, tuple(headers))


def moved_record(
    message: DecodedMessage, origin: Origin, *, reason: str, attempts: int, now_ms: int, keeps_send_time: bool
) -> Record:
    """The record of a message that is moved to another queue.

    It is available there at once, and its attempts count from 0; `hr.attempt` has how often it was received here, and
    of a dead letter in all queues so far. A dead letter keeps its send time; its retention counts from now
    on, since it is due now. It has the headers of `model.failure_headers`, and no other moved message has.
    """
    receives, copied = attempts, without_failure(message.headers)
    if origin.stream == queued.DEAD_LETTERS:
        receives += queued.receives_before(message.headers, queued.read_origin(message.origin))
        reason, failure = read_reason(reason)
        copied += [(name, value.encode()) for name, value in failure_headers(reason, failure, attempts)]
    origin_fields = {
        "queue": origin.queue,
        "topic_id": origin.topic_id.hex,
        "offset": message.offset,
        "reason": reason,
        "attempts": attempts,
        "moved_at_ms": now_ms,
        "page": [origin.stream, origin.page, origin.at],
    }
    headers: list[tuple[str, bytes | None]] = [
        (queued.ID, message.id.encode()),
        (queued.DUE, b"%d" % now_ms),
        (queued.ATTEMPT, b"%d" % receives),
        (queued.ORIGIN, json.dumps(origin_fields, separators=(",", ":")).encode()),
    ]
    if message.priority != NORMAL_PRIORITY:
        headers.append((queued.PRIORITY, b"%d" % message.priority))
    if message.group is not None:
        headers.append((queued.GROUP, message.group))
    if message.dedupe is not None:
        headers.append((queued.DEDUPE, message.dedupe.encode()))
    headers.extend(header for header in copied if header[0] != queued.ATTEMPT)
    return Record(0, message.sent_at_ms if keeps_send_time else now_ms, message.key, message.body, tuple(headers))


# -- answers


def received(
    message: DecodedMessage, receipt: str, *, attempt: int, first_received_at_ms: int, deadline_at_ms: int
) -> Received:
    return Received(
        message.id,
        receipt,
        message.body,
        message.offset,
        message.sent_at_ms,
        attempt,
        first_received_at_ms,
        deadline_at_ms,
        message.priority,
        message.group_text,
        message.dedupe,
        message.origin,
        message.headers,
    )


def peeked(message: DecodedMessage, *, attempt: int, state: str, until_at_ms: int | None) -> Peeked:
    return Peeked(
        message.id,
        message.body,
        message.offset,
        message.sent_at_ms,
        attempt,
        state,
        until_at_ms,
        message.priority,
        message.group_text,
        message.origin,
        message.headers,
    )
