"""The lag of groups: in messages, and in seconds.

In messages: the end of the partition (the high watermark) minus the committed offset, as Kafka's tools compute it. In
seconds: how long ago the next record to read was written, and 0 when there is none. A committed offset below the start
of the log counts from the start, where the group will go on. A group that stopped has a lag like any other.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.model.errors import HeadraceError
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock

Position = tuple[str, int, int]
"""Topic, partition, and the offset of the next record to read."""


class LagFigures(NamedTuple):
    start_offset: int
    end_offset: int
    lag_messages: int
    lag_seconds: float | None
    """None if it is not known yet."""


class LagBook:
    """What is known of the ends of partitions, and of the times of the records that groups read next."""

    def __init__(self, partitions: PartitionTable, clock: Clock) -> None:
        self._partitions = partitions
        self._clock = clock

    async def refresh(self, positions: Sequence[Position]) -> None:
        """Bring what is known of these positions up to date."""

    def at(self, position: Position) -> LagFigures | None:
        """The lag at a position, as of the last `refresh`; None if the leader has not answered."""
        topic, index, offset = position
        try:
            partition = self._partitions.get(topic, index)
        except HeadraceError:
            return None
        if not partition.is_leader:
            return None
        start, end = partition.log.start_offset, partition.high_watermark
        messages = max(0, end - max(offset, start))
        return LagFigures(start, end, messages, None if messages else 0.0)
