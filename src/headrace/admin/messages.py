"""Messages of a topic: browsed with filters, and produced one at a time.

Values are shown up to `max_value_bytes` each, with their full size. What is shown is JSON: a page renders it as text.
"""

import asyncio
import random
import re
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError, check_kafka
from headrace.admin.kafka_requests import EARLIEST, LATEST, ask, leader_of, list_offsets, patiently, topic_image
from headrace.admin.message_filter import MessageFilter, message_filter
from headrace.admin.message_scan import Found, Scan, ScanBounds, in_time_order
from headrace.admin.payloads import PayloadDecoder, show
from headrace.admin.routes import READ_TOPIC, WRITE_TOPIC, AdminReply, AdminRequest, route
from headrace.model.murmur import partition_of
from headrace.protocol.codec import make
from headrace.protocol.units import from_ms
from headrace.records.builder import build_batch
from headrace.records.reader import Record

MAX_LIMIT = 500
MAX_VALUE_BYTES = 1024 * 1024
MAX_MESSAGE_BODY_BYTES = 4 * 1024 * 1024
_DEFAULT_VALUE_BYTES = 64 * 1024
_MAX_PARTITIONS = 1_000
_PRODUCE = 0
_ACKS_ALL = -1
_TIMEOUT_MS = 30_000
_MAX_HEADERS = 256

_Text = Annotated[str, Meta(max_length=1024)]


class MessageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages are wanted."""

    start: Annotated[
        str, Meta(max_length=64, description="earliest, latest (newest first), offset:N, or time:ISO 8601.")
    ] = msgspec.field(name="from", default="latest")
    partition: Annotated[int, Meta(ge=0)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 50
    key_contains: _Text = ""
    value_contains: _Text = ""
    header: Annotated[str, Meta(max_length=1024, description="NAME, or NAME:VALUE.")] = ""
    json_path: Annotated[str, Meta(max_length=1024, description="As $.order.items[0].sku.")] = ""
    json_equals: _Text | None = None
    cursor: Annotated[str, Meta(max_length=65536, description="The `next` of the answer before.")] = ""
    max_value_bytes: Annotated[int, Meta(ge=1, le=MAX_VALUE_BYTES)] = _DEFAULT_VALUE_BYTES

    def filter(self) -> MessageFilter:
        return message_filter(
            key_contains=self.key_contains,
            value_contains=self.value_contains,
            header=self.header,
            json_path=self.json_path,
            json_equals=self.json_equals,
        )

    @property
    def has_filter(self) -> bool:
        return bool(self.key_contains or self.value_contains or self.header or self.json_path)


class MessageEntry(msgspec.Struct, frozen=True):
    """A message as it is shown."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    key_encoding: str | None
    value: str | None
    value_encoding: str | None
    """json (indented), text, base64, or decoded by its schema to indented JSON: avro, json-schema or protobuf; null for
    a tombstone."""
    headers: list[tuple[str, str | None]]
    size_bytes: int
    """The size of key and value."""
    truncated: bool
    schema_id: int | None = None
    """In the wire format of schema registries: the id of the value's schema."""
    key_schema_id: int | None = None
    subject: str | None = None
    """The subject of the schema that the value was decoded by."""
    version: int | None = None


class MessagePage(msgspec.Struct, frozen=True):
    items: list[MessageEntry]
    next: str | None
    """The cursor to continue with; null at the end."""
    scanned: int
    """How many records were looked at."""
    is_complete: bool
    """False if the scan has stopped at one of its bounds: continue with the cursor."""


class MessageCursor(msgspec.Struct, frozen=True, array_like=True):
    direction: Literal["f", "b"]
    positions: dict[str, int]


async def entries(request: AdminRequest, topic: str, found: Sequence[Found], most_bytes: int) -> list[MessageEntry]:
    """Messages as they are shown, decoded by schemas that the person may see."""
    payloads = (
        (data, record.headers, is_key) for _, record in found for data, is_key in _payloads(record) if data is not None
    )
    decoder = await request.services.decoders.decoder(request.subject, topic, payloads)
    if not decoder.knows_any:
        return [_entry(index, record, most_bytes, decoder) for index, record in found]
    return await asyncio.to_thread(lambda: [_entry(index, record, most_bytes, decoder) for index, record in found])


def _payloads(record: Record) -> tuple[tuple[bytes | None, bool], ...]:
    return (record.value, False), (record.key, True)


def _entry(partition: int, record: Record, most_bytes: int, decoder: PayloadDecoder) -> MessageEntry:
    key = show(record.key, most_bytes, decoder, record.headers, is_key=True)
    value = show(record.value, most_bytes, decoder, record.headers)
    headers = [(name, show(data, most_bytes).text) for name, data in record.headers[:_MAX_HEADERS]]
    return MessageEntry(
        partition=partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=key.text,
        key_encoding=key.encoding,
        value=value.text,
        value_encoding=value.encoding,
        headers=headers,
        size_bytes=len(record.key or b"") + len(record.value or b""),
        truncated=key.is_truncated or value.is_truncated,
        schema_id=value.schema_id,
        key_schema_id=key.schema_id,
        subject=value.subject,
        version=value.version,
    )


@route("GET", "/topics/{topic}/messages", needs=READ_TOPIC, query=MessageQuery, answer=MessagePage)
async def browse_messages(request: AdminRequest) -> AdminReply:
    """Messages of a topic, filtered: the newest, from an offset or time on, or onwards from a cursor."""
    query, topic = request.query(MessageQuery), request.parameters["topic"]
    wanted = query.filter()
    async with request.services.scanning:
        cursor = decode_cursor(query.cursor) if query.cursor else None
        bounds = await partition_bounds(request, topic, query.partition)
        is_backward = query.start == "latest" if cursor is None else cursor.direction == "b"
        if cursor is not None:
            positions = {index: cursor.positions.get(str(index), bounds[index].start) for index in bounds}
        elif is_backward:
            positions = {index: each.end for index, each in bounds.items()}
        else:
            positions = await start_positions(request, topic, query.start, bounds)
        positions = {index: min(max(at, bounds[index].start), bounds[index].end) for index, at in positions.items()}
        scan = Scan(request, topic, bounds, positions, wanted.matches, query.has_filter)
        found = await (scan.backward(query.limit) if is_backward else scan.forward(query.limit))
    return AdminReply(await _page(request, query, scan, found, is_backward=is_backward))


async def _page(
    request: AdminRequest, query: MessageQuery, scan: Scan, found: Sequence[Found], *, is_backward: bool
) -> MessagePage:
    ordered = in_time_order(found, newest_first=is_backward)
    items = await entries(request, request.parameters["topic"], ordered, query.max_value_bytes)
    edge = {index: each.start if is_backward else each.end for index, each in scan.bounds.items()}
    is_at_edge = scan.positions == edge
    cursor = None
    if not is_at_edge or not is_backward:
        # Forwards there is always more to come.
        cursor = encode_cursor("b" if is_backward else "f", scan.positions)
    return MessagePage(items, cursor, scan.scanned, is_at_edge or len(items) >= query.limit)


async def partition_bounds(request: AdminRequest, topic: str, partition: int | None) -> dict[int, ScanBounds]:
    """The first offset and the end of each partition, or of the one that is wanted."""
    count = len(topic_image(request, topic).partitions)
    if partition is not None and partition >= count:
        raise AdminError(404, "unknown_partition", f"{topic} has no partition {partition}, only {count}")
    indexes = range(count) if partition is None else (partition,)
    if len(indexes) > _MAX_PARTITIONS:
        raise AdminError(400, "invalid_request", f"{topic} has more than {_MAX_PARTITIONS} partitions: choose one")
    first = await list_offsets(request, {(topic, index): EARLIEST for index in indexes})
    last = await list_offsets(request, {(topic, index): LATEST for index in indexes})
    return {index: ScanBounds(first[topic, index].offset, last[topic, index].offset) for index in indexes}


async def start_positions(
    request: AdminRequest, topic: str, start: str, bounds: dict[int, ScanBounds]
) -> dict[int, int]:
    """Where a scan forwards begins."""
    if start == "earliest":
        return {index: each.start for index, each in bounds.items()}
    if start == "latest":
        return {index: each.end for index, each in bounds.items()}
    if (offset := re.fullmatch(r"offset:(\d{1,18})", start)) is not None:
        return {index: int(offset[1]) for index in bounds}
    time_ms = parse_time(start.removeprefix("time:")) if start.startswith("time:") else None
    if time_ms is None:
        raise AdminError(400, "invalid_request", "from is earliest, latest, offset:N or time:2026-11-17T20:00:00Z")
    found = await list_offsets(request, {(topic, index): time_ms for index in bounds})
    return {
        index: each.end if found[topic, index].offset < 0 else found[topic, index].offset
        for index, each in bounds.items()
    }


def parse_time(text: str) -> int | None:
    """Milliseconds since the epoch, of an ISO 8601 time (UTC unless it says otherwise) or of such a number."""
    if re.fullmatch(r"\d{1,15}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def encode_cursor(direction: Literal["f", "b"], positions: Mapping[int, int]) -> str:
    cursor = MessageCursor(direction, {str(index): at for index, at in positions.items()})
    return urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def decode_cursor(text: str) -> MessageCursor:
    try:
        return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=MessageCursor)
    except (msgspec.DecodeError, Base64Error, ValueError):
        raise AdminError(400, "invalid_request", "the cursor is not one of an earlier answer") from None


# -- producing


class MessageBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: str | None
    """Null for a tombstone."""
    key: str | None = None
    headers: Annotated[list[tuple[str, str | None]], Meta(max_length=_MAX_HEADERS)] = []
    partition: Annotated[int, Meta(ge=0)] | None = None
    """Without one the key decides, as in other clients."""
    key_encoding: Literal["text", "base64"] = "text"
    value_encoding: Literal["text", "json", "base64"] = "text"
    """json: must be JSON, and is written as it is given."""


class ProducedMessage(msgspec.Struct, frozen=True):
    partition: int
    offset: int
    timestamp_ms: int


@route(
    "POST",
    "/topics/{topic}/messages",
    needs=WRITE_TOPIC,
    body=MessageBody,
    answer=ProducedMessage,
    max_body_bytes=MAX_MESSAGE_BODY_BYTES,
    is_audited=False,
)
async def produce_message(request: AdminRequest) -> AdminReply:
    """Write one message; it is on all replicas in sync when the answer comes."""
    wanted, topic = request.read(MessageBody), request.parameters["topic"]
    count = len(topic_image(request, topic).partitions)
    key = payload(wanted.key, wanted.key_encoding, "key")
    value = payload(wanted.value, wanted.value_encoding, "value")
    partition = wanted.partition
    if partition is None:
        partition = random.randrange(count) if key is None else partition_of(key, count)
    headers = tuple((name, None if text is None else text.encode()) for name, text in wanted.headers)
    now_ms = request.services.clock.wall_ms()
    batch = build_batch([Record(0, now_ms, key, value, headers)])
    offset = await _produce(request, topic, partition, batch)
    return AdminReply(ProducedMessage(partition, offset, now_ms), 201)


async def _produce(request: AdminRequest, topic: str, partition: int, batch: bytes) -> int:
    def build(schema: ModuleType) -> Any:
        part: Any = make(schema.PartitionProduceData, index=partition, records=batch)
        data: Any = make(schema.TopicProduceData, name=topic, partition_data=(part,))
        return make(schema.ProduceRequest, acks=_ACKS_ALL, timeout=from_ms(_TIMEOUT_MS), topic_data=(data,))

    async def attempt() -> int:
        leader = leader_of(request, topic, partition)
        answer = await ask(request, _PRODUCE, 9, build, broker_id=leader)
        (part,) = answer.responses[0].partition_responses
        check_kafka(part.error_code, part.error_message)
        return int(part.base_offset)

    return await patiently(attempt, is_repeatable=False)


def payload(text: str | None, encoding: str, what: str) -> bytes | None:
    """The bytes of a key or value as it is given. Raises `AdminError` if it is not in its encoding."""
    if text is None:
        return None
    if encoding == "base64":
        try:
            return b64decode(text, validate=True)
        except Base64Error:
            raise AdminError(400, "invalid_request", f"the {what} is not base64") from None
    if encoding == "json":
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            raise AdminError(400, "invalid_request", f"the {what} is not JSON") from None
    return text.encode()
