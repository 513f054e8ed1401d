"""Messages on their way out: from what a user writes to the bytes of a record. Pure.

A message with a `type` becomes a CloudEvent in the binary mode of the Kafka binding: its attributes are headers `ce_*`
and its payload stays as it is, so that consumers that know nothing of CloudEvents read it all the same.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, overload

import msgspec

from headrace.client.keywords import checks_keywords
from headrace.client.message import CE_CORRELATION_ID, CONTENT_TYPE, CORRELATION_ID, Header
from headrace.client.schemas.values import encode_hook

Payload = Any
"""`bytes` as they are, `str` as UTF-8, None as a tombstone; anything else becomes JSON."""

Key = Any
"""`bytes` as they are, `str` as UTF-8, None for none; any value with a `key_schema`."""

HeaderValue = str | bytes | None
Headers = Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]]


class PayloadEncoder(Protocol):
    """Encodes payloads by a schema: a `Serializer`."""

    def encode(self, value: Any, headers: list[Header] | None = None, *, is_key: bool = False) -> bytes | None:
        """The bytes of a payload or a key; what belongs into headers is added to them."""
        ...


@checks_keywords
@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that a handler returns to have it published.

    ```python
    from headrace import Outgoing


    @client.handler("orders", group="billing", delivery="exactly-once")
    def bill(order):
        return Outgoing("invoices", {"bill": order.json()["item"]}, key=order.key)
    ```

    It is published before the input is committed (at least once), or in the same transaction (exactly once). The
    arguments are those of `Client.publish`.
    """

    topic: str
    payload: Payload
    key: Key = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp: datetime | int | None = None
    type: str | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    id: str | None = None
    source: str | None = None
    subject: str | None = None
    schema: str | PayloadEncoder | None = None
    key_schema: str | PayloadEncoder | None = None


def collect(returned: object) -> list[Outgoing]:
    """What a handler returned, as messages to publish."""
    if returned is None:
        return []
    if isinstance(returned, Outgoing):
        return [returned]
    if inspect.iscoroutine(returned):
        returned.close()
        raise TypeError(
            "the handler returned a coroutine that is never awaited: register an `async def` function itself"
        )
    results: list[Outgoing] = []
    for each in returned if isinstance(returned, Iterable) else [returned]:
        if not isinstance(each, Outgoing):
            raise TypeError(f"a handler returns None, an Outgoing or several of them, not {type(each).__name__}")
        results.append(each)
    return results


class ProducerRecord(NamedTuple):
    """The bytes of a message, ready for the producer."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[Header]
    partition: int | None = None
    timestamp_ms: int | None = None


class RecordsOfBodies(Sequence[ProducerRecord]):
    """Records without a key or headers, of one partition, that differ only in their bodies: made when they are read."""

    __slots__ = ("bodies", "partition", "topic")

    def __init__(self, topic: str, bodies: Sequence[bytes], partition: int) -> None:
        self.topic = topic
        self.bodies = bodies
        self.partition = partition

    def __len__(self) -> int:
        return len(self.bodies)

    @overload
    def __getitem__(self, at: int) -> ProducerRecord: ...
    @overload
    def __getitem__(self, at: slice) -> "RecordsOfBodies": ...
    def __getitem__(self, at: int | slice) -> "ProducerRecord | RecordsOfBodies":
        if isinstance(at, slice):
            return RecordsOfBodies(self.topic, self.bodies[at], self.partition)
        return ProducerRecord(self.topic, self.bodies[at], None, (), self.partition)


def encode(outgoing: Outgoing, *, default_source: str, new_id: Callable[[], str], now: datetime) -> ProducerRecord:
    """The record for a message; `new_id` is asked if it is an event without an id. Raises `TypeError` for what JSON
    cannot express."""
    value, content_type = encode_payload(outgoing.payload)
    headers = pairs(outgoing.headers)
    present = {name for name, _ in headers}

    def add(name: str, text: str | None) -> None:
        # A header that the user wrote by hand stays the only one of its name.
        if text is not None and name not in present:
            headers.append((name, text.encode()))

    time = _time(outgoing.timestamp)
    add(CONTENT_TYPE, outgoing.content_type or content_type)
    if outgoing.type is None:
        add(CORRELATION_ID, outgoing.correlation_id)
        add("ce_id", outgoing.id)
    else:
        add("ce_specversion", "1.0")
        add("ce_id", outgoing.id or new_id())
        add("ce_source", outgoing.source or default_source)
        add("ce_type", outgoing.type)
        add("ce_time", (time or now).astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        add("ce_subject", outgoing.subject)
        add(CE_CORRELATION_ID, outgoing.correlation_id)
    timestamp_ms = None if time is None else round(time.timestamp() * 1000)
    return ProducerRecord(outgoing.topic, value, _key(outgoing.key), headers, outgoing.partition, timestamp_ms)


def _key(key: Key) -> bytes | None:
    if isinstance(key, str):
        return key.encode()
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, bytearray | memoryview):
        return bytes(key)
    raise TypeError(f"a key is str or bytes, not {type(key).__name__}: key_schema= encodes any value")


def encode_payload(payload: Payload) -> tuple[bytes | None, str | None]:
    """The bytes of a payload and their content type."""
    if payload is None:
        return None, None
    if type(payload) is bytes:
        return payload, None
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), None
    if isinstance(payload, str):
        return payload.encode(), "text/plain; charset=utf-8"
    return msgspec.json.encode(payload, enc_hook=encode_hook), "application/json"


def pairs(headers: Headers | None) -> list[Header]:
    if headers is None:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]


def _time(timestamp: datetime | int | None) -> datetime | None:
    if timestamp is None or isinstance(timestamp, datetime):
        return timestamp
    return datetime.fromtimestamp(timestamp / 1000, UTC)
