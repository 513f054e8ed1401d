"""The work of `headrace audit`: reads the topic `__audit` as any consumer does."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.cli.admin import Admin, cli_config, explain
from headrace.cli.audit.filter import COLUMNS, AuditFilter, row
from headrace.cli.errors import CommandFailed
from headrace.cli.output import count as counted
from headrace.cli.output import say, table
from headrace.model.image import AUDIT_TOPIC

_LOOKED_AT = 1_000
"""How many of the last events of each partition `tail` looks at, at least, to find those that match."""
_AT_ONCE = 1_000
_POLL_S = 0.2
_PASSING = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}

Event = dict[str, Any]


def print_latest(bootstrap: str, wanted: AuditFilter, count: int, *, follow: bool, as_json: bool) -> None:
    topic = _AuditReader(bootstrap)
    first, end = topic.offsets(OffsetSpec.earliest()), topic.offsets(OffsetSpec.latest())
    start = {index: max(first[index], end[index] - max(count, _LOOKED_AT)) for index in end}
    found = _in_order(event for event in topic.read(start, end) if wanted.matches(event))
    _print(found[len(found) - count :] if count else [], as_json=as_json, is_stream=follow)
    if not follow:
        return
    try:
        for event in topic.follow(end):
            if wanted.matches(event):
                _print([event], as_json=as_json, is_stream=True)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # The reader has enough (`headrace audit tail -f | head`); what is left must not be written again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_period(bootstrap: str, wanted: AuditFilter, since_ms: int, until_ms: int | None, *, as_json: bool) -> None:
    topic = _AuditReader(bootstrap)
    end = topic.offsets(OffsetSpec.latest())
    found_at = topic.offsets(OffsetSpec.for_timestamp(since_ms))
    start = {index: end[index] if found_at[index] < 0 else found_at[index] for index in end}
    found = _in_order(
        event
        for event in topic.read(start, end)
        if wanted.matches(event) and since_ms <= event["_ms"] and (until_ms is None or event["_ms"] < until_ms)
    )
    _print(found, as_json=as_json, is_stream=False)
    if sys.stderr.isatty():
        say(counted(len(found), "event"))


class _AuditReader:
    """The topic of the audit log. No consumer group is used."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = Admin(bootstrap)
        if AUDIT_TOPIC not in self._admin.cluster().topics:
            raise CommandFailed(
                f"there is no topic {AUDIT_TOPIC} that you may read: the audit log is off (audit.enable), nothing has "
                f"happened yet, or you need READ on the topic"
            )
        self._partitions = self._admin.partitions(AUDIT_TOPIC)

    def offsets(self, spec: OffsetSpec) -> dict[int, int]:
        return self._admin.offsets(AUDIT_TOPIC, self._partitions, spec)

    def read(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[Event]:
        """The events from `start` up to `end`, by partition."""
        pending = {index for index in start if start[index] < end[index]}
        if not pending:
            return
        for index, offset, event in self._events({index: start[index] for index in pending}, pending, follow=False):
            if offset < end[index]:
                yield event
            if offset + 1 >= end[index]:
                pending.discard(index)

    def follow(self, start: Mapping[int, int]) -> Iterator[Event]:
        """The events from `start` on, without an end."""
        for _, _, event in self._events(start, set(start), follow=True):
            yield event

    def _events(self, start: Mapping[int, int], pending: set[int], *, follow: bool) -> Iterator[tuple[int, int, Event]]:
        consumer = Consumer(
            cli_config(
                self._bootstrap,
                # Never joined: librdkafka wants the name even for a consumer that assigns itself its partitions.
                group_id="headrace-cli-audit",
                enable_auto_commit=False,
                enable_partition_eof=True,
                auto_offset_reset="earliest",
                fetch_wait_max_ms=100,
            )
        )
        try:
            consumer.assign([TopicPartition(AUDIT_TOPIC, index, offset) for index, offset in start.items()])
            while pending:
                for message in _consumed(consumer, 0.05 if follow else _POLL_S):
                    if (error := message.error()) is None:
                        yield message.partition(), message.offset(), _event(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        if not follow:
                            pending.discard(message.partition())
                    elif not (follow and error.code() in _PASSING):
                        raise CommandFailed(explain(error, self._bootstrap))
        except KafkaException as error:
            raise CommandFailed(explain(error.args[0], self._bootstrap)) from None
        finally:
            consumer.close()


def _consumed(consumer: Any, timeout_s: float) -> list[Any]:
    try:
        messages: list[Any] = consumer.consume(_AT_ONCE, timeout_s)
    except SystemError:
        # What librdkafka's binding raises if Ctrl-C comes while it waits.
        raise KeyboardInterrupt from None
    return messages


def _event(message: Any) -> Event:
    try:
        event = json.loads(message.value())
    except ValueError:
        event = None
    if not isinstance(event, dict):
        event = {"type": "unknown", "data": {}}
    return {**event, "_ms": message.timestamp()[1]}


def _in_order(events: Iterator[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event["_ms"])


def _print(events: list[Event], *, as_json: bool, is_stream: bool) -> None:
    for event in events:
        del event["_ms"]
    if as_json:
        for event in events:
            print(json.dumps(event, ensure_ascii=False))
    elif is_stream:
        for event in events:
            print("  ".join(str(each) for each in row(event) if each != ""))
    elif events:
        table(None, COLUMNS, [row(event) for event in events])
    else:
        print("No events match")
    sys.stdout.flush()
