"""The partitions to check for a fetch of a replica's session: those the request names, and those that changed.

A broker follows thousands of partitions, most of them idle. So partitions notify the session instead of being polled at
each request: when the log grows (which wakes the fetch), and when the high watermark advances (which can wait for the
next answer, unless consumers were redirected to a follower). A log start moved by retention sends no notification: all
partitions are checked from time to time for that.
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
    """The changed partitions of one replica's session. `close` must be called when the session ends."""

    def __init__(self, replica_id: BrokerId) -> None:
        self.replica_id = replica_id
        self.broker_epoch = -1
        """The replica's broker epoch when it last reported its fetch offsets."""
        self.contact_ms = 0.0
        """The time of the replica's last fetch."""
        self.looked_at_all_ms = 0.0
        self.due: dict[PartitionKey, None] = {}
        """Partitions that may have changed since the last answer."""
        self.wake: Callable[[], None] | None = None
        """Wakes the waiting fetch."""
        self.is_pressing = False
        """True if a high watermark advanced that consumers of the follower wait for."""
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
    """A waiter registered with a partition on behalf of a replica's session."""

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
            # Nothing was due at the replica's last fetch, so it was caught up then.
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
