"""Messages of a queue: peeked without receiving them, and sent one at a time."""

import asyncio
from hashlib import sha256
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError
from headrace.admin.messages import MAX_MESSAGE_BODY_BYTES, MAX_VALUE_BYTES, payload
from headrace.admin.payloads import PayloadDecoder, show
from headrace.admin.routes import AdminReply, AdminRequest, queue_need, route
from headrace.model.acls import AclOperation
from headrace.model.queue_wire import Filter, OutgoingMessage, Peeked
from headrace.model.queued import HIGHEST_PRIORITY, LOWEST_PRIORITY, NORMAL_PRIORITY, read_origin
from headrace.model.unique_ids import new_id
from headrace.queues.api import QueueInfo

MAX_PEEKED = 500
_AT_A_TIME = 100
"""How many a queue peeks in one call."""
_MAX_LOOKED_AT = 5_000
_DEFAULT_VALUE_BYTES = 64 * 1024
_MAX_HEADERS = 256
_YEAR_MS = 365 * 24 * 60 * 60 * 1000

PEEK_QUEUE = queue_need(AclOperation.READ, "ReceiveMessage")
SEND_TO_QUEUE = queue_need(AclOperation.WRITE, "SendMessage")


class PeekQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_PEEKED)] = 50
    after: Annotated[int, Meta(ge=-1, description="The `next` of the answer before.")] = -1
    state: Literal["", "available", "in_flight", "delayed", "dead"] = ""
    body_contains: Annotated[str, Meta(max_length=1024)] = ""
    reason_contains: Annotated[str, Meta(max_length=1024, description="Of a dead letter.")] = ""
    max_value_bytes: Annotated[int, Meta(ge=1, le=MAX_VALUE_BYTES)] = _DEFAULT_VALUE_BYTES


class MessageOrigin(msgspec.Struct, frozen=True):
    """Where a message that was moved comes from."""

    queue: str | None
    reason: str | None
    attempts: int | None
    """How often it had been received there."""


class QueueMessageEntry(msgspec.Struct, frozen=True):
    id: str
    offset: int
    body: str | None
    body_encoding: str | None
    size_bytes: int
    truncated: bool
    sent_ms: int
    attempts: int
    """How often it was received."""
    state: str
    """available, in_flight, delayed or dead (on its way to the dead-letter queue)."""
    until_ms: int | None
    """When a message in flight or delayed becomes visible."""
    priority: int
    group: str | None
    headers: list[tuple[str, str | None]]
    origin: MessageOrigin | None
    """Of a dead letter, and of one that was moved back."""


class PeekedMessages(msgspec.Struct, frozen=True):
    items: list[QueueMessageEntry]
    next: int | None
    """The `after` to continue with; null at the end."""


@route("GET", "/queues/{queue}/messages", needs=PEEK_QUEUE, query=PeekQuery, answer=PeekedMessages)
async def peek_messages(request: AdminRequest) -> AdminReply:
    """Messages of a queue in the order of sending; they stay as visible as they are."""
    query, name = request.query(PeekQuery), request.parameters["queue"]
    request.services.queues.find(name)
    found: list[Peeked] = []
    after, looked_at, is_at_end = query.after, 0, False
    while len(found) < query.limit and looked_at < _MAX_LOOKED_AT and not is_at_end:
        wanted = Filter(
            reason_contains=query.reason_contains, body_contains=query.body_contains.encode(), limit=_AT_A_TIME
        )
        part = await request.services.queues.peek(name, wanted, after)
        looked_at += _AT_A_TIME
        is_at_end = len(part) < _AT_A_TIME
        for each in part:
            after = each.offset
            if query.state in ("", _state(each)):
                found.append(each)
            if len(found) == query.limit:
                is_at_end = is_at_end and each is part[-1]
                break
    payloads = [(each.body, each.headers, False) for each in found]
    decoder = await request.services.decoders.decoder(request.subject, name, payloads)
    items = await asyncio.to_thread(lambda: [_entry(each, query.max_value_bytes, decoder) for each in found])
    return AdminReply(PeekedMessages(items, None if is_at_end else after))


def _state(message: Peeked) -> str:
    return message.state.replace(" ", "_")


def _entry(message: Peeked, most_bytes: int, decoder: PayloadDecoder) -> QueueMessageEntry:
    body = show(message.body, most_bytes, decoder, message.headers)
    return QueueMessageEntry(
        id=message.id,
        offset=message.offset,
        body=body.text,
        body_encoding=body.encoding,
        size_bytes=len(message.body),
        truncated=body.is_truncated,
        sent_ms=message.sent_at_ms,
        attempts=message.attempt,
        state=_state(message),
        until_ms=message.until_at_ms,
        priority=message.priority,
        group=message.group,
        headers=[(name, show(data, most_bytes).text) for name, data in message.headers[:_MAX_HEADERS]],
        origin=_origin(message),
    )


def _origin(message: Peeked) -> MessageOrigin | None:
    origin = read_origin(message.origin)
    if not origin:
        return None
    queue, reason, attempts = origin.get("queue"), origin.get("reason"), origin.get("attempts")
    return MessageOrigin(
        queue if isinstance(queue, str) else None,
        reason if isinstance(reason, str) else None,
        attempts if isinstance(attempts, int) else None,
    )


class NewQueueMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    body: str
    body_encoding: Literal["text", "json", "base64"] = "text"
    delay_ms: Annotated[int, Meta(ge=0, le=_YEAR_MS)] | None = None
    """Null: the queue's default."""
    group: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """The message group; a fifo queue needs one."""
    dedupe: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """The deduplication id in a fifo queue."""
    priority: Annotated[int, Meta(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] = NORMAL_PRIORITY
    headers: Annotated[list[tuple[str, str | None]], Meta(max_length=_MAX_HEADERS)] = []


class SentQueueMessage(msgspec.Struct, frozen=True):
    id: str
    """That of the first message, if this one is a duplicate."""
    offset: int


@route(
    "POST",
    "/queues/{queue}/messages",
    needs=SEND_TO_QUEUE,
    body=NewQueueMessage,
    answer=SentQueueMessage,
    max_body_bytes=MAX_MESSAGE_BODY_BYTES,
)
async def send_message(request: AdminRequest) -> AdminReply:
    """Send one message."""
    wanted, queues = request.read(NewQueueMessage), request.services.queues
    info = queues.find(request.parameters["queue"])
    (sent,) = await queues.send(info.name, [_outgoing(info, wanted)])
    return AdminReply(SentQueueMessage(sent.id, sent.offset), 201)


def _outgoing(info: QueueInfo, wanted: NewQueueMessage) -> OutgoingMessage:
    body, dedupe = payload(wanted.body, wanted.body_encoding, "body") or b"", wanted.dedupe
    if info.settings.is_fifo:
        if wanted.group is None:
            raise AdminError(400, "invalid_request", "a message to a fifo queue needs a group")
        if dedupe is None:
            dedupe = sha256(body).hexdigest() if info.settings.dedupe_by_content else new_id()
    elif dedupe is not None:
        raise AdminError(400, "invalid_request", "only fifo queues have deduplication ids")
    headers = tuple((name, None if text is None else text.encode()) for name, text in wanted.headers)
    return OutgoingMessage(
        body,
        new_id(),
        priority=wanted.priority,
        delay_ms=wanted.delay_ms,
        group=wanted.group,
        dedupe=dedupe,
        headers=headers,
    )
