"""The work of `headrace produce`: read lines, keep librdkafka's queue full, count acknowledgements."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.cli.admin import Admin, cli_config, explain
from headrace.cli.errors import CommandFailed
from headrace.cli.lines import Header, LineMessage, json_of_value, parse_json, parse_text
from headrace.cli.names import nearest
from headrace.cli.output import count, done_in, say
from headrace.cli.progress import ProgressLine
from headrace.client.kafka.librdkafka import refusal_hint, warm_up

if TYPE_CHECKING:
    from headrace.cli.payloads import LineEncoder

_DELIVERY_TIMEOUT_MS = 60_000
_SHOW_EVERY = 256
_MAX_REFUSED = 1_000

Delivered = Callable[[KafkaError | None, Any], None]


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    key_separator: bytes | None
    as_json: bool
    headers: list[Header]
    partition: int | None
    acks: str
    compression: str
    quiet: bool
    schema: str | None = None
    message: str | None = None


class _Tally:
    """Counts of acknowledged and failed messages."""

    def __init__(self) -> None:
        self.sent = 0
        self.sent_bytes = 0
        self.failed = 0
        self.first_error: KafkaError | None = None
        self.refused: list[tuple[int, Any]] = []
        """Lines and messages that are not valid, or in a batch with one that is not: the first `_MAX_REFUSED`."""

    def delivered(self, number: int, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.sent += 1
            self.sent_bytes += len(message)
        else:
            self.failed += 1
            self.first_error = self.first_error or error
            is_invalid = error.code() == KafkaError.INVALID_RECORD and message is not None
            if is_invalid and len(self.refused) < _MAX_REFUSED:
                self.refused.append((number, message))


def send_lines(bootstrap: str, topic: str, file: Path | None, options: ProduceOptions) -> None:
    # Asked first: a broker that is not there is said at once, not after a minute of retries.
    known = Admin(bootstrap).cluster().topics
    if topic not in known and (near := nearest(topic, known)) is not None:
        say(f"There is no topic {topic} yet, so it is made; did you mean {near}?")
    producer = Producer(
        cli_config(
            bootstrap,
            acks=options.acks,
            compression_type=options.compression,
            enable_idempotence=options.acks == "all",
            linger_ms=5,
            # Java's choice, so that a key is in the partition where other clients look for it.
            partitioner="murmur2_random",
            message_timeout_ms=_DELIVERY_TIMEOUT_MS,
            queue_buffering_max_messages=500_000,
            queue_buffering_max_kbytes=256 * 1024,
        )
    )
    if file is None and sys.stdin.isatty() and not options.quiet:
        say("Each line is a message; Ctrl-D ends")
    encoder = None
    if options.schema is not None:
        from headrace.cli.payloads import LineEncoder  # few commands need it

        encoder = LineEncoder(bootstrap, options.schema, options.message)
    tally = _Tally()
    started = time.monotonic()
    if options.acks == "all":
        warm_up(producer, topic)
    try:
        with (
            _lines(file) as lines,
            ProgressLine("sent", shown=not options.quiet and not sys.stdin.isatty()) as progress,
        ):
            try:
                for number, line in enumerate(lines, 1):
                    delivered = partial(tally.delivered, number)
                    _send(producer, topic, _parse(line, number, options, encoder), options, delivered)
                    producer.poll(0)
                    if number % _SHOW_EVERY == 0:
                        progress.update(tally.sent, tally.sent_bytes)
                    if tally.first_error is not None:
                        break
            finally:
                _drain(producer, tally, progress)
    except KafkaException as failure:
        # The producer cannot go on: a client that may write to no topic at all gets no producer id.
        raise CommandFailed(f"nothing more is delivered to {topic}: {explain(failure.args[0], bootstrap)}") from None
    seconds = time.monotonic() - started
    if not options.quiet:
        say(f"Sent {done_in('message', tally.sent, tally.sent_bytes, seconds)}")
    if tally.first_error is not None:
        error = tally.first_error
        if tally.refused:
            reason = _refusal(bootstrap, topic, tally.refused)
        else:
            reason = explain(error, bootstrap) + refusal_hint(error)
        raise CommandFailed(f"{count(tally.failed, 'message')} not delivered to {topic}: {reason}")


def _refusal(bootstrap: str, topic: str, refused: list[tuple[int, Any]]) -> str:
    from headrace.cli.produce.refusal import RefusedLine, refusal_reason  # it loads the libraries of schemas

    reason = refusal_reason(bootstrap, topic, [RefusedLine(*each) for each in sorted(refused, key=itemgetter(0))])
    if reason is None:
        reason = f"a message is not valid; `headrace topic describe {topic}` shows what the topic demands"
    return f"{reason} (INVALID_RECORD). Messages of the same batch are refused with it"


@contextmanager
def _lines(file: Path | None) -> Iterator[BinaryIO]:
    if file is None or str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror}") from None
    with stream:
        yield stream


def _parse(line: bytes, number: int, options: ProduceOptions, encoder: "LineEncoder | None") -> LineMessage:
    text = line[:-1] if line.endswith(b"\n") else line
    try:
        message = parse_json(text) if options.as_json else parse_text(text, options.key_separator)
        if encoder is None:
            return message
        value = json_of_value(text) if options.as_json else message.value
        return replace(message, value=encoder.encode(value))
    except CommandFailed as error:
        raise CommandFailed(f"line {number}: {error}") from None


def _send(producer: Producer, topic: str, message: LineMessage, options: ProduceOptions, delivered: Delivered) -> None:
    where: dict[str, int] = {}
    # A message's own partition wins over the command's: it is the more particular of the two.
    partition = message.partition if message.partition is not None else options.partition
    if partition is not None:
        where["partition"] = partition
    if message.timestamp_ms is not None:
        where["timestamp"] = message.timestamp_ms
    headers = [*message.headers, *options.headers]
    while True:
        try:
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                headers=headers or None,
                on_delivery=delivered,
                **where,
            )
            return
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            delivered(error.args[0], None)
            return


def _drain(producer: Producer, tally: _Tally, progress: ProgressLine) -> None:
    deadline = time.monotonic() + _DELIVERY_TIMEOUT_MS / 1000 + 5
    while producer.flush(0.2) and time.monotonic() < deadline:
        progress.update(tally.sent, tally.sent_bytes)
    progress.update(tally.sent, tally.sent_bytes)
