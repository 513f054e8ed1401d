"""The backlog of a partition of a topic: what its slowest group has not read, and dropping the oldest of it.

Positions of groups come from their coordinators, and are a second old. Groups move forward, so the backlog is never
larger than it is measured. Without any group, all of the log is the backlog.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor

from headrace.model.backlog import BacklogBound
from headrace.model.errors import HeadraceError, OffsetNotAvailable
from headrace.records.batch import NO_TIMESTAMP
from headrace.replication.backlog import BacklogGuard
from headrace.replication.partition import Partition

log = logging.getLogger(__name__)

_LOOKED_AT_MAX = 1_000
"""The most batches that are looked at in one go to find those to drop."""


class TopicBacklog:
    """Implements `replication.backlog.BacklogMeasure`."""

    def __init__(self, partition: Partition, now_ms: Callable[[], int], workers: Executor) -> None:
        self._partition = partition
        self._workers = workers
        self.now_ms = now_ms
        self._positions: Mapping[str, int] | None = None
        self._groups: Collection[str] = ()
        self._oldest: tuple[int, int] | None = None
        """An offset, and the time of its record."""
        self._persisting: asyncio.Task[None] | None = None

    # -- measuring

    def read_to(self) -> int:
        """Where the slowest group is. `OffsetNotAvailable` until the coordinators have been asked."""
        if self._positions is None:
            raise OffsetNotAvailable("not all coordinators of groups have answered yet")
        start, positions = self._partition.log.start_offset, self._positions
        if self._groups:
            slowest = min(positions.get(group, start) for group in self._groups)
        else:
            slowest = min(positions.values(), default=start)
        return min(max(slowest, start), self._partition.log.end_offset)

    @property
    def is_known(self) -> bool:
        """Whether the positions of all groups have been known since this broker leads."""
        return self._positions is not None

    def messages(self) -> int:
        return self._partition.log.end_offset - self.read_to()

    def size_bytes(self) -> int:
        read_to, stored = self.read_to(), self._partition.log
        return stored.size_bytes - stored.bytes_before(read_to) if read_to < stored.end_offset else 0

    def oldest_ms(self) -> int | None:
        read_to = self.read_to()
        if read_to >= self._partition.high_watermark or self._oldest is None or self._oldest[0] < read_to:
            return None
        return self._oldest[1]

    def undroppable(self) -> int:
        return 0

    # -- changes

    def configure(self, bound: BacklogBound | None, groups: Collection[str]) -> None:
        """Apply a bound, and the groups that count: all of them if none are named."""
        partition = self._partition
        self._groups = groups
        guard = partition.backlog
        if bound is None:
            self.close()
        elif guard is None:
            partition.backlog = BacklogGuard(f"{partition.topic}-{partition.index}", "", bound, self)
        else:
            guard.configure(bound)
        partition.before_readable = self.drop_oldest if bound is not None and bound.drops else None

    def close(self) -> None:
        guard, self._partition.backlog = self._partition.backlog, None
        self._partition.before_readable = None
        if guard is not None:
            guard.close()

    async def groups_read(self, positions: Mapping[str, int]) -> None:
        """Take the committed offsets of all groups, by name: producers may go on, and old records may be dropped."""
        self._positions = positions
        guard = self._partition.backlog
        if guard is None:
            return
        if guard.bound.age_ms:
            await self._find_oldest()
        self.drop_oldest()
        guard.changed()

    async def _find_oldest(self) -> None:
        partition, read_to = self._partition, self.read_to()
        if read_to >= partition.high_watermark or (self._oldest is not None and self._oldest[0] == read_to):
            return
        found = await asyncio.get_running_loop().run_in_executor(
            self._workers, lambda: partition.log.next_record(read_to, partition.high_watermark, decodes=False)
        )
        if found.timestamp is not None and found.timestamp != NO_TIMESTAMP:
            self._oldest = (max(read_to, found.offset), found.timestamp)

    # -- dropping

    def drop_oldest(self) -> None:
        """Raise the start of the log to where the backlog is within its bound: only committed records are dropped."""
        partition, guard = self._partition, self._partition.backlog
        if guard is None or not guard.bound.drops or self._positions is None or not partition.is_leader:
            return
        start = partition.log.start_offset
        try:
            target = min(self._target(guard.bound), partition.high_watermark)
            if target > start:
                partition.log.raise_start(target)
                if partition.traffic is not None:
                    partition.traffic.messages_dropped += target - start
                self._persist_soon()
        except HeadraceError as error:
            log.warning("the oldest records of %s cannot be dropped for now: %s", partition, error)

    def _target(self, bound: BacklogBound) -> int:
        """Where the log is to begin."""
        stored, start = self._partition.log, self._partition.log.start_offset
        target = start
        if bound.messages and self.messages() > bound.messages:
            target = stored.end_offset - bound.messages
        excess_bytes = self.size_bytes() - bound.size_bytes if bound.size_bytes else 0
        oldest_ms = self.now_ms() - bound.age_ms if bound.age_ms else NO_TIMESTAMP
        if excess_bytes <= 0 and not bound.age_ms:
            return target
        for header in stored.batches_from(self.read_to(), _LOOKED_AT_MAX):
            if excess_bytes <= 0 and not NO_TIMESTAMP < header.max_timestamp < oldest_ms:
                break
            excess_bytes -= header.size
            target = max(target, header.last_offset + 1)
        return target

    def _persist_soon(self) -> None:
        if self._persisting is None or self._persisting.done():
            self._persisting = asyncio.get_running_loop().create_task(self._persist())

    async def _persist(self) -> None:
        stored, persisted = self._partition.log, -1
        while persisted < stored.start_offset:
            persisted = stored.start_offset
            try:
                await asyncio.get_running_loop().run_in_executor(self._workers, stored.persist_start)
            except HeadraceError as error:
                log.warning("the start of %s cannot be persisted for now: %s", self._partition, error)
                return
        # Followers get the new start with their next response.
        self._partition.data_waiters.advanced()
