"""The times of the records that groups read next, in the partitions that this broker leads.

A time comes from the header of a batch where that is exact, otherwise the batch is read, decrypted and decoded in a
worker thread. Found times are remembered for each partition and offset.

Bounds: of one call at most `DECODES_MAX` batches are decoded; beyond that the time of the batch's first record is used,
and later calls make up for it. At most `REMEMBERED_MAX` times are remembered.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple
from uuid import UUID

from headrace.model.errors import HeadraceError
from headrace.monitor.calls import LogPositions
from headrace.monitor.loop_slices import sliced
from headrace.records.batch import NO_TIMESTAMP
from headrace.replication.partition import Partition
from headrace.runtime.clock import Clock
from headrace.storage.log import Log
from headrace.storage.times import NextRecord

DECODES_MAX = 1_000
REMEMBERED_MAX = 100_000
_COMPACTED_FOR_MS = 30_000
"""How long a time in a compacted topic is remembered: the record may be removed."""
_PER_JOB = 50
"""Lookups in one job of a worker thread."""

_UNREADABLE = NextRecord(-1, NO_TIMESTAMP, is_exact=False)


class _Key(NamedTuple):
    topic_id: UUID
    partition: int
    generation: int
    """Of the log: every truncation raises it."""
    offset: int


_Target = tuple[list[int | None], int]
"""Where a time goes: a list and an index in it."""


class _Remembered(NamedTuple):
    record: NextRecord
    at_ms: float


class _Lookup(NamedTuple):
    key: _Key
    log: Log
    offset: int
    below: int
    target: _Target


class LogTimes:
    def __init__(self, clock: Clock, workers: Executor) -> None:
        self._clock = clock
        self._workers = workers
        self._remembered: OrderedDict[_Key, _Remembered] = OrderedDict()

    async def positions(self, wanted: Iterable[tuple[Partition, Sequence[int]]]) -> list[LogPositions]:
        """The offsets of each partition, and the times at the wanted offsets. Those below the start count from it."""
        plans = [
            (partition, partition.log.start_offset, partition.high_watermark, offsets) for partition, offsets in wanted
        ]
        lookups: list[_Lookup] = []
        answers: list[LogPositions] = []
        async for partition, start, end, offsets in sliced(plans):
            times: list[int | None] = [None] * len(offsets)
            answers.append(LogPositions(partition.topic, partition.index, start, end, times))
            for at, offset in enumerate(offsets):
                if offset < end:
                    times[at] = self._recall(lookups, partition, max(offset, start), end, (times, at))
        await self._find(lookups)
        return answers

    async def time_at(self, partition: Partition, offset: int) -> int | None:
        """The time of the first record at or after an offset; None if there is none."""
        (found,) = await self.positions([(partition, [offset])])
        return found.times[0]

    def _recall(
        self, lookups: list[_Lookup], partition: Partition, offset: int, end: int, target: _Target
    ) -> int | None:
        """The time if it is known; else a lookup is added that finds it."""
        if offset >= end:
            return None
        log = partition.log
        key = _Key(partition.topic_id, partition.index, log.generation, offset)
        known = self._remembered.get(key)
        if known is not None:
            record, at_ms = known
            is_old = partition.settings.compacts and self._clock.monotonic_ms() - at_ms > _COMPACTED_FOR_MS
            if record.timestamp is None:
                # Nothing to read up to there.
                if record.offset >= end:
                    return None
                offset = max(offset, record.offset)
            elif record.offset >= log.start_offset and not is_old:
                return record.timestamp
        lookups.append(_Lookup(key, log, offset, end, target))
        return None

    async def _find(self, lookups: Sequence[_Lookup]) -> None:
        loop, left = asyncio.get_running_loop(), DECODES_MAX
        for at in range(0, len(lookups), _PER_JOB):
            job = lookups[at : at + _PER_JOB]
            found, decoded = await loop.run_in_executor(self._workers, _look_up, job, left)
            left -= decoded
            for lookup, record in zip(job, found, strict=True):
                times, place = lookup.target
                times[place] = record.timestamp
                self._remember(lookup.key, record)

    def _remember(self, key: _Key, record: NextRecord) -> None:
        if not record.is_exact:
            return
        self._remembered.pop(key, None)
        self._remembered[key] = _Remembered(record, self._clock.monotonic_ms())
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)


def _look_up(lookups: Sequence[_Lookup], decodes_left: int) -> tuple[list[NextRecord], int]:
    """Find the records, in a worker thread; also how many batches were decoded."""
    found: list[NextRecord] = []
    decoded = 0
    for _, log, offset, below, _ in lookups:
        record = _UNREADABLE
        try:
            record = log.next_record(offset, below, decodes=False)
            if not record.is_exact and decoded < decodes_left:
                decoded += 1
                record = log.next_record(offset, below)
        except HeadraceError:
            # The batch cannot be read, or the log was closed: the header's time has to do, if there was one.
            pass
        found.append(record)
    return found, decoded
