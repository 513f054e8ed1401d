"""Which partitions of a replica's fetch session need a look: those it has named, and those where something happened.

A broker follows others in thousands of partitions, and in most of them nothing happens. So partitions tell the session,
instead of being asked one by one at each request: when a log grows (the replica is woken), and when more is committed
(which can wait for the next answer, unless somebody was sent to read from a replica). Of one thing nobody tells, the
start of a log that retention moves: for that everything is looked at now and then.
"""

from collections.abc import Callable
from typing import NamedTuple

from headrace.kafka.fetch_sessions import PartitionKey
from headrace.model.ids import BrokerId
from headrace.replication.partition import Partition


class _Seat(NamedTuple):
    partition: Partition
    growth: "_Growth"
    commits: "_Commits"


class ChangedPartitions:
    """Of one session. Whoever ends the session calls `close`."""

    def __init__(self, replica_id: BrokerId) -> None:
        self.replica_id = replica_id
        self.broker_epoch = -1
        """Under which the replica has told how far it is."""
        self.contact_ms = 0.0
        """When it was last heard of."""
        self.looked_at_all_ms = 0.0
        self.due: dict[PartitionKey, None] = {}
        """Where a look may find something to tell."""
        self.wake: Callable[[], None] | None = None
        """Tells the request that waits."""
        self.is_pressing = False
        """Whether there is something to tell that readers of the replica wait for."""
        self._seats: dict[PartitionKey, _Seat] = {}

    def watch(self, key: PartitionKey, partition: Partition) -> None:
        seat = self._seats.get(key)
        if seat is not None:
            if seat.partition is partition:
                return
            self.forget(key)
        seat = self._seats[key] = _Seat(partition, _Growth(self, key, partition), _Commits(self, key, partition))
        partition.replica_waiters.add(seat.growth)
        partition.data_waiters.add(seat.commits)

    def forget(self, key: PartitionKey) -> None:
        self.due.pop(key, None)
        seat = self._seats.pop(key, None)
        if seat is not None:
            seat.partition.replica_waiters.remove(seat.growth)
            seat.partition.data_waiters.remove(seat.commits)

    def close(self) -> None:
        for key in tuple(self._seats):
            self.forget(key)


class _Watch:
    """Waits at a partition for the sake of a replica."""

    __slots__ = ("_changes", "_key", "_partition")

    def __init__(self, changes: ChangedPartitions, key: PartitionKey, partition: Partition) -> None:
        self._changes = changes
        self._key = key
        self._partition = partition


class _Growth(_Watch):
    __slots__ = ()

    def data_arrived(self) -> None:
        changes = self._changes
        if self._key not in changes.due:
            changes.due[self._key] = None
            # There was nothing more to tell when the replica was last heard of, so it had everything then.
            self._partition.note_caught_up(changes.replica_id, changes.contact_ms)
        if changes.wake is not None:
            changes.wake()


class _Commits(_Watch):
    __slots__ = ()

    def data_arrived(self) -> None:
        changes = self._changes
        changes.due[self._key] = None
        if self._partition.is_read_elsewhere:
            changes.is_pressing = True
            if changes.wake is not None:
                changes.wake()
