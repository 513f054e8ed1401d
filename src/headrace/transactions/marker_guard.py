"""Detects markers written to a partition while a request to the transaction coordinator is in flight."""

from headrace.replication.partition import Partition


class MarkerGuard:
    """Created before the request. Then `is_broken` means that the response may be about an ended transaction."""

    __slots__ = ("_epoch", "_is_broken", "_partition")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._epoch = partition.leader_epoch
        self._is_broken = False

    @property
    def is_broken(self) -> bool:
        """True after a marker, or after a change of leader: another leader may have written one."""
        return self._is_broken or self._partition.leader_epoch != self._epoch

    def note_marker(self) -> None:
        self._is_broken = True


class MarkerGuards:
    """The guards held on the partitions of this broker."""

    def __init__(self) -> None:
        self._held: dict[tuple[Partition, int], set[MarkerGuard]] = {}

    def hold(self, partition: Partition, producer_id: int) -> MarkerGuard:
        guard = MarkerGuard(partition)
        self._held.setdefault((partition, producer_id), set()).add(guard)
        return guard

    def release(self, guard: MarkerGuard, partition: Partition, producer_id: int) -> None:
        held = self._held.get((partition, producer_id))
        if held is not None:
            held.discard(guard)
            if not held:
                del self._held[partition, producer_id]

    def note_marker(self, partition: Partition, producer_id: int) -> None:
        if self._held:
            for guard in self._held.get((partition, producer_id), ()):
                guard.note_marker()
