"""The work of `headrace consume`: find where to start and where the end is, then copy messages to stdout."""

import base64
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.cli.admin import Admin, cli_config, explain
from headrace.cli.errors import CommandFailed
from headrace.cli.json_text import JsonText
from headrace.cli.lines import LineMessage, render_json, render_text
from headrace.cli.output import count, say

if TYPE_CHECKING:
    from headrace.cli.payloads import LineDecoder

_AT_ONCE = 1_000
_POLL_S = 0.2
_FLUSH_EVERY_S = 0.2
_PASSING = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}
"""Errors after which librdkafka connects again by itself: a broker that restarts does not end `--follow`."""


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    from_beginning: bool
    offset: int | None
    """Counted from the end if negative."""
    from_time_ms: int | None
    partitions: list[int] | None
    maximum: int | None
    follow: bool
    as_json: bool
    keys: bool
    committed: bool
    decode: bool


def print_messages(bootstrap: str, topic: str, options: ConsumeOptions) -> None:
    broker = Admin(bootstrap)
    partitions = _partitions(broker, topic, options.partitions)
    start, end = _range(broker, topic, partitions, options)
    pending = {index for index in partitions if start[index] < end[index]}
    if not options.follow and not pending:
        if sys.stderr.isatty():
            say(f"{topic} has no messages there; without a starting point, or with --follow, this waits for new ones")
        return
    consumer = Consumer(
        cli_config(
            bootstrap,
            # Never joined: librdkafka wants the name even for a consumer that assigns itself its partitions.
            group_id="headrace-cli-consume",
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
            isolation_level="read_committed" if options.committed else "read_uncommitted",
            fetch_wait_max_ms=100,
        )
    )
    wanted = partitions if options.follow else sorted(pending)
    try:
        consumer.assign([TopicPartition(topic, index, start[index]) for index in wanted])
        if options.follow and sys.stderr.isatty():
            say(f"Waiting for messages in {topic}; Ctrl-C ends")
        show = _renderer(options, bootstrap)
        printed = _copy(consumer, bootstrap, options, end, pending, show)
    except KafkaException as error:
        raise CommandFailed(explain(error.args[0], bootstrap)) from None
    finally:
        consumer.close()
    if sys.stderr.isatty():
        say(count(printed, "message"))


def _partitions(broker: Admin, topic: str, wanted: list[int] | None) -> list[int]:
    there = broker.partitions(topic)
    for index in wanted or []:
        if index not in there:
            raise CommandFailed(f"{topic} has no partition {index}, only 0 to {there[-1]}")
    return sorted(set(wanted)) if wanted else there


def _range(
    broker: Admin, topic: str, partitions: list[int], options: ConsumeOptions
) -> tuple[dict[int, int], dict[int, int]]:
    """Where each partition starts and where its end is now."""
    end = broker.offsets(topic, partitions, OffsetSpec.latest())
    first = broker.offsets(topic, partitions, OffsetSpec.earliest())
    if options.from_beginning:
        start = first
    elif options.offset is not None and options.offset < 0:
        start = {index: max(first[index], end[index] + options.offset) for index in partitions}
    elif options.offset is not None:
        start = dict.fromkeys(partitions, options.offset)
        for index in partitions:
            if not first[index] <= options.offset <= end[index] and (options.partitions or len(partitions) == 1):
                raise CommandFailed(
                    f"{topic} partition {index} holds the offsets from {first[index]} up to {end[index]}, "
                    f"not {options.offset}"
                )
            start[index] = min(max(options.offset, first[index]), end[index])
    elif options.from_time_ms is not None:
        found = broker.offsets(topic, partitions, OffsetSpec.for_timestamp(options.from_time_ms))
        start = {index: end[index] if found[index] < 0 else found[index] for index in partitions}
    else:
        start = dict(end)
    return start, end


def _copy(
    consumer: Consumer,
    bootstrap: str,
    options: ConsumeOptions,
    end: dict[int, int],
    pending: set[int],
    show: Callable[[Any], bytes],
) -> int:
    """Print until the end, the maximum or Ctrl-C; the number of messages printed."""
    out = sys.stdout.buffer
    printed = 0
    flushed = time.monotonic()
    try:
        while options.follow or pending:
            at_once = _AT_ONCE if options.maximum is None else min(_AT_ONCE, options.maximum - printed)
            # One message is returned as soon as it is there; a full list is only worth waiting for when it is quick.
            for message in consumer.consume(at_once, _POLL_S if not options.follow else 0.05):
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        pending.discard(message.partition())
                    elif not (options.follow and error.code() in _PASSING):
                        raise CommandFailed(explain(error, bootstrap, reading=message.topic()))
                    continue
                index, offset = message.partition(), message.offset()
                if options.follow or offset < end[index]:
                    out.write(show(message))
                    printed += 1
                if offset + 1 >= end[index]:
                    pending.discard(index)
            if options.follow or time.monotonic() - flushed > _FLUSH_EVERY_S:
                out.flush()
                flushed = time.monotonic()
            if printed == options.maximum:
                break
        out.flush()
    except KeyboardInterrupt:
        out.flush()
    except BrokenPipeError:
        # The reader has enough (`headrace consume … | head`); what is left must not be written again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return printed


def _renderer(options: ConsumeOptions, bootstrap: str) -> Callable[[Any], bytes]:
    """What makes a line of a message."""
    separator = b"\t" if options.keys else None
    decoder = None
    if options.decode:
        from headrace.cli.payloads import LineDecoder  # few commands need it

        decoder = LineDecoder(bootstrap)

    def show(raw: Any) -> bytes:
        _, timestamp_ms = raw.timestamp()
        message = LineMessage(raw.value(), raw.key(), raw.headers() or (), raw.partition(), timestamp_ms)
        if decoder is not None:
            return _decoded(decoder, raw.offset(), message, options, separator)
        return render_json(raw.offset(), message) if options.as_json else render_text(message, separator)

    return show


def _decoded(
    decoder: "LineDecoder", offset: int, message: LineMessage, options: ConsumeOptions, separator: bytes | None
) -> bytes:
    shown = decoder.value(message.value, message.headers)
    key = decoder.key(message.key, message.headers)
    if options.as_json:
        more: dict[str, Any] = {"schema": str(shown.schema) if isinstance(shown.schema, UUID) else shown.schema}
        if shown.error is not None:
            more["error"] = shown.error
        elif shown.schema is not None and shown.data is not None:
            more["value"] = JsonText(shown.data.decode())
        return render_json(offset, replace(message, value=shown.data, key=key), **more)
    value = shown.data
    if shown.error is not None:
        bytes_ = base64.b64encode(value or b"").decode()
        value = json.dumps({"error": shown.error, "base64": bytes_}, ensure_ascii=False).encode()
    return render_text(replace(message, value=value, key=key), separator)
