"""Reading a topic without a group: every subscriber sees every message, and nothing is committed."""

import time
from collections.abc import Mapping
from datetime import datetime

from headrace.client.consume.stream import Stream
from headrace.client.errors import Unreachable
from headrace.client.kafka.consumer import PartitionConsumer, Where
from headrace.client.keywords import checks_keywords
from headrace.client.message import Message

_AT_ONCE = 500
_LOOK_EVERY_S = 30.0
_LOOK_FOR_TOPIC_EVERY_S = 0.5
_LOOK_TIMEOUT_S = 2.0

Start = str | datetime
"""`"latest"`, `"earliest"`, or a time."""


@checks_keywords
class Subscription(Stream):
    """All partitions of a topic from `start` on, including those added later.

    The starting point is settled when the subscription is made: with `start="latest"`, whatever is published after that
    is received.
    """

    def __init__(
        self, poller: PartitionConsumer, topic: str, start: Start, until: datetime | None = None, *, bounded: bool
    ) -> None:
        super().__init__(poller)
        self.ends_by_itself = bounded
        self._topic = topic
        self._looked_at_s = time.monotonic()
        self._ends: dict[Where, int] | None = None
        partitions = poller.partitions(topic)
        positions = self._positions(partitions, start)
        if bounded:
            ends = {each: poller.bounds(each)[1] for each in partitions}
            if until is not None:
                ends = {each: min(end, ends[each]) for each, end in self._at_time(partitions, until).items()}
            self._ends = {each: end for each, end in ends.items() if positions[each] < end}
            positions = {each: positions[each] for each in self._ends}
        poller.assign(positions)

    @property
    def is_over(self) -> bool:
        return super().is_over or (self._ends is not None and not self._ends and not self._buffer)

    def seek(self, partition: int, offset: int) -> None:
        """Go on from an offset of one partition."""
        self._go_to({(self._topic, partition): offset})

    def seek_to_time(self, when: datetime) -> None:
        """Go on from the first message of each partition at or after a time."""
        self._go_to(self._at_time(list(self._poller.assignment()), when))

    def _go_to(self, positions: Mapping[Where, int]) -> None:
        self._drop(positions)
        self._poller.seek(positions)

    def _positions(self, partitions: list[Where], start: Start) -> dict[Where, int]:
        if isinstance(start, datetime):
            return self._at_time(partitions, start)
        if start not in ("earliest", "latest"):
            raise ValueError(f"start must be 'earliest', 'latest' or a datetime, not {start!r}")
        return {each: self._poller.bounds(each)[start == "latest"] for each in partitions}

    def _at_time(self, partitions: list[Where], when: datetime) -> dict[Where, int]:
        return self._poller.at_time(partitions, round(when.timestamp() * 1000))

    def _fill(self, timeout_s: float) -> None:
        if self._ends is None:
            self._look_for_partitions()
        for message in self._poller.take(_AT_ONCE, timeout_s):
            if self._is_wanted(message):
                self._buffer.append(message)
        if self._ends is not None:
            # The last offsets may hold nothing to read (aborted transactions): then only the end tells.
            for where, offset in self._poller.at_end.items():
                if offset >= self._ends.get(where, offset + 1):
                    del self._ends[where]

    def _is_wanted(self, message: Message) -> bool:
        if self._ends is None:
            return True
        where = (message.topic, message.partition)
        end = self._ends.get(where, 0)
        if message.offset + 1 >= end:
            self._ends.pop(where, None)
        return message.offset < end

    def _look_for_partitions(self) -> None:
        """Partitions that did not exist at the start are read from their beginning: all in them is new."""
        known = self._poller.assignment()
        now_s = time.monotonic()
        if now_s - self._looked_at_s >= (_LOOK_EVERY_S if known else _LOOK_FOR_TOPIC_EVERY_S):
            self._looked_at_s = now_s
            try:
                there = self._poller.partitions(self._topic, _LOOK_TIMEOUT_S)
            except Unreachable:
                return
            found = {each: 0 for each in there if each not in known}
            if found:
                self._poller.assign(found)
