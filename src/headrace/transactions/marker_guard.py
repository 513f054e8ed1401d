"""Whether a marker was written to a partition while somebody was away, asking about a producer's transaction there."""

from headrace.replication.partition import Partition


class MarkerGuard:
    """Made before asking. After that, `is_broken` means that the answer may be about a transaction that is over."""

    __slots__ = ("_epoch", "_is_broken", "_partition")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._epoch = partition.leader_epoch
        self._is_broken = False

    @property
    def is_broken(self) -> bool:
        """Another leader may have written a marker, too."""
        return self._is_broken or self._partition.leader_epoch != self._epoch

    def marker_came(self) -> None:
        self._is_broken = True


class MarkerGuards:
    def __init__(self) -> None:
        self._held: dict[tuple[Partition, int], set[MarkerGuard]] = {}

    def hold(self, partition: Partition, producer_id: int) -> MarkerGuard:
        guard = MarkerGuard(partition)
        self._held.setdefault((partition, producer_id), set()).add(guard)
        return guard

    def let_go(self, guard: MarkerGuard, partition: Partition, producer_id: int) -> None:
        held = self._held.get((partition, producer_id))
        if held is not None:
            held.discard(guard)
            if not held:
                del self._held[partition, producer_id]

    def marker_came(self, partition: Partition, producer_id: int) -> None:
        if self._held:
            for guard in self._held.get((partition, producer_id), ()):
                guard.marker_came()
