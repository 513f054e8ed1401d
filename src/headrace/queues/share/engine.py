"""The lease engine of a share group (KIP-932): records by offset, acknowledged in ranges. Pure.

It is driven like `engine.Engine`, with these differences. The index is not persisted: after `load`, index everything
from `indexed_to` to the end again, in one call of `index_plain(first, last, None, now)`. Of a lease only the delivery
is persisted: a record that was acquired and not acknowledged is available after a restart, with a higher delivery
count. A record that has reached the delivery limit and comes back is acked (archived); excused deliveries do not count
towards the limit. If the group has a dead-letter topic, such a record, and one that a member rejected, is `dead` until
its letter is written there, and then `moved`.

`log_end` is to be set as the log grows: a record that comes back is delivered after all records below it, also those
that are not indexed yet. After a restart the order is that of the offsets again.

Ranges include both ends. `NotInFlight`, and nothing changes, if any record of the range is not acquired by this
receiver.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.config.queue import QueueSettings
from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import NotInFlight
from headrace.model.invariants import invariant
from headrace.model.queue_wire import Counts
from headrace.queues.engine import persistence
from headrace.queues.engine.indexer import Indexer
from headrace.queues.engine.inventory import DeadMessage, Inventory, MessageState
from headrace.queues.engine.lifecycle import Lifecycle
from headrace.queues.engine.policy import EnginePolicy
from headrace.queues.engine.stored import LeaseRecord

_REJECTED = "rejected"
"""The reason that is persisted with a record which is dead because a member rejected it."""
_POLICY = EnginePolicy(
    persist_leases=False,
    persist_index=False,
    limit_needs_dead_letter=False,
    longest_lease_ms=None,
    rejected_reason=_REJECTED,
)
_FOREVER_MS = 1 << 50


class AcquiredRange(NamedTuple):
    """Records first to last, acquired, each for the `attempt`-th time."""

    first: int
    last: int
    attempt: int


def _settings(most_deliveries: int, most_in_flight: int, lock_ms: int) -> QueueSettings:
    return QueueSettings(
        type="standard",
        visibility_timeout_ms=lock_ms,
        retention_ms=_FOREVER_MS,
        max_receives=most_deliveries,
        max_in_flight=most_in_flight,
    )


class ShareEngine:
    def __init__(
        self, most_deliveries: int, most_in_flight: int, lock_ms: int, *, has_dead_letters: bool = False
    ) -> None:
        """`has_dead_letters`: whether the group has a dead-letter topic."""
        self._inventory = Inventory(_settings(most_deliveries, most_in_flight, lock_ms), _POLICY)
        self._indexer = Indexer(self._inventory)
        self._lifecycle = Lifecycle(self._inventory, self._indexer, lambda: 0.5)
        self._lifecycle.moves_dead = has_dead_letters

    def limit(
        self, most_deliveries: int, most_in_flight: int, lock_ms: int, now_ms: int, *, has_dead_letters: bool = False
    ) -> None:
        """Change the limits. Without a dead-letter topic dead records are acked."""
        self._lifecycle.moves_dead = has_dead_letters
        if not has_dead_letters:
            for offset in tuple(self._inventory.dead):
                self._inventory.ack(offset)
        self._lifecycle.configure(_settings(most_deliveries, most_in_flight, lock_ms), now_ms)

    # -- reading

    @property
    def indexed_to(self) -> int:
        """The offset that is to be indexed next."""
        return self._inventory.indexed_to

    @property
    def head(self) -> int:
        """All records below are acked."""
        return self._inventory.head

    @property
    def log_start(self) -> int:
        """Records below are not needed."""
        return self._indexer.log_start

    @property
    def log_end(self) -> int:
        """Where the log ends for members."""
        return self._inventory.log_end

    @log_end.setter
    def log_end(self, offset: int) -> None:
        self._inventory.log_end = offset

    @property
    def in_flight(self) -> int:
        return self._inventory.in_flight

    def counts(self) -> Counts:
        return self._inventory.counts()

    def look(self, offset: int) -> MessageState | None:
        """The state of a record; None if it is acked, or not indexed."""
        return self._inventory.look(offset)

    def live(self, first: int) -> Iterator[int]:
        """The records that are not acked, from this offset on, by offset."""
        return self._inventory.live(first)

    @property
    def has_dead(self) -> bool:
        return bool(self._inventory.dead)

    def dead(self, most: int = 1000) -> list[DeadMessage]:
        """The first of the records that are to be written to the dead-letter topic, and then are `moved`."""
        return self._inventory.first_dead(most)

    def is_rejected(self, offset: int) -> bool:
        """Whether a record is dead because a member rejected it."""
        held = self._inventory.leases.held.get(offset)
        return held is not None and held.reason == _REJECTED

    def acquired_by(self, receiver: str, now_ms: int) -> list[AcquiredRange]:
        """The records that a receiver has, by offset."""
        self._lifecycle.due(now_ms)
        return _ranges(
            sorted(
                (offset, held.attempt)
                for offset, held in self._inventory.leases.held.items()
                if held.is_leased and held.receiver == receiver
            )
        )

    # -- the log

    def start_at(self, offset: int) -> None:
        """Forget everything: all records from here on are undelivered. Index from here."""
        self._indexer.restart_at(offset)

    def index_plain(self, first: int, last: int, sent_ms: int | None, now_ms: int) -> None:
        """Add the next records of the log, first to last."""
        self._indexer.index_plain(first, last, sent_ms, now_ms)

    def skip(self, first: int, last: int) -> None:
        """There are no records for members at these offsets, nor between the last indexed one and them."""
        self._indexer.skip(first, last)

    def drop_before(self, offset: int) -> None:
        """The log begins here: all records before are acked."""
        self._inventory.ack_up_to(offset - 1)
        self._indexer.skip(self._inventory.indexed_to, offset - 1)

    # -- persisting

    def load(self, entries: Iterable[InternalRecord]) -> None:
        """Continue from the persisted state: its live entries, in any order. To be called once, before all else."""
        persistence.load(self._inventory, self._indexer, entries)

    def take_changes(self) -> list[InternalRecord]:
        """The entries to persist since the last call, in an order of which any prefix is consistent."""
        return persistence.take_changes(self._inventory, self._indexer)

    # -- delivering

    def _returned_before(self) -> int | None:
        """Records that came back may be acquired if they are in line before this offset; None: all of them."""
        inventory = self._inventory
        first = inventory.available.first()
        if first is None and inventory.indexed_to < inventory.log_end:
            return inventory.indexed_to
        return first

    def next_available(self, now_ms: int) -> int | None:
        """The record that is to be acquired next. None if it was not indexed, or there is none."""
        self._lifecycle.due(now_ms)
        available = self._inventory.available
        returned = available.first_returned(self._returned_before())
        return available.first() if returned is None else returned

    def acquire(
        self, first: int, last: int, most: int, now_ms: int, receiver: str, lock_ms: int | None = None
    ) -> list[AcquiredRange]:
        """Acquire the first available records of this range, those that were never delivered before others. None if the
        limit of records in flight is reached."""
        self._lifecycle.due(now_ms)
        inventory = self._inventory
        wanted = min(most, inventory.settings.max_in_flight - inventory.leases.leased)
        if wanted <= 0:
            return []
        until_ms = self._deadline_ms(now_ms, lock_ms)
        found = inventory.available.take_between(first, last, wanted)
        if len(found) < wanted:
            found += inventory.available.take_returned_between(
                first, last, wanted - len(found), self._returned_before()
            )
            found.sort()
        if inventory.dead:
            invariant(inventory.dead.keys().isdisjoint(found), 66, "a dead record is never delivered again")
        lease = inventory.leases.lease
        return _ranges((offset, lease(offset, now_ms, until_ms, receiver).attempt) for offset in found)

    def _deadline_ms(self, now_ms: int, lock_ms: int | None) -> int:
        return now_ms + (self._inventory.settings.visibility_timeout_ms if lock_ms is None else lock_ms)

    def accept(self, first: int, last: int, receiver: str, now_ms: int) -> None:
        """Ack records, or gaps."""
        self._acquired(first, last, receiver, now_ms)
        self._inventory.ack_leased(first, last)

    def reject(self, first: int, last: int, receiver: str, now_ms: int) -> None:
        """The records are never delivered again: dead, or acked if the group has no dead-letter topic."""
        if not self._lifecycle.moves_dead:
            self.accept(first, last, receiver, now_ms)
            return
        for offset, held in self._acquired(first, last, receiver, now_ms):
            held.reason = _REJECTED
            self._lifecycle.end_lease(offset, held, now_ms, 0, _REJECTED)

    def release(self, first: int, last: int, receiver: str, now_ms: int, *, is_excused: bool = False) -> None:
        """The records are available again, or dead if they have reached the delivery limit; an excused delivery does
        not count towards it."""
        for offset, held in self._acquired(first, last, receiver, now_ms):
            held.excused += is_excused
            self._lifecycle.end_lease(offset, held, now_ms, 0, "")

    def renew(self, first: int, last: int, receiver: str, now_ms: int, lock_ms: int | None = None) -> None:
        """The records stay acquired for as long as if they were acquired now."""
        until_ms = self._deadline_ms(now_ms, lock_ms)
        for offset, held in self._acquired(first, last, receiver, now_ms):
            self._inventory.leases.extend(offset, held, until_ms)

    def moved(self, offset: int) -> None:
        """The letter of a dead record is written."""
        if offset in self._inventory.dead:
            self._inventory.ack(offset)

    def archive(self, first: int, last: int) -> None:
        """Ack records in any state, such as those of an aborted transaction."""
        inventory = self._inventory
        for offset in range(max(first, inventory.head), min(last, inventory.indexed_to - 1) + 1):
            if offset not in inventory.acked:
                inventory.ack(offset)

    def _acquired(self, first: int, last: int, receiver: str, now_ms: int) -> list[tuple[int, LeaseRecord]]:
        self._lifecycle.due(now_ms)
        held_by = self._inventory.leases.held
        found = []
        for offset in range(first, last + 1):
            held = held_by.get(offset)
            if held is None or not held.is_leased or held.receiver != receiver:
                raise NotInFlight(f"record {offset} is not acquired by this member")
            found.append((offset, held))
        return found

    # -- time

    @property
    def next_due_ms(self) -> int | None:
        """When `due` is to be called."""
        return self._lifecycle.next_due_ms

    def due(self, now_ms: int) -> None:
        """Do everything that is due by now: locks end."""
        self._lifecycle.due(now_ms)


def _ranges(records: Iterable[tuple[int, int]]) -> list[AcquiredRange]:
    """Records with their attempts, by offset, as ranges."""
    ranges: list[AcquiredRange] = []
    for offset, attempt in records:
        if ranges and ranges[-1].last + 1 == offset and ranges[-1].attempt == attempt:
            ranges[-1] = ranges[-1]._replace(last=offset)
        else:
            ranges.append(AcquiredRange(offset, offset, attempt))
    return ranges
