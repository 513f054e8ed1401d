"""The lag of groups: in messages, and in seconds.

In messages: the end of the partition (the high watermark) minus the committed offset, as Kafka's tools compute it. In
seconds: how long ago the next record to read was written, and 0 when there is none: markers and records of aborted
transactions are no records to read. A committed offset below the start of the log counts from the start, where the
group will go on. A group that stopped has a lag like any other.

A group's coordinator computes it. What other brokers lead, they are asked for: one call for each broker and 2,000
offsets, with half a second to answer.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headrace.cluster.metadata import Metadata
from headrace.model.errors import HeadraceError
from headrace.model.ids import BrokerId, TopicName
from headrace.monitor.calls import POSITIONS_MAX, AskPositions, LogPositions
from headrace.monitor.log_times import LogTimes
from headrace.monitor.loop_slices import sliced
from headrace.replication.calls import ask
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock

_LANE = "lag"
_TIMEOUT_S = 0.5
_KNOWN_FOR_MS = 30_000
"""How long a time is used before its leader is asked again: it may have compacted its log."""


Place = tuple[str, int]
"""Topic and partition."""

Positions = Mapping[Place, Collection[int]]
"""The offsets of the next records to read, by partition."""

Wanted = list[tuple[str, int, list[int]]]
"""Topic, partition and offsets, as `AskPositions` has them."""


class LagFigures(NamedTuple):
    start_offset: int
    end_offset: int
    lag_messages: int
    lag_seconds: float | None
    """None if the record has no time."""


def lag_figures(offset: int, start: int, end: int, time_ms: int | None, now_ms: int) -> LagFigures:
    """The lag at an offset of a log; `time_ms` is that of the next record, None if there is none, -1 without a time."""
    seconds = 0.0 if time_ms is None else None if time_ms < 0 else max(0, now_ms - time_ms) / 1000
    return LagFigures(start, end, max(0, end - max(offset, start)), seconds)


class KnownTime(NamedTuple):
    time_ms: int
    asked_ms: float
    start_offset: int
    """The start of the log then."""


class PartitionBook:
    """What is known of one partition."""

    __slots__ = ("end_offset", "start_offset", "times")

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset: int | None = None
        """None if the leader has not answered."""
        self.times: dict[int, KnownTime] = {}
        """The time of the next record, by offset; none for those without one."""

    def unknown(self, offsets: Iterable[int], now_ms: float) -> list[int]:
        """The offsets whose times must be asked for: the time of a record that is still there does not change."""
        known, start = self.times, self.start_offset
        return [
            offset
            for offset in offsets
            if (time := known.get(offset)) is None
            or now_ms - time.asked_ms > _KNOWN_FOR_MS
            or offset < start != time.start_offset
        ]

    def note(self, found: LogPositions, asked: Sequence[int], now_ms: float) -> None:
        self.start_offset, self.end_offset = found.start_offset, found.end_offset
        for offset, time_ms in zip(asked, found.times, strict=False):
            if time_ms is None:
                self.times.pop(offset, None)
            else:
                self.times[offset] = KnownTime(time_ms, now_ms, found.start_offset)

    def at(self, offset: int, now_ms: int) -> LagFigures | None:
        """The lag at an offset; `now_ms` by the wall clock. None if the leader has not answered."""
        end = self.end_offset
        if end is None:
            return None
        time = self.times.get(offset) if offset < end else None
        return lag_figures(offset, self.start_offset, end, None if time is None else time.time_ms, now_ms)


class LagBook:
    """What is known of the ends of partitions, and of the times of the records that groups read next."""

    def __init__(
        self, metadata: Metadata, partitions: PartitionTable, clock: Clock, times: LogTimes, peers: Peers | None
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._clock = clock
        self._log_times = times
        self._peers = peers
        self._books: dict[Place, PartitionBook] = {}

    async def refresh(self, positions: Positions, *, is_all: bool = False) -> None:
        """Bring what is known of these positions, the offsets in each partition, up to date.

        With `is_all`, anything else is forgotten.
        """
        if is_all:
            await self._forget_others(positions)
        await self._ask_leaders(positions)
        # The start of some logs has passed records whose times were known.
        now_ms = self._clock.monotonic_ms()
        passed = {
            place: unknown
            async for place, offsets in sliced(positions.items())
            if (unknown := self._behind_start(place, offsets, now_ms))
        }
        if passed:
            await self._ask_leaders(passed)

    def at(self, place: Place, offset: int) -> LagFigures | None:
        """The lag at an offset, as of the last `refresh`; None if the leader has not answered."""
        book = self._books.get(place)
        return None if book is None else book.at(offset, self._clock.wall_ms())

    async def served(self, call: AskPositions) -> list[LogPositions]:
        """The answer to the call of another coordinator."""
        return await self._log_times.positions(self._led(call.wanted))

    async def _forget_others(self, positions: Positions) -> None:
        books: dict[Place, PartitionBook] = {}
        async for place, offsets in sliced(positions.items()):
            book = books[place] = self._books.get(place) or PartitionBook()
            if len(book.times) > len(offsets):
                book.times = {offset: book.times[offset] for offset in offsets if offset in book.times}
        self._books = books

    def _behind_start(self, place: Place, offsets: Iterable[int], now_ms: float) -> list[int]:
        book = self._books.get(place)
        if book is None or book.end_offset is None or not book.times:
            return []
        return book.unknown([each for each in offsets if each < book.start_offset and each in book.times], now_ms)

    async def _ask_leaders(self, positions: Positions) -> None:
        """Ask the leaders for the ends of partitions, and for the times that are not known."""
        by_leader: dict[BrokerId, Wanted] = {}
        now_ms = self._clock.monotonic_ms()
        async for place, offsets in sliced(positions.items()):
            book = self._books.get(place)
            if book is None:
                book = self._books[place] = PartitionBook()
            leader = self._leader(place)
            if leader is None:
                book.end_offset = None
            else:
                by_leader.setdefault(leader, []).append((*place, book.unknown(offsets, now_ms)))
        await asyncio.gather(*(self._ask(leader, wanted) for leader, wanted in sorted(by_leader.items())))

    def _leader(self, place: Place) -> BrokerId | None:
        image, (name, partition) = self._metadata.image, place
        topic = image.topics.get(TopicName(name))
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        leader = topic.partitions[partition].leader
        return leader if image.is_alive(leader) else None

    async def _ask(self, leader: BrokerId, wanted: Wanted) -> None:
        is_own = leader == self._metadata.broker_id
        try:
            for part in _parts(wanted):
                answer = self._log_times.positions(self._led(part)) if is_own else self._asked(leader, part)
                found = await answer
                # Neither needs to wait for anything: without this a hundred parts would be one slice.
                await asyncio.sleep(0)
                self._note(part, found)
        except HeadraceError:
            # The lag in its partitions is unknown for now.
            for topic, partition, _ in wanted:
                if (book := self._books.get((topic, partition))) is not None:
                    book.end_offset = None

    async def _asked(self, leader: BrokerId, wanted: Wanted) -> list[LogPositions]:
        if self._peers is None:
            return []
        call = AskPositions(wanted)
        return await ask(self._peers, leader, call, list[LogPositions], lane=_LANE, timeout_s=_TIMEOUT_S)

    def _led(self, wanted: Wanted) -> Iterator[tuple[Partition, list[int]]]:
        for topic, index, offsets in wanted:
            try:
                partition = self._partitions.get(topic, index)
            except HeadraceError:
                continue
            if partition.is_leader:
                yield partition, offsets

    def _note(self, wanted: Wanted, answered: Iterable[LogPositions]) -> None:
        now_ms = self._clock.monotonic_ms()
        by_place = {(found.topic, found.partition): found for found in answered}
        for topic, partition, asked in wanted:
            book, found = self._books.get((topic, partition)), by_place.get((topic, partition))
            if book is None:
                continue
            if found is None:
                book.end_offset = None
            else:
                book.note(found, asked, now_ms)


def _parts(wanted: Wanted) -> Iterator[Wanted]:
    """The partitions with their offsets, in parts of at most `POSITIONS_MAX` offsets, a partition counting as one."""
    part: Wanted = []
    size = 0
    for topic, index, offsets in wanted:
        # A partition that is read by more groups than that is named in several parts.
        for at in range(0, max(1, len(offsets)), POSITIONS_MAX):
            some = offsets[at : at + POSITIONS_MAX]
            if part and size + len(some) + 1 > POSITIONS_MAX:
                yield part
                part, size = [], 0
            part.append((topic, index, some))
            size += len(some) + 1
    if part:
        yield part
