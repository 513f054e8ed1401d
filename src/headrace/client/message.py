"""Messages as they come in. Header names follow the CloudEvents binding for Kafka (binary mode) where there is one."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol

from headrace.client.errors import ClientError, InvalidMessage, Unreachable
from headrace.model.failure_headers import ATTEMPTS

Header = tuple[str, bytes | None]
ProcessScopes = Callable[["Message"], AbstractContextManager[object]]
"""Makes what is entered with `with message:`, beside acknowledging it."""

UNREAD: Any = object()

CONTENT_TYPE = "content-type"
CORRELATION_ID = "correlation-id"
CE_CORRELATION_ID = "ce_correlationid"

# The headers of messages that the retry loop retries by topic or dead-letters, beside `model.failure_headers`.
GROUP = "headrace-group"
NOT_BEFORE = "headrace-not-before"
ORIGINAL_TOPIC = "headrace-original-topic"
ORIGINAL_PARTITION = "headrace-original-partition"
ORIGINAL_OFFSET = "headrace-original-offset"
ORIGINAL_TIMESTAMP = "headrace-original-timestamp"


class PayloadReader(Protocol):
    """Reads the values of messages as a type."""

    def read(self, data: bytes | None, headers: tuple[Header, ...]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a topic.

    ```python
    (order, *_) = client.replay("orders")
    print(order.topic, order.partition, order.offset, order.key, order.json()["item"])
    ```

    `payload` and `key` are the stored bytes. A payload of None is a tombstone; a key of None is no key.
    """

    topic: str
    partition: int
    offset: int
    payload: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    origin_cluster: str = ""
    """With `everywhere=True`, the id of the cluster whose topic this one mirrors or did before it was taken over; empty
    for a topic of this cluster, and always without `everywhere`."""
    _ack: "Callable[[Message], None] | None" = field(default=None, repr=False, compare=False)
    _process: "ProcessScopes | None" = field(default=None, repr=False, compare=False)
    _reader: "PayloadReader | None" = field(default=None, repr=False, compare=False)
    _scope: "AbstractContextManager[object] | None" = field(default=None, init=False, repr=False, compare=False)
    _value: Any = field(default=UNREAD, init=False, repr=False, compare=False)

    @property
    def value(self) -> Any:
        """The payload as a value of the `type` that the stream or handler was given; None for a tombstone. Raises
        `InvalidMessage` if it is not of that type."""
        if self._value is UNREAD:
            object.__setattr__(self, "_value", read_value(self._reader, self.payload, self.headers))
        if isinstance(self._value, Exception):
            raise self._value
        return self._value

    def read_ahead(self, unreachable: Unreachable | None = None) -> Unreachable | None:
        """Read the value, if a type was given, so that `value` need not wait. What fails is raised by `value`.

        Returns the error if the schema registry did not answer, so that the next message does not wait for it, too.
        """
        if self._reader is None:
            return None
        try:
            if unreachable is not None and self.payload is not None:
                raise unreachable
            _ = self.value
        except Exception as error:
            object.__setattr__(self, "_value", error)
            return error if isinstance(error, Unreachable) else None
        return None

    def header(self, name: str) -> str | None:
        """The last header of this name as text; None if there is none."""
        for each, value in reversed(self.headers):
            if each == name:
                return None if value is None else value.decode(errors="replace")
        return None

    @property
    def text(self) -> str:
        """The payload as UTF-8 text; a tombstone is empty."""
        return (self.payload or b"").decode()

    def json(self) -> Any:
        """The payload as JSON; a tombstone is None."""
        return None if self.payload is None else json.loads(self.payload)

    @property
    def id(self) -> str:
        """What identifies the message over redeliveries and retries: its `ce_id` with its source, or where it was
        first stored. A producer that sends the same thing twice is only recognised by a `ce_id` of its own."""
        event_id = self.header("ce_id")
        if event_id is not None:
            return f"{self.header('ce_source') or ''}#{event_id}"
        topic, partition, offset = self.origin
        return f"{topic}/{partition}/{offset}"

    @property
    def origin(self) -> tuple[str, int, int]:
        """Topic, partition and offset where the message was first stored, before retries or dead-lettering."""
        topic, partition, offset = map(self.header, (ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET))
        if topic is None or partition is None or offset is None or not (partition + offset).isdecimal():
            return self.topic, self.partition, self.offset
        return topic, int(partition), int(offset)

    @property
    def type(self) -> str | None:
        return self.header("ce_type")

    @property
    def source(self) -> str | None:
        return self.header("ce_source")

    @property
    def subject(self) -> str | None:
        return self.header("ce_subject")

    @property
    def content_type(self) -> str | None:
        return self.header(CONTENT_TYPE)

    @property
    def correlation_id(self) -> str | None:
        return self.header(CE_CORRELATION_ID) or self.header(CORRELATION_ID)

    @property
    def time(self) -> datetime | None:
        """When it happened or was sent: the record's timestamp."""
        return None if self.timestamp_ms is None else datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def failed_attempts(self) -> int:
        """How often handling failed before the message went to the retry or dead-letter topic; 0 for a new one."""
        return _number(self.header(ATTEMPTS))

    @property
    def not_before_ms(self) -> int:
        """The time before which a message of a retry topic is not retried; 0 for a new one."""
        return _number(self.header(NOT_BEFORE))

    def __enter__(self) -> "Message":
        """`with message:` acknowledges it when the block ends, and not when an exception ends it."""
        if self._process is not None:
            scope = self._process(self)
            object.__setattr__(self, "_scope", scope)
            scope.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self.ack()
        finally:
            if self._scope is not None:
                self._scope.__exit__(kind, error, trace)

    def ack(self) -> None:
        """Acknowledge the message (see `Client.consume`). Does nothing where messages are not acknowledged."""
        if self._ack is not None:
            self._ack(self)


def read_value(reader: PayloadReader | None, data: bytes | None, headers: tuple[Header, ...]) -> Any:
    """The value, or the error if there is none in these bytes: both stay as they are."""
    if reader is None:
        raise ClientError("a message has a value where a type is given, such as client.consume(…, type=dict)")
    try:
        return reader.read(data, headers)
    except InvalidMessage as error:
        return error


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
