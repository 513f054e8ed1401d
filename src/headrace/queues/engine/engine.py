"""The lease engine of one queue: which message may be received, and when. Pure: no I/O, no clock, no random.

    in the log → delayed → available → in flight → acked
                               ↑           │
                               └─ hidden ←─┤ returned, or its lease ended: for the backoff
                                           └→ dead → acked (moved to the dead-letter queue)

"Acked" is the end of every message: a receiver acknowledged it, it expired, or it is in another queue.

How it is driven. Times are wall time in ms that never goes back.
- `load` the persisted state (nothing for a new queue), `drop_before` the log's start, then `index` every record of the
  log from `indexed_to` to its committed end, in order, and continue with each new one. Only then call anything else,
  `due` first. Offsets that are left out are no messages.
- Every call changes the state at once. `take_changes` gives the entries to persist since its last call; an answer
  counts when the entries taken after it are committed. Of entries that were taken and not committed any prefix may be
  persisted: loaded, it is a state that the queue could have been in, and nothing that was answered is undone.
- `due(now)` when `next_due_ms` has come; every call with a time does it, too. After it, and after every call that may
  have made messages available, `has_available` says whether to wake receivers, and `has_dead` whether there are
  messages to move.
- Records below `log_start`, read after `take_changes` and used when those entries are committed, are not needed.

Attempts are counted with each receive, from 1; offset and attempt are a receipt. A receipt is valid for `acknowledge`
and `extend` until the message is received again; for `nack`, and for `acknowledge` in a fifo queue, only while the
message is in flight: `NotInFlight` otherwise.

Nothing starves: a message that came back is received after those that are available. While a message is available, no
other one of its priority is received twice, except those that a restart made available; in a fifo queue that holds for
the first message of each group.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.config.queue import QueueSettings
from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import LeaseTooLong, NotInFlight, TooManyInFlight
from headrace.model.features import LATEST_LEVEL
from headrace.model.invariants import invariant
from headrace.model.queue_wire import Counts
from headrace.queues.engine import persistence
from headrace.queues.engine.chunk_index import DuplicateMessage, LogMessage
from headrace.queues.engine.fifo import MessageGroups
from headrace.queues.engine.indexer import Indexer
from headrace.queues.engine.inventory import DeadMessage, Inventory, MessageState
from headrace.queues.engine.lifecycle import Lifecycle
from headrace.queues.engine.policy import QUEUE_POLICY
from headrace.queues.engine.stored import LeaseRecord


class Lease(NamedTuple):
    offset: int
    attempt: int
    deadline_ms: int
    first_received_ms: int


class LeaseRange(NamedTuple):
    """The same lease of neighbours."""

    first: int
    last: int
    attempt: int
    deadline_ms: int
    first_received_ms: int


class Engine:
    def __init__(
        self,
        settings: QueueSettings,
        jitter: Callable[[], float],
        feature_level: Callable[[], int] = lambda: LATEST_LEVEL,
    ) -> None:
        """`jitter` gives numbers from 0 to 1; the state is persisted as the feature level of the cluster allows."""
        self._inventory = Inventory(settings, QUEUE_POLICY)
        self._indexer = Indexer(self._inventory, feature_level)
        self._lifecycle = Lifecycle(self._inventory, self._indexer, jitter)

    def configure(self, settings: QueueSettings, now_ms: int) -> None:
        """Settings of the same queue type. The delays of messages in the queue do not change."""
        self._lifecycle.configure(settings, now_ms)

    def close(self) -> None:
        """Drop what makes a cycle of references: the engine is not used any more."""
        self._inventory.groups = None

    # -- reading

    @property
    def indexed_to(self) -> int:
        """The offset that is to be indexed next."""
        return self._inventory.indexed_to

    @property
    def head(self) -> int:
        """All messages below are acked."""
        return self._inventory.head

    @property
    def log_start(self) -> int:
        """Records below are not needed."""
        return self._indexer.log_start

    @property
    def has_available(self) -> bool:
        return bool(self._inventory.available)

    @property
    def in_flight(self) -> int:
        return self._inventory.in_flight

    def counts(self) -> Counts:
        return self._inventory.counts()

    @property
    def backlog(self) -> int:
        """How many messages wait to be deleted: available, in flight, hidden and delayed ones."""
        return self._inventory.backlog

    @property
    def undroppable(self) -> int:
        """How many messages of the backlog `drop_beyond` leaves alone: those in flight, and those never due."""
        return self._inventory.undroppable

    def oldest_ms(self) -> int | None:
        """When the oldest message was sent, roughly; those that were sent with a delay do not count."""
        return self._inventory.oldest_ms()

    @property
    def dropped(self) -> int:
        """How many messages were dropped because of the bound on the backlog."""
        return self._lifecycle.dropped

    @property
    def has_dead(self) -> bool:
        return bool(self._inventory.dead)

    def dead(self, most: int = 1000) -> list[DeadMessage]:
        """The first of the messages that are to be moved, and then are `moved`."""
        return self._inventory.first_dead(most)

    def look(self, offset: int) -> MessageState | None:
        """The state of a message; None if it is acked, or not indexed."""
        return self._inventory.look(offset)

    def live(self, first: int) -> Iterator[int]:
        """The messages that are not acked, from this offset on, by offset."""
        return self._inventory.live(first)

    def last_page(self, stream: int) -> int | None:
        """The number of the last page of a stream (see `moved_pages`); None if there was none."""
        return self._indexer.pages.last(stream)

    # -- the log

    def index(self, messages: Iterable[LogMessage], now_ms: int) -> list[DuplicateMessage]:
        """Add the next messages of the log; the duplicates among them are acked and returned."""
        return self._indexer.index(messages, now_ms)

    def first_sent(self, message: LogMessage) -> tuple[int, str] | None:
        """Offset and id of the message that one which is to be sent would be a duplicate of; None if there is none."""
        return self._indexer.first_sent(message)

    def index_plain(self, first: int, last: int, sent_ms: int | None, now_ms: int) -> None:
        """Like `index` for messages first to last that have nothing but their time, at hardly the cost of one."""
        self._indexer.index_plain(first, last, sent_ms, now_ms)

    def skip(self, first: int, last: int) -> None:
        """There are no messages at these offsets, nor between the last indexed one and them."""
        self._indexer.skip(first, last)

    def drop_before(self, offset: int) -> None:
        """The log begins here: all messages before are acked."""
        self._inventory.ack_up_to(offset - 1)
        self._indexer.skip(self._inventory.indexed_to, offset - 1)

    def purge(self) -> None:
        """All indexed messages are acked. Messages that are sent from now on are no duplicates of them."""
        self._indexer.restart_at(self._inventory.indexed_to)
        self._indexer.dedupe_ids.clear()

    def drop_beyond(self, most: int, now_ms: int) -> None:
        """Ack the oldest messages until the backlog has at most so many. Those in flight, delayed and being moved stay,
        whatever their number."""
        self._lifecycle.drop_beyond(most, now_ms)
        invariant(self.backlog <= max(most, self.undroppable), 90, "a backlog that drops is within its bound")

    # -- persisting

    def load(self, entries: Iterable[InternalRecord]) -> None:
        """Continue from the persisted state: its live entries, in any order. To be called once, before all else."""
        persistence.load(self._inventory, self._indexer, entries)

    def take_changes(self) -> list[InternalRecord]:
        """The entries to persist since the last call, in an order of which any prefix is consistent."""
        return persistence.take_changes(self._inventory, self._indexer)

    # -- receiving

    def receive(self, most: int, now_ms: int, visibility_ms: int | None = None, receiver: str = "") -> list[Lease]:
        """Lease messages, by default for the queue's visibility timeout. `TooManyInFlight` if `queue.max.in.flight`
        allows no more; a fifo queue then gives nothing."""
        wanted = self._room(most, now_ms)
        if not wanted:
            return []
        inventory = self._inventory
        leases = inventory.leases
        if visibility_ms is None:
            visibility_ms = inventory.settings.visibility_timeout_ms
        until_ms = now_ms + visibility_ms
        leased = []
        offsets = inventory.available.order(now_ms, wanted)
        for offset in offsets if inventory.groups is None else self._of_groups(inventory.groups, offsets):
            held = leases.lease(offset, now_ms, until_ms, receiver)
            self._check_attempt(held)
            leased.append(Lease(offset, held.attempt, until_ms, held.first_received_ms))
            if len(leased) == wanted:
                break
        return leased

    def receive_ranges(self, most: int, now_ms: int, visibility_ms: int | None = None) -> list[LeaseRange]:
        """Like `receive`: the same messages in the same order, of a standard queue, as ranges. One that was never
        received costs hardly anything if its neighbours are received with it."""
        invariant(
            self._inventory.groups is None, 55, "the messages of a fifo queue are received in the order of groups"
        )
        wanted = self._room(most, now_ms)
        if visibility_ms is None:
            visibility_ms = self._inventory.settings.visibility_timeout_ms
        until_ms = now_ms + visibility_ms
        available, leases = self._inventory.available, self._inventory.leases
        ranges: list[LeaseRange] = []
        while wanted:
            run = available.take_run(now_ms, wanted)
            if run is not None:
                first, last = run
                leases.lease_run(first, last, now_ms, until_ms, "")
                ranges.append(LeaseRange(first, last, 1, until_ms, now_ms))
                wanted -= last - first + 1
                continue
            offset = next(available.order(now_ms, 1), None)
            if offset is None:
                break
            held = leases.lease(offset, now_ms, until_ms, "")
            self._check_attempt(held)
            ranges.append(LeaseRange(offset, offset, held.attempt, until_ms, held.first_received_ms))
            wanted -= 1
        return ranges

    def _room(self, most: int, now_ms: int) -> int:
        """How many messages may be leased."""
        self._lifecycle.due(now_ms)
        inventory = self._inventory
        leased, max_in_flight = inventory.leases.leased, inventory.settings.max_in_flight
        room = max_in_flight - leased
        if room <= 0 and inventory.groups is None and inventory.available:
            raise TooManyInFlight(
                f"{leased} messages are in flight, which is the most this queue may have: "
                "delete some, or raise queue.max.in.flight"
            )
        return max(0, min(most, room))

    def _check_attempt(self, held: LeaseRecord) -> None:
        most_attempts = self._lifecycle.most_attempts
        if most_attempts is not None:
            invariant(held.attempt - held.excused <= most_attempts, 54, "no message is received past the receive limit")

    @staticmethod
    def _of_groups(groups: MessageGroups, offsets: Iterable[int]) -> Iterator[int]:
        for offset in offsets:
            yield from groups.take(offset)

    def undo_receive(self, offset: int, attempt: int, now_ms: int) -> None:
        """The receiver never got the message: it is available at once, and the attempt does not count towards the
        receive limit."""
        held = self._leased(offset, attempt, now_ms)
        held.excused += 1
        self._lifecycle.end_lease(offset, held, now_ms, 0, held.reason)

    # -- messages in flight

    def acknowledge(
        self, leases: Sequence[tuple[int, int]], now_ms: int, *, any_attempt: bool = False
    ) -> list[NotInFlight | None]:
        """Ack messages, each given by offset and attempt; the failure of each, or None. A message that is acked already
        is fine. `NotInFlight` if it was received again since, unless `any_attempt` is allowed; in a fifo queue also if
        its lease is over, since another receiver may have the group."""
        self._lifecycle.due(now_ms)
        inventory = self._inventory
        is_standard = inventory.groups is None
        failures: list[NotInFlight | None] = [None] * len(leases)
        acked, moving, end = inventory.acked, inventory.moving, inventory.indexed_to
        lease_of = inventory.leases.get if inventory.leases.groups else inventory.leases.held.get
        newly_acked: dict[int, None] = {}
        for at, (offset, attempt) in enumerate(leases):
            known = lease_of(offset)
            is_valid = any_attempt or (
                known is not None and known.attempt == attempt and (is_standard or known.is_leased)
            )
            if is_valid and known is not None and offset not in moving:
                newly_acked[offset] = None
            elif offset in acked or (any_attempt and offset >= end):
                continue
            elif is_valid and offset not in moving:
                newly_acked[offset] = None
            else:
                failures[at] = NotInFlight(
                    f"message {offset} is not in flight with this receipt: it was received again, or is being moved"
                )
        inventory.ack_all(newly_acked)
        return failures

    def acknowledge_range(self, first: int, last: int, attempt: int, now_ms: int) -> dict[int, NotInFlight]:
        """Like `acknowledge` for neighbours, at the cost of one if nothing has happened to them since they were
        received together. The failures by offset."""
        self._lifecycle.due(now_ms)
        inventory = self._inventory
        if (
            attempt == 1
            and inventory.groups is None
            and not inventory.moving
            and inventory.leases.groups.count(first, last) == last - first + 1
        ):
            inventory.ack_run(first, last)
            return {}
        leases = [(offset, attempt) for offset in range(first, last + 1)]
        failures = zip(leases, self.acknowledge(leases, now_ms), strict=True)
        return {offset: failure for (offset, _), failure in failures if failure is not None}

    def extend(self, offset: int, attempt: int, visibility_ms: int, now_ms: int) -> int:
        """Let the lease last for so long from now on; its deadline. With 0 the message is available at once. A lease
        that is over is renewed if the message was not received again."""
        self._lifecycle.due(now_ms)
        inventory = self._inventory
        held = inventory.leases.get(offset)
        if held is None or held.attempt != attempt or offset in inventory.dead or offset in inventory.moving:
            raise NotInFlight(f"message {offset} was deleted, moved, or received again")
        longest_ms = inventory.policy.longest_lease_ms
        if longest_ms is not None and now_ms + visibility_ms - held.received_ms > longest_ms:
            raise LeaseTooLong(
                f"message {offset} would be in flight for longer than {longest_ms // 1000} seconds: "
                "delete it, or give it back to receive it again"
            )
        if visibility_ms <= 0:
            if held.is_leased:
                self._lifecycle.end_lease(offset, held, now_ms, 0, held.reason)
            return now_ms
        if held.is_leased:
            inventory.leases.extend(offset, held, now_ms + visibility_ms)
        else:
            inventory.available.take_off(offset)
            inventory.leases.lease_again(offset, held, now_ms + visibility_ms)
        return held.until_ms

    def nack(self, offset: int, attempt: int, now_ms: int, delay_ms: int | None = None, reason: str = "") -> int:
        """The message failed, and is hidden for the delay, by default that of the queue's retry policy; until when."""
        held = self._leased(offset, attempt, now_ms)
        if delay_ms is None:
            delay_ms = self._lifecycle.backoff_ms(held.attempt)
        self._lifecycle.end_lease(offset, held, now_ms, delay_ms, reason)
        return held.until_ms

    def _leased(self, offset: int, attempt: int, now_ms: int) -> LeaseRecord:
        self._lifecycle.due(now_ms)
        held = self._inventory.leases.get(offset)
        if held is None or not held.is_leased or held.attempt != attempt:
            raise NotInFlight(f"message {offset} is not in flight with this receipt")
        return held

    # -- moving

    def hold(self, wanted: Sequence[tuple[int, bytes]], now_ms: int) -> list[int]:
        """Reserve messages, given with their groups, for a transfer until they are `moved` or `release`: those that a
        receiver could get now. That is neither counted as a receive nor persisted: after a restart they are to be held
        again."""
        self._lifecycle.due(now_ms)
        held = self._inventory.receivable(wanted)
        for offset in held:
            self._inventory.begin_move(offset)
        return held

    def release(self, offset: int, now_ms: int) -> None:
        """A message that was held stays in this queue."""
        self._lifecycle.due(now_ms)
        if offset in self._inventory.moving:
            self._lifecycle.end_move(offset)

    def moved(self, offset: int) -> None:
        """A message that was dead, or held, is in another queue."""
        if offset in self._inventory.dead or offset in self._inventory.moving:
            self._inventory.ack(offset)

    # -- time

    @property
    def next_due_ms(self) -> int | None:
        """When `due` is to be called."""
        return self._lifecycle.next_due_ms

    def due(self, now_ms: int) -> None:
        """Do everything that is due by now: leases and delays end, messages expire and age out."""
        self._lifecycle.due(now_ms)
