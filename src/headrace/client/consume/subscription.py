"""Reading a topic without a group: every subscriber sees every message, and nothing is committed.

With `everywhere=True`, the mirrors of the topic are read as well. A mirror that appears later has what was written
before the subscription, too: it is read from the first message at or after the time that the subscription starts at,
which is that of its making for `start="latest"`.
"""

import time
from collections.abc import Mapping
from datetime import datetime

from headrace.client.consume.stream import Stream
from headrace.client.errors import Unreachable
from headrace.client.kafka.consumer import PartitionConsumer, Where
from headrace.client.kafka.mirrors import Mirrors
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
    """All partitions of a topic from `start` on, including those added later; with those of its mirrors if the poller
    looks for them.

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
        self._since_ms = _since_ms(start)
        self._late: set[Where] = set()
        """Partitions of later mirrors of which no message at or after that time has come yet."""
        if poller.watch is not None:
            poller.origins = poller.watch.look() if bounded else poller.watch.start()
        partitions = [each for name in self._topics() for each in poller.partitions(name)]
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

    def seek(self, partition: int, offset: int, topic: str | None = None) -> None:
        """Go on from an offset of one partition, of the topic itself unless one of its mirrors is named."""
        self._go_to({(topic or self._topic, partition): offset})

    def seek_to_time(self, when: datetime) -> None:
        """Go on from the first message of each partition at or after a time."""
        self._go_to(self._at_time(list(self._poller.assignment()), when))

    def _topics(self) -> list[str]:
        return [self._topic, *sorted(self._poller.origins.keys() - {self._topic})]

    def _go_to(self, positions: Mapping[Where, int]) -> None:
        self._late -= positions.keys()
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
        where = (message.topic, message.partition)
        if where in self._late:
            if (message.timestamp_ms or 0) < self._since_ms:
                return False
            self._late.discard(where)
        if self._ends is None:
            return True
        end = self._ends.get(where, 0)
        if message.offset + 1 >= end:
            self._ends.pop(where, None)
        return message.offset < end

    def _look_for_partitions(self) -> None:
        """Partitions that did not exist at the start are read from their beginning: all in them is new."""
        known = self._poller.assignment()
        now_s = time.monotonic()
        watch = self._poller.watch
        is_due = now_s - self._looked_at_s >= (_LOOK_EVERY_S if known else _LOOK_FOR_TOPIC_EVERY_S)
        if not is_due and (watch is None or watch.found is self._poller.origins):
            return
        self._looked_at_s = now_s
        try:
            if watch is not None:
                self._follow_mirrors(watch.found, known)
            there = [each for name in self._topics() for each in self._poller.partitions(name, _LOOK_TIMEOUT_S)]
        except Unreachable:
            return
        found = {each: 0 for each in there if each not in self._poller.assignment()}
        if found:
            self._poller.assign(found)

    def _follow_mirrors(self, mirrors: Mirrors, known: set[Where]) -> None:
        """Read mirrors that are new, and no longer those that were deleted."""
        before = self._poller.origins
        if mirrors is before:
            return
        places = {
            name: self._poller.partitions(name, _LOOK_TIMEOUT_S) for name in sorted(mirrors.keys() - before.keys())
        }
        if not all(places.values()):
            return  # Created at this moment: at the next look.
        new = [each for name, partitions in places.items() if name != self._topic for each in partitions]
        if new and self._since_ms:
            self._poller.assign(self._poller.at_time(new, self._since_ms))
            self._late.update(new)
        gone = {each for each in known if each[0] in before.keys() - mirrors.keys() - {self._topic}}
        if gone:
            self._poller.unassign(gone)
            self._drop(gone)
        self._poller.origins = mirrors


def _since_ms(start: Start) -> int:
    """The time that a mirror is read from which is found later; 0 for its beginning."""
    if isinstance(start, datetime):
        return round(start.timestamp() * 1000)
    return 0 if start == "earliest" else time.time_ns() // 1_000_000
