"""Where each message of a queue is: delayed, available, in flight, dead, being moved, or acked. Pure.

`Inventory` moves messages between those places. It does not decide when: `indexer` adds the messages of the log,
`lifecycle` ends leases and delays, `engine` answers receivers, and `persistence` stores and restores all of it.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from pyroaring import BitMap64

from headrace.config.queue import QueueSettings
from headrace.model.queue_wire import Counts
from headrace.queues.engine.acked import AckedOffsets, bits_of, chunks_of, number_with, numbers_of
from headrace.queues.engine.available import AvailableMessages
from headrace.queues.engine.delayed_retention import DelayedRetention, turn_ms
from headrace.queues.engine.fifo import MessageGroups
from headrace.queues.engine.leases import Leases
from headrace.queues.engine.policy import EnginePolicy
from headrace.queues.engine.schedule import Schedule
from headrace.queues.engine.send_times import SendTimes, grain_ms
from headrace.queues.engine.stored import CHUNK_BITS, IndexValue, LeaseRecord


def _grain_ms(settings: QueueSettings) -> int:
    return grain_ms(settings.age_limit_ms, settings.priority_ageing_ms, settings.max_backlog_age_ms)


class DeadMessage(NamedTuple):
    """A message that has reached the receive limit and waits to be moved."""

    offset: int
    attempt: int
    first_received_ms: int
    reason: str


class MessageState(NamedTuple):
    """The state of a message that is not acked."""

    state: str
    """As in `api.Peeked`."""
    attempt: int
    until_ms: int | None
    """None also for a delayed message that was never received: its record has the time."""
    first_received_ms: int | None


class Inventory:
    def __init__(self, settings: QueueSettings, policy: EnginePolicy) -> None:
        self.settings = settings
        self.policy = policy
        self.acked = AckedOffsets()
        self.leases = Leases(survive=policy.persist_leases)
        self.indexed_to = 0
        """The offset that is to be indexed next."""
        self.log_end = 0
        """Messages that come back are received after all below this offset, also those that are not indexed yet."""
        self._reset()

    def _reset(self) -> None:
        settings = self.settings
        self.age_limit_ms = settings.age_limit_ms
        self.droppable_from = 0
        """All messages below that are not acked are in flight, delayed, dead or being moved."""
        self._undelayed_from = 0
        """All messages below are acked, or were sent with a delay."""
        self.unacked = 0
        """How many messages are indexed and not acked."""
        self.send_times = SendTimes(_grain_ms(settings))
        self.available = AvailableMessages(self.send_times, settings.priority_ageing_ms)
        self.delayed = BitMap64()
        """Messages that were never received, and are not available yet."""
        self.delays = Schedule()
        self.expiries = Schedule()
        self.delayed_retention = DelayedRetention(settings.age_limit_ms)
        self.retained_from = 0
        """Messages below were acked by the retention of their send time, except those that were sent with a delay."""
        self.expired: set[int] = set()
        """Messages whose time to live ended while they were in flight or being moved."""
        self.dead: dict[int, None] = {}
        self.moving: set[int] = set()
        """Messages on their way to another queue."""
        self.groups = (
            MessageGroups(
                self.available,
                is_gone=self.is_gone,
                is_blocked=self._is_blocked,
                make_available=self.make_available,
            )
            if settings.is_fifo
            else None
        )

    def restart_at(self, head: int) -> None:
        """Forget all messages: those below `head` are acked, and none above is indexed."""
        for offset in list(self.leases.offsets()):
            self.leases.forget(offset)
        self.acked.move_to(head)
        self.indexed_to = head
        self._reset()

    def configure(self, settings: QueueSettings) -> None:
        """Settings of the same queue type. The delays of messages in the queue do not change."""
        self.settings = settings
        self.age_limit_ms = settings.age_limit_ms
        self.send_times.grain = _grain_ms(settings)
        self.delayed_retention.turn_ms = turn_ms(settings.age_limit_ms)
        self.available.ageing_ms = settings.priority_ageing_ms

    # -- reading

    @property
    def head(self) -> int:
        """All messages below are acked."""
        return min(self.acked.head, self.indexed_to)

    @property
    def in_flight(self) -> int:
        return self.leases.leased + len(self.moving)

    def counts(self) -> Counts:
        in_flight, delayed = self.in_flight, len(self.delayed) + self.leases.hidden
        return Counts(self.unacked - in_flight - delayed - len(self.dead), in_flight, delayed)

    @property
    def backlog(self) -> int:
        """How many messages wait to be deleted: dead ones are on their way to another queue."""
        return self.unacked - len(self.dead)

    @property
    def undroppable(self) -> int:
        """How many messages of the backlog are in flight or were never due."""
        return self.in_flight + len(self.delayed)

    def oldest_ms(self) -> int | None:
        """When the oldest message was sent at the latest, of those that were sent without a delay; None without any."""
        at = max(self._undelayed_from, self.head)
        for offset in self.live(at):
            if offset not in self.delayed and not self.delayed_retention.between(BitMap64((offset,))):
                self._undelayed_from = offset
                return self.send_times.sent_ms(offset)
        self._undelayed_from = self.indexed_to
        return None

    def live(self, first: int) -> Iterator[int]:
        """The messages that are not acked, from this offset on, by offset."""
        for chunk, start, end in chunks_of(max(first, self.head), self.indexed_to - 1):
            base = chunk << CHUNK_BITS
            for number in numbers_of(bits_of(start, end) & ~self.acked.bits(chunk)):
                yield base + number

    def look(self, offset: int) -> MessageState | None:
        """The state of a message; None if it is acked, or not indexed."""
        if offset >= self.indexed_to or offset in self.acked:
            return None
        held = self.leases.seen(offset)
        if offset in self.moving:
            return MessageState(
                "in flight", held.attempt if held else 0, None, held.first_received_ms if held else None
            )
        if held is None:
            return MessageState("delayed" if offset in self.delayed else "available", 0, None, None)
        if offset in self.dead:
            state, until_ms = "dead", None
        elif held.is_leased:
            state, until_ms = "in flight", held.until_ms
        elif self.leases.is_hidden(offset):
            state, until_ms = "delayed", held.until_ms
        else:
            state, until_ms = "available", None
        return MessageState(state, held.attempt, until_ms, held.first_received_ms)

    def first_dead(self, most: int) -> list[DeadMessage]:
        found = []
        for offset in self.dead:
            held = self.leases.held[offset]
            found.append(DeadMessage(offset, held.attempt, held.first_received_ms, held.reason))
            if len(found) == most:
                break
        return found

    def receivable(self, wanted: Sequence[tuple[int, bytes]]) -> list[int]:
        """Those of these messages, given with their groups, that a receiver could get now."""
        if self.groups is None:
            looks = [(offset, self.look(offset)) for offset, _ in wanted]
            return [offset for offset, look in looks if look is not None and look.state == "available"]
        last_of: dict[bytes, int] = {}
        for offset, group in wanted:
            last_of[group] = max(offset, last_of.get(group, offset))
        receivable = {offset for group, last in last_of.items() for offset in self.groups.receivable(group, last)}
        return [offset for offset, _ in wanted if offset in receivable]

    def is_gone(self, offset: int) -> bool:
        """Whether it is acked or dead, so that its message group goes on without it."""
        return offset in self.acked or offset in self.dead

    def is_idle(self, offset: int) -> bool:
        """Whether a message that was received before is now neither in flight, hidden, dead nor being moved."""
        held = self.leases.held[offset]
        is_elsewhere = held.is_leased or self.leases.is_hidden(offset) or offset in self.moving
        return not is_elsewhere and offset not in self.dead

    def _is_blocked(self, offset: int) -> bool:
        """Whether it is in flight or hidden, so that its message group waits for it."""
        held = self.leases.held.get(offset)
        if held is None:
            return offset in self.delayed or offset in self.moving
        return held.is_leased or self.leases.is_hidden(offset) or offset in self.moving

    # -- becoming available, and ceasing to be

    def add(self, offset: int, group: bytes, *, is_delayed: bool) -> None:
        """A new message, the last of its group."""
        self.unacked += 1
        if is_delayed:
            self.delayed.add(offset)
        self.place(offset, group)

    def place(self, offset: int, group: bytes) -> None:
        """Make a message available that was never received, unless it is delayed or its group is blocked."""
        if self.groups is not None:
            self.groups.add(offset, group)
        elif offset not in self.delayed:
            self.available.put(offset)

    def place_received(self, offset: int, held: LeaseRecord, group: bytes) -> None:
        """A message that was received before this state was loaded."""
        self.leases.load(offset, held)
        if self.groups is not None:
            self.groups.add(offset, group)

    def make_available(self, offset: int) -> None:
        """A message that was received before is received again after all others that are available."""
        self.droppable_from = min(self.droppable_from, offset)
        held = self.leases.held.get(offset)
        if held is None or (held.until_ms <= 0 and not self.policy.persist_leases):
            # A lease that a restart cut short: the messages of the log are received in order again.
            self.available.put(offset)
        else:
            self.available.put_behind(offset, max(self.log_end, self.indexed_to), held.until_ms)

    def unblock(self, offset: int) -> None:
        """A message that is neither in flight nor hidden any more is available, if it was never received or its group
        allows it."""
        self.droppable_from = min(self.droppable_from, offset)
        if self.groups is not None:
            self.groups.unblocked(offset)
        elif not self.leases.is_hidden(offset):
            self.make_available(offset)

    def end_delays(self, offsets: BitMap64) -> None:
        """Of these messages, those that are still delayed are available. `offsets` is used up."""
        offsets &= self.delayed
        self.delayed -= offsets
        if offsets:
            self.droppable_from = min(self.droppable_from, offsets.min())
        if self.groups is None:
            self.available.put_all(offsets)
        else:
            for offset in offsets:
                self.groups.unblocked(offset)

    def mark_dead(self, offset: int) -> None:
        """A message has reached the receive limit: it is never received again."""
        self.dead[offset] = None
        self.available.take_off(offset)
        if self.groups is not None:
            self.groups.gone(offset)

    def begin_move(self, offset: int) -> None:
        self.moving.add(offset)
        self.available.take_off(offset)

    def chunk_closed(self, number: int, value: IndexValue) -> None:
        """All messages of a chunk are indexed."""
        self.delays.close(number, value.delayed)
        self.expiries.close(number, value.expiring)

    # -- acking

    def ack(self, offset: int) -> None:
        """A message that is not acked yet."""
        self.acked.add(offset)
        self.unacked -= 1
        held = self.leases.forget(offset)
        self.available.forget(offset)
        if offset in self.moving:
            self.moving.remove(offset)
        if held is None:
            self.delayed.discard(offset)
        elif self.dead:
            self.dead.pop(offset, None)
        if self.expired:
            self.expired.discard(offset)
        if self.groups is not None:
            self.groups.gone(offset)

    def ack_all(self, offsets: Collection[int]) -> None:
        """Messages that are not acked yet: neighbours together, which is faster."""
        if self.groups is not None or self.moving:
            for offset in offsets:
                self.ack(offset)
            return
        ordered = sorted(offsets)
        first = 0
        for at, offset in enumerate(ordered, 1):
            if at == len(ordered) or ordered[at] != offset + 1:
                if first == at - 1:
                    self.ack(offset)
                else:
                    self.ack_run(ordered[first], offset)
                first = at

    def ack_run(self, first: int, last: int) -> None:
        """Like `ack`, in a standard queue of which nothing is being moved."""
        self.acked.add_range(first, last)
        self.unacked -= last - first + 1
        self.available.forget_range(first, last)
        if self.delayed:
            self.delayed.remove_range(first, last + 1)
        self.leases.forget_run(first, last)
        if self.dead or self.expired:
            for offset in range(first, last + 1):
                self.dead.pop(offset, None)
                self.expired.discard(offset)

    def ack_leased(self, first: int, last: int) -> None:
        """Messages that are all in flight, in a queue without groups, priorities and times to live."""
        for offset in range(first, last + 1):
            self.leases.forget(offset)
        self.unacked -= self.acked.add_range(first, last)

    def ack_up_to(self, last: int) -> None:
        """All indexed messages up to this offset."""
        head, last = self.head, min(last, self.indexed_to - 1)
        if last < head:
            return
        for offset in [offset for offset in chain(self.moving, self.leases.offsets()) if offset <= last]:
            if offset not in self.acked:
                self.ack(offset)
        self.unacked -= self.acked.add_range(self.head, last)
        self.available.forget_range(head, last)
        self.delayed.remove_range(head, last + 1)
        if self.groups is not None:
            self.groups.gone_up_to(last)

    def ack_undelayed_up_to(self, last: int) -> None:
        """Like `ack_up_to`, but skips messages that were sent with a delay: their retention begins later."""
        first = max(self.head, self.retained_from)
        self.retained_from = last + 1
        gone = BitMap64()
        gone.add_range(first, last + 1)
        gone -= self.delayed
        gone -= self.delayed_retention.between(gone)
        for offset in [offset for offset in chain(self.moving, self.leases.offsets()) if offset in gone]:
            if offset not in self.acked:
                self.ack(offset)
        for chunk, start, end in chunks_of(first, last):
            base = chunk << CHUNK_BITS
            part = BitMap64()
            part.add_range(base + start, base + end + 1)
            part &= gone
            self.unacked -= self.acked.add_bits(chunk, number_with(offset - base for offset in part))
        self.available.forget_all(gone)
        if self.groups is not None:
            self.groups.gone_up_to(last)

    def drop_oldest(self, count: int) -> int:
        """Ack up to so many of the oldest messages that are neither in flight, delayed, dead nor being moved; how many
        there were."""
        dropped = list[int]()
        at = max(self.droppable_from, self.head)
        for offset in self.live(at):
            if len(dropped) == count:
                break
            at = offset + 1
            is_leased = self.leases.is_leased(offset)
            if not is_leased and offset not in self.delayed and offset not in self.moving and offset not in self.dead:
                dropped.append(offset)
        self.droppable_from = at
        self.ack_all(dropped)
        return len(dropped)

    def forget_times_before_head(self) -> None:
        """Free the memory that acked messages take in the schedules and the groups."""
        self.send_times.forget_before(self.head)
        self.delays.forget_before(self.head)
        self.expiries.forget_before(self.head)
        self.delayed_retention.forget_before(self.head)
        if self.groups is not None:
            self.groups.forget_before(self.head)
