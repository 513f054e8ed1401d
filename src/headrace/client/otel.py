"""Spans and metrics of messages, by OpenTelemetry's semantic conventions for messaging (1.44).

    send {destination}       PRODUCER   a message on its way; its context goes into the message
                             CLIENT     ... unless the message has a context already: then it is linked
    poll, receive {dest.}    CLIENT     messages that a caller asked for; linked with the context of each
    process {destination}    CONSUMER   a handler at work; linked with the context of the message, which is its parent

How messages carry a context is in `trace_context.py`.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException
from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from headrace.client.errors import DeliveryFailed, QueueFailed, Reject, Retry
from headrace.client.message import Header, Message
from headrace.client.outgoing import ProducerRecord
from headrace.client.queue.message import QueueMessageBody
from headrace.client.trace_context import context_headers, has_context, links_of
from headrace.model import queued
from headrace.model.queue_wire import Received
from headrace.version import version

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
TOPICS, QUEUES = "kafka", "headrace"
"""`messaging.system`: topics are Kafka's, as every other client of them says; queues have a protocol of their own."""
_MAX_KEY_CHARS = 256
_LOOK_EVERY_S = 1.0
"""Until a provider is set: asking for it takes as long as sending a message."""
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
Attributes = dict[str, Any]
Report = Callable[[Any, Any], None]
"""A delivery callback of librdkafka: of an error and a message."""


class MessagingTracer:
    """Makes the spans and counts the messages of one client."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self._tracer = trace.get_tracer("headrace", version(), schema_url=SCHEMA)
        meter = metrics.get_meter("headrace", version(), schema_url=SCHEMA)
        self._operation_s = meter.create_histogram(
            "messaging.client.operation.duration", "s", explicit_bucket_boundaries_advisory=_BUCKETS_S
        )
        self._process_s = meter.create_histogram(
            "messaging.process.duration", "s", explicit_bucket_boundaries_advisory=_BUCKETS_S
        )
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}")
        self._is_active = False
        self._look_again_s = 0.0
        self._common = {**_server(bootstrap), "messaging.client.id": client_id}
        self._metric_common = _server(bootstrap)

    @property
    def active(self) -> "MessagingTracer | None":
        """This tracer, once the program has set a provider; until then None, and nothing is made."""
        if self._is_active:
            return self
        now_s = time.monotonic()
        if now_s < self._look_again_s:
            return None
        self._look_again_s = now_s + _LOOK_EVERY_S
        self._is_active = is_provider_set()
        return self if self._is_active else None

    # -- sending

    def send(self, record: ProducerRecord, ids: queued.MessageIds | None = None) -> "SendSpan":
        """The span of a record on its way. `ids` names the messages of a queue; without it, it goes to a topic."""
        details: Attributes = {"messaging.message.body.size": len(record.value or b"")}
        if record.partition is not None and ids is None:
            details["messaging.destination.partition.id"] = str(record.partition)
        if ids is None:
            _add_record(details, record.key, record.value)
        if (message_id := _value(record.headers, "ce_id") or _value(record.headers, queued.ID)) is not None:
            details["messaging.message.id"] = message_id
        system = TOPICS if ids is None else QUEUES
        basic = self._basic(system, "send", "send", record.topic)
        span, headers = self._begin_send(basic | details, record.topic, [record.headers])
        return SendSpan(self, span, basic, record._replace(headers=[*record.headers, *headers]), ids)

    def send_batch(self, queue: str, records: Sequence[ProducerRecord]) -> "BatchSpan":
        """The span of messages of a queue that are sent together: one for all, whose context goes into all."""
        basic = self._basic(QUEUES, "send", "send", queue)
        details = {"messaging.batch.message_count": len(records)}
        span, added = self._begin_send(basic | details, queue, [each.headers for each in records])
        if added:
            records = [
                each if has_context(each.headers) else each._replace(headers=[*each.headers, *added])
                for each in records
            ]
        return BatchSpan(self, span, basic, records)

    def _begin_send(
        self, attributes: Attributes, destination: str, headers: Sequence[Sequence[Header]]
    ) -> tuple[Span, list[Header]]:
        """The span, and the headers with its context for messages that have none."""
        links = links_of(headers)
        is_creation = len(headers) > len(links)
        kind = SpanKind.PRODUCER if is_creation else SpanKind.CLIENT
        span = self._tracer.start_span(
            f"send {destination}", kind=kind, attributes={**self._common, **attributes}, links=links
        )
        return span, context_headers(span) if is_creation else []

    def sent(self, basic: Attributes, began_s: float, count: int, error: object) -> None:
        """Count messages that were sent, or were not."""
        attributes = {**self._metric_common, **basic}
        if error is not None:
            attributes["error.type"] = error_type(error)
        self._sent.add(count, attributes)
        self._operation_s.record(time.monotonic() - began_s, attributes)

    # -- receiving

    def received_records(self, messages: Sequence[Message], began_ns: int, group: str | None) -> None:
        """Messages of topics that a caller asked for have arrived."""
        topics = {each.topic for each in messages}
        basic = self._basic(TOPICS, "poll", "receive", messages[0].topic if len(topics) == 1 else None, group)
        if len({(each.topic, each.partition) for each in messages}) == 1:
            basic["messaging.destination.partition.id"] = str(messages[0].partition)
        self._received(basic, [each.headers for each in messages], began_ns)

    def received_from_queue(self, queue: str, messages: Sequence[QueueMessageBody[Received]], began_ns: int) -> None:
        """Messages of a queue that a caller asked for have arrived."""
        self._received(self._basic(QUEUES, "receive", "receive", queue), [each.headers for each in messages], began_ns)

    def _received(self, basic: Attributes, headers: list[tuple[Header, ...]], began_ns: int) -> None:
        destination = basic.get("messaging.destination.name")
        operation = basic["messaging.operation.name"]
        self._tracer.start_span(
            operation if destination is None else f"{operation} {destination}",
            kind=SpanKind.CLIENT,
            attributes={**self._common, **basic, "messaging.batch.message_count": len(headers)},
            links=links_of(headers),
            start_time=began_ns,
        ).end()
        attributes = {**self._metric_common, **basic}
        self._consumed.add(len(headers), attributes)
        self._operation_s.record(max(0, time.time_ns() - began_ns) / 1e9, attributes)

    # -- handling

    def process_record(self, message: Message, group: str | None = None, *, is_counted: bool = True) -> "ProcessSpan":
        """The span of a message of a topic while it is handled. One that was polled for is counted already."""
        basic = self._basic(TOPICS, "process", "process", message.topic, group)
        basic["messaging.destination.partition.id"] = str(message.partition)
        details: Attributes = {
            "messaging.kafka.offset": message.offset,
            "messaging.message.body.size": len(message.payload or b""),
        }
        _add_record(details, message.key, message.payload)
        if (event_id := message.header("ce_id")) is not None:
            details["messaging.message.id"] = event_id
        if message.failed_attempts:
            details["headrace.message.attempt"] = message.failed_attempts + 1
        return self._process(basic, details, message.headers, is_counted)

    def process_queued(
        self, message: QueueMessageBody[Received], queue: str, *, is_counted: bool = True
    ) -> "ProcessSpan":
        """The same for a message of a queue."""
        basic = self._basic(QUEUES, "process", "process", queue)
        details: Attributes = {
            "messaging.message.id": message.id,
            "messaging.message.body.size": len(message.body),
            "headrace.message.attempt": message.attempt,
        }
        return self._process(basic, details, message.headers, is_counted)

    def _process(
        self, basic: Attributes, details: Attributes, headers: Sequence[Header], is_counted: bool
    ) -> "ProcessSpan":
        links = links_of([headers])
        parent: Context | None = None
        if links and not trace.get_current_span().get_span_context().is_valid:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(links[0].context))
        span = self._tracer.start_span(
            f"process {basic['messaging.destination.name']}",
            parent,
            SpanKind.CONSUMER,
            {**self._common, **basic, **details},
            links,
        )
        return ProcessSpan(self, span, basic, is_counted=is_counted)

    def processed(self, basic: Attributes, took_s: float, error: object, *, is_counted: bool) -> None:
        """Count a message that was handled, or was not."""
        attributes = {**self._metric_common, **basic}
        if is_counted:
            self._consumed.add(1, attributes)
        if error is not None:
            attributes["error.type"] = error_type(error)
        self._process_s.record(took_s, attributes)

    @staticmethod
    def _basic(system: str, operation: str, kind: str, destination: str | None, group: str | None = None) -> Attributes:
        """The attributes that spans and metrics have."""
        basic = {
            "messaging.system": system,
            "messaging.operation.name": operation,
            "messaging.operation.type": kind,
        }
        if destination is not None:
            basic["messaging.destination.name"] = destination
        if group:
            basic["messaging.consumer.group.name"] = group
        return basic


class SendSpan:
    """A record on its way to the broker."""

    __slots__ = ("_basic", "_began_s", "_ids", "_span", "_tracer", "record")

    def __init__(
        self,
        tracer: MessagingTracer,
        span: Span,
        basic: Attributes,
        record: ProducerRecord,
        ids: queued.MessageIds | None,
    ) -> None:
        self._tracer = tracer
        self._span = span
        self._basic = basic
        self._ids = ids
        self._began_s = time.monotonic()
        self.record = record
        """The record with the context of the span."""

    def ending(self, report: Report) -> Report:
        """The delivery callback, which also ends the span."""

        def reported(error: Any, stored: Any) -> None:
            if error is None and self._span.is_recording():
                self._stored(stored)
            self.end(error)
            report(error, stored)

        return reported

    def _stored(self, stored: Any) -> None:
        if self._ids is None:
            self._span.set_attribute("messaging.destination.partition.id", str(stored.partition()))
            self._span.set_attribute("messaging.kafka.offset", stored.offset())
        elif _value(self.record.headers, queued.ID) is None:
            self._span.set_attribute("messaging.message.id", self._ids.at(stored.offset()))

    def end(self, error: object = None) -> None:
        _end(self._span, error)
        self._tracer.sent(self._basic, self._began_s, 1, error)


class BatchSpan:
    """Messages of a queue on their way to the broker, together: `with tracer.send_batch(…) as batch`."""

    __slots__ = ("_basic", "_began_s", "_span", "_tracer", "records")

    def __init__(
        self, tracer: MessagingTracer, span: Span, basic: Attributes, records: Sequence[ProducerRecord]
    ) -> None:
        self._tracer = tracer
        self._span = span
        self._basic = basic
        self._began_s = time.monotonic()
        self.records = records
        """The records with the context of the span."""

    def __enter__(self) -> "BatchSpan":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        _end(self._span, error)
        self._tracer.sent(self._basic, self._began_s, len(self.records), error)


class ProcessSpan:
    """A message while it is handled: `with tracer.process_record(…) as span`. It is the current span in the block."""

    __slots__ = ("_basic", "_began_s", "_error", "_is_counted", "_span", "_token", "_tracer")

    def __init__(self, tracer: MessagingTracer, span: Span, basic: Attributes, *, is_counted: bool) -> None:
        self._tracer = tracer
        self._span = span
        self._basic = basic
        self._is_counted = is_counted
        self._began_s = time.monotonic()
        self._error: BaseException | None = None
        self._token: Any = None

    def failed(self, error: BaseException) -> None:
        """The handler has raised this."""
        self._error = error

    def __enter__(self) -> "ProcessSpan":
        self._token = contexts.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        contexts.detach(self._token)
        failure = error or self._error
        if failure is not None and self._span.is_recording() and not isinstance(failure, Reject | Retry):
            self._span.record_exception(failure)
        _end(self._span, failure)
        took_s = time.monotonic() - self._began_s
        self._tracer.processed(self._basic, took_s, failure, is_counted=self._is_counted)


def error_type(error: object) -> str:
    """The class of an error, of which there are few: the name of Kafka's, the code of a queue's, or the exception's."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    if isinstance(error, DeliveryFailed | QueueFailed) and error.code:
        return error.code
    if isinstance(error, BaseException):
        kind = type(error)
        return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    name = getattr(error, "name", None)
    return str(name()) if callable(name) else "_OTHER"


def is_provider_set() -> bool:
    """Whether the program has set a provider: the API answers with one that passes on to it until then."""
    providers = (trace.get_tracer_provider(), metrics.get_meter_provider())
    return any("Proxy" not in type(each).__name__ for each in providers)


def _end(span: Span, error: object) -> None:
    if error is not None and span.is_recording():
        span.set_attribute("error.type", error_type(error))
        span.set_status(Status(StatusCode.ERROR, str(error)[:_MAX_KEY_CHARS]))
    span.end()


def _value(headers: Sequence[Header], wanted: str) -> str | None:
    for name, value in headers:
        if name == wanted and value is not None:
            return value.decode(errors="replace")
    return None


def _add_record(details: Attributes, key: bytes | None, value: bytes | None) -> None:
    if key is not None:
        # A key without a canonical text has no attribute.
        with suppress(UnicodeDecodeError):
            details["messaging.kafka.message.key"] = key.decode()[:_MAX_KEY_CHARS]
    if value is None:
        details["messaging.kafka.message.tombstone"] = True


def _server(bootstrap: str) -> Attributes:
    """The address of the broker; nothing where several are given, since any of them may answer."""
    host, _, port = bootstrap.rpartition(":")
    return {} if "," in bootstrap or not port.isdigit() else {"server.address": host, "server.port": int(port)}
