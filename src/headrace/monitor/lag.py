"""The lag of groups: in messages, and in seconds.

In messages: the end of the partition (the high watermark) minus the committed offset, as Kafka's tools compute it. In
seconds: how long ago the next record to read was written, and 0 when there is none: markers and records of aborted
transactions are no records to read. A committed offset below the start of the log counts from the start, where the
group will go on. A group that stopped has a lag like any other.

A group's coordinator computes it. What other brokers lead, they are asked for: one call for each broker and 2,000
offsets, with half a second to answer.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
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


class Position(NamedTuple):
    """Where a group is in a partition."""

    topic: str
    partition: int
    offset: int
    """The offset of the next record to read."""


class LagFigures(NamedTuple):
    start_offset: int
    end_offset: int
    lag_messages: int
    lag_seconds: float | None
    """None if the record has no time."""


class KnownTime(NamedTuple):
    time_ms: int | None
    asked_ms: float
    start_offset: int
    """The start of the log then."""


def lag_figures(offset: int, start: int, end: int, time_ms: int | None, now_ms: int) -> LagFigures:
    """The lag at an offset of a log; `time_ms` is that of the next record, None if there is none, -1 without a time."""
    seconds = 0.0 if time_ms is None else None if time_ms < 0 else max(0, now_ms - time_ms) / 1000
    return LagFigures(start, end, max(0, end - max(offset, start)), seconds)


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
        self._ends: dict[tuple[str, int], tuple[int, int]] = {}
        """Start and end of each partition; of those that the last `refresh` named and that were answered."""
        self._times: dict[Position, KnownTime] = {}

    async def refresh(self, positions: Sequence[Position], *, is_all: bool = False) -> None:
        """Bring what is known of these positions up to date. With `is_all`, anything else is forgotten."""
        known = await self._ask_for(positions)
        if is_all:
            await self._forget_others(positions)
        # The start of some logs has passed records whose times were known.
        now_ms = self._clock.monotonic_ms()
        passed = [position async for position in sliced(known) if self._known(position, now_ms) is None]
        if passed:
            await self._ask_for(passed)

    async def _forget_others(self, positions: Sequence[Position]) -> None:
        times: dict[Position, KnownTime] = {}
        ends: dict[tuple[str, int], tuple[int, int]] = {}
        async for position in sliced(positions, 1_000):
            if (time := self._times.get(position)) is not None:
                times[position] = time
            if (found := self._ends.get(position[:2])) is not None:
                ends[position[:2]] = found
        self._times, self._ends = times, ends

    async def _ask_for(self, positions: Sequence[Position]) -> list[Position]:
        """Ask the leaders for the ends of partitions, and for the times that are not known; the positions of those
        that are."""
        by_leader: dict[BrokerId, dict[tuple[str, int], list[int]]] = {}
        now_ms = self._clock.monotonic_ms()
        known: list[Position] = []
        async for position in sliced(positions):
            leader = self._leader(position)
            if leader is None:
                self._ends.pop(position[:2], None)
                continue
            offsets = by_leader.setdefault(leader, {}).setdefault(position[:2], [])
            if self._known(position, now_ms) is None:
                offsets.append(position.offset)
            else:
                known.append(position)
        await asyncio.gather(*(self._ask(leader, wanted) for leader, wanted in sorted(by_leader.items())))
        return known

    def _known(self, position: Position, now_ms: float) -> KnownTime | None:
        """The time of a record that was there, and still is: it does not change."""
        time = self._times.get(position)
        if time is None or time.time_ms is None or now_ms - time.asked_ms > _KNOWN_FOR_MS:
            return None
        start, _ = self._ends.get(position[:2], (0, 0))
        return time if start <= position.offset or start == time.start_offset else None

    def at(self, position: Position) -> LagFigures | None:
        """The lag at a position, as of the last `refresh`; None if the leader has not answered."""
        ends, time = self._ends.get(position[:2]), self._times.get(position)
        if ends is None or time is None:
            return None
        return lag_figures(position.offset, *ends, time.time_ms, self._clock.wall_ms())

    async def served(self, call: AskPositions) -> list[LogPositions]:
        """The answer to the call of another coordinator."""
        return await self._log_times.positions(self._led(call.wanted))

    def _leader(self, position: Position) -> BrokerId | None:
        image = self._metadata.image
        topic = image.topics.get(TopicName(position.topic))
        if topic is None or not 0 <= position.partition < len(topic.partitions):
            return None
        leader = topic.partitions[position.partition].leader
        return leader if image.is_alive(leader) else None

    async def _ask(self, leader: BrokerId, wanted: dict[tuple[str, int], list[int]]) -> None:
        try:
            for part in _parts(wanted):
                if leader == self._metadata.broker_id:
                    self._note(part, await self._log_times.positions(self._led(part)))
                elif self._peers is not None:
                    answer = await ask(
                        self._peers,
                        leader,
                        AskPositions(part),
                        list[LogPositions],
                        lane=_LANE,
                        timeout_s=_TIMEOUT_S,
                    )
                    self._note(part, answer)
        except HeadraceError:
            # The lag in its partitions is unknown for now.
            for place in wanted:
                self._ends.pop(place, None)

    def _led(self, wanted: Iterable[tuple[str, int, list[int]]]) -> Iterator[tuple[Partition, list[int]]]:
        for topic, index, offsets in wanted:
            try:
                partition = self._partitions.get(topic, index)
            except HeadraceError:
                continue
            if partition.is_leader:
                yield partition, offsets

    def _note(self, wanted: Sequence[tuple[str, int, list[int]]], answered: Iterable[LogPositions]) -> None:
        now_ms = self._clock.monotonic_ms()
        asked = {(topic, index): offsets for topic, index, offsets in wanted}
        for found in answered:
            place = found.topic, found.partition
            self._ends[place] = found.start_offset, found.end_offset
            for offset, time_ms in zip(asked.pop(place, ()), found.times, strict=False):
                self._times[Position(*place, offset)] = KnownTime(time_ms, now_ms, found.start_offset)
        for place in asked:
            self._ends.pop(place, None)


def _parts(wanted: dict[tuple[str, int], list[int]]) -> Iterator[list[tuple[str, int, list[int]]]]:
    """The partitions with their offsets, in parts of at most `POSITIONS_MAX` offsets."""
    part: list[tuple[str, int, list[int]]] = []
    size = 0
    for (topic, index), offsets in wanted.items():
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
