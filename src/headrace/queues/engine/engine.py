"""The lease engine of one queue: which message may be received by whom, and when. Pure: no I/O, no clock, no random.

    in the log → hidden (delayed) → available → in flight → done
                                        ↑            │
                                        └─ hidden ←──┤ returned, or its lease ended: for the backoff
                                                     └→ dead → done (moved to the dead-letter queue)

How it is driven. Times are wall time in ms that never goes back.
- `load` what was kept (nothing for a new queue), `drop_before` the log's start, then `index` every record of the log
  from `indexed_to` to its committed end, in order, and go on with each that comes. Only then anything else, `due`
  first. Offsets that are left out are no messages.
- Every call changes the state at once. `take_changes` gives what is to be kept since it was asked last; an answer
  counts when what was taken after it is committed. Of what was taken and not committed any prefix may be there: what is
  loaded from it is a state that the queue could have been in, and nothing that was answered is undone.
- `due(now)` when `next_due_ms` has come; every call that takes a time does it, too. After it, and after everything else
  that may have made messages available: `has_available` says whether to wake receivers, `has_dead` whether there are
  messages to be moved.
- Records below `log_start`, asked for after `take_changes` and used when that is committed, are not needed any more.

An attempt is counted with each receive, from 1; offset and attempt are a receipt. It is good for acknowledging and for
`extend` until the message is received again; for `give_back`, and for acknowledging in a fifo queue, only while it is
in flight: `NotInFlight` otherwise.

Nothing starves: a message that came back stands behind those that wait. While a message is available, no other one of
its priority is received twice, but for those that a restart put back; in a fifo queue that goes for the first message
of each group.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from headrace.config.queue import QueueSettings
from headrace.model.errors import LeaseTooLong, NotInFlight, TooManyInFlight
from headrace.queues.api import Counts
from headrace.queues.engine.backoff import RetryBackoff
from headrace.queues.engine.delayed_retention import turn_ms
from headrace.queues.engine.inventory import QUEUE_POLICY, EnginePolicy, Inventory
from headrace.queues.engine.send_times import grain_ms
from headrace.queues.engine.stored import LeaseRecord

_SAVE_EVERY_MS = 60_000
# How many messages one call does something with at the most; then more is due, and it is called again.
_SHOWN_AT_ONCE = 10_000
_AGED_AT_ONCE = 50_000
_FINISHED_AT_ONCE = 2_000


class Lease(NamedTuple):
    offset: int
    attempt: int
    deadline_ms: int
    first_received_ms: int


class DeadMessage(NamedTuple):
    """A message that was received as often as it may be, and waits to be moved."""

    offset: int
    attempt: int
    first_received_ms: int
    reason: str


class MessageState(NamedTuple):
    """A message that is not done, as it is."""

    state: str
    """As in `api.Peeked`."""
    attempt: int
    until_ms: int | None
    """None also of a message that was never received and is delayed: its record says until when."""
    first_received_ms: int | None


class Engine(Inventory):
    def __init__(
        self, settings: QueueSettings, jitter: Callable[[], float], keeping: EnginePolicy = QUEUE_POLICY
    ) -> None:
        """`jitter` gives numbers from 0 to 1."""
        super().__init__(settings, keeping)
        self._jitter = jitter
        self._saved_ms = 0
        self._limits()

    def _limits(self) -> None:
        settings = self._settings
        self._backoff = RetryBackoff.of(settings)
        has_limit = settings.max_receives > 0 and (bool(settings.dead_letter) or not self._keeping.dead_letters)
        self._most_attempts = settings.max_receives if has_limit else None

    def configure(self, settings: QueueSettings, now_ms: int) -> None:
        """Other settings, of the same type. Delays of messages that are there do not change."""
        self._settings = settings
        self._limits()
        self._ages.grain = grain_ms(settings.retention_ms, settings.priority_ageing_ms)
        self._late.turn_ms = turn_ms(settings.retention_ms)
        self._shelf.ageing_ms = settings.priority_ageing_ms
        for offset, held in list(self._leases.held.items()):
            is_elsewhere = held.is_leased or self._leases.is_hidden(offset) or offset in self._moving
            if not is_elsewhere and offset not in self._dead and self._is_at_limit(held):
                self._give_up(offset)
        self.due(now_ms)

    # -- what is there

    @property
    def has_available(self) -> bool:
        return bool(self._shelf)

    @property
    def in_flight(self) -> int:
        return self._leases.leased + len(self._moving)

    def counts(self) -> Counts:
        leases = self._leases
        in_flight, delayed = self.in_flight, len(self._delayed) + leases.hidden
        return Counts(self._live - in_flight - delayed - len(self._dead), in_flight, delayed)

    @property
    def has_dead(self) -> bool:
        return bool(self._dead)

    def dead(self, most: int = 1000) -> list[DeadMessage]:
        """The first of the messages that are to be moved, and then are `moved`."""
        found = []
        for offset in self._dead:
            held = self._leases.held[offset]
            found.append(DeadMessage(offset, held.attempt, held.first_received_ms, held.reason))
            if len(found) == most:
                break
        return found

    def look(self, offset: int) -> MessageState | None:
        """How a message is; None if it is done, or was not indexed."""
        if offset >= self.indexed_to or offset in self._done:
            return None
        held = self._leases.held.get(offset)
        if offset in self._moving:
            return MessageState(
                "in flight", held.attempt if held else 0, None, held.first_received_ms if held else None
            )
        if held is None:
            return MessageState("delayed" if offset in self._delayed else "available", 0, None, None)
        if offset in self._dead:
            state, until_ms = "dead", None
        elif held.is_leased:
            state, until_ms = "in flight", held.until_ms
        elif self._leases.is_hidden(offset):
            state, until_ms = "delayed", held.until_ms
        else:
            state, until_ms = "available", None
        return MessageState(state, held.attempt, until_ms, held.first_received_ms)

    # -- receiving and what follows

    def receive(self, most: int, now_ms: int, visibility_ms: int | None = None, receiver: str = "") -> list[Lease]:
        """Lease messages, for as long as the queue says unless told otherwise. `TooManyInFlight` if nothing can be
        leased for that reason; a fifo queue then gives nothing."""
        self.due(now_ms)
        room = self._settings.max_in_flight - self._leases.leased
        if room <= 0 and self._groups is None and self._shelf:
            raise TooManyInFlight(
                f"{self._leases.leased} messages are in flight, which is the most this queue may have: "
                "delete some, or raise queue.max.in.flight"
            )
        wanted = min(most, room)
        if wanted <= 0:
            return []
        if visibility_ms is None:
            visibility_ms = self._settings.visibility_timeout_ms
        until_ms = now_ms + visibility_ms
        leased = []
        for offset in self._next(wanted, now_ms):
            held = self._leases.lease(offset, now_ms, until_ms, receiver)
            leased.append(Lease(offset, held.attempt, until_ms, held.first_received_ms))
            if len(leased) == wanted:
                break
        return leased

    def hold(self, wanted: Sequence[tuple[int, bytes]], now_ms: int) -> list[int]:
        """Keep messages, given with their groups, from receivers until they are `moved` or `let_go`: those that are
        available, and in a fifo queue of groups that a receiver could get something of. It is not counted as a receive,
        and not kept: whoever loads the queue again holds them again."""
        self.due(now_ms)
        free = self._receivable(wanted)
        for offset in free:
            self._moving.add(offset)
            self._shelf.take_off(offset)
        return free

    def _receivable(self, wanted: Sequence[tuple[int, bytes]]) -> list[int]:
        """Those of these messages, given with their groups, that a receiver could get."""
        if self._groups is None:
            looks = [(offset, self.look(offset)) for offset, _ in wanted]
            return [offset for offset, look in looks if look is not None and look.state == "available"]
        last_of: dict[bytes, int] = {}
        for offset, group in wanted:
            last_of[group] = max(offset, last_of.get(group, offset))
        receivable = {offset for group, last in last_of.items() for offset in self._groups.receivable(group, last)}
        return [offset for offset, _ in wanted if offset in receivable]

    def let_go(self, offset: int, now_ms: int) -> None:
        """It is not moved after all."""
        self.due(now_ms)
        if offset in self._moving:
            held = self._leases.held.get(offset)
            if offset in self._expired:
                self._finish(offset)
                return
            self._moving.remove(offset)
            if held is not None:
                self._came_back(offset, held)
            elif self._groups is None:
                self._shelf.put(offset)
            else:
                self._groups.unblocked(offset)

    def moved(self, offset: int) -> None:
        """A message that was dead, or held, is in another queue."""
        if offset in self._dead or offset in self._moving:
            self._finish(offset)

    def _next(self, wanted: int, now_ms: int) -> Iterator[int]:
        for offset in self._shelf.order(now_ms, wanted):
            if self._groups is None:
                yield offset
            else:
                yield from self._groups.take(offset)

    def acknowledge(
        self, leases: Sequence[tuple[int, int]], now_ms: int, *, any_attempt: bool = False
    ) -> list[NotInFlight | None]:
        """They are done, each an offset and an attempt; what went wrong with which. Fine if it is done already.
        `NotInFlight` if it was received again since, unless `any_attempt` will do; in a fifo queue also if its lease is
        over, for another receiver may get the group now."""
        self.due(now_ms)
        is_standard = self._groups is None
        failures: list[NotInFlight | None] = [None] * len(leases)
        held, done, moving, end = self._leases.held, self._done, self._moving, self.indexed_to
        finished: dict[int, None] = {}
        for at, (offset, attempt) in enumerate(leases):
            known = held.get(offset)
            is_yours = any_attempt or (
                known is not None and known.attempt == attempt and (is_standard or known.is_leased)
            )
            if is_yours and known is not None and offset not in moving:
                finished[offset] = None
            elif offset in done or (any_attempt and offset >= end):
                continue
            elif is_yours and offset not in moving:
                finished[offset] = None
            else:
                failures[at] = NotInFlight(
                    f"message {offset} was received by somebody else since, or by nobody, or is being moved"
                )
        self._finish_all(finished)
        return failures

    def extend(self, offset: int, attempt: int, visibility_ms: int, now_ms: int) -> int:
        """It is leased for so long from now on: until when. With 0 it is available at once. A lease that is over goes
        on if nobody has received the message since."""
        self.due(now_ms)
        held = self._leases.held.get(offset)
        if held is None or held.attempt != attempt or offset in self._dead or offset in self._moving:
            raise NotInFlight(f"message {offset} is done, or was received by somebody else since")
        longest_ms = self._keeping.longest_lease_ms
        if longest_ms is not None and now_ms + visibility_ms - held.received_ms > longest_ms:
            raise LeaseTooLong(
                f"message {offset} would be in flight for longer than {longest_ms // 1000} seconds: "
                "delete it, or give it back to receive it again"
            )
        if visibility_ms <= 0:
            if held.is_leased:
                self._return(offset, held, now_ms, 0, held.reason)
            return now_ms
        if held.is_leased:
            self._leases.extend(offset, held, now_ms + visibility_ms)
        else:
            self._shelf.take_off(offset)
            self._leases.lease_again(offset, held, now_ms + visibility_ms)
        return held.until_ms

    def undo_receive(self, offset: int, attempt: int, now_ms: int) -> None:
        """Its receiver never got it: it is available at once, and the receive does not count towards the limit."""
        held = self._leased(offset, attempt, now_ms)
        held.excused += 1
        self._return(offset, held, now_ms, 0, held.reason)

    def give_back(self, offset: int, attempt: int, now_ms: int, delay_ms: int | None = None, reason: str = "") -> int:
        """It failed, and is hidden for so long, or as the queue's retry policy says: until when."""
        held = self._leased(offset, attempt, now_ms)
        if delay_ms is None:
            delay_ms = self._backoff.delay_ms(held.attempt, self._jitter())
        self._return(offset, held, now_ms, delay_ms, reason)
        return held.until_ms

    def purge(self) -> None:
        """Everything that was indexed is done. What is sent from now on is no duplicate of it."""
        self._start_at(self.indexed_to)
        self._ids.clear()

    def drop_before(self, offset: int) -> None:
        """The log begins here: everything before is done."""
        self._finish_up_to(offset - 1)
        self.skip(self.indexed_to, offset - 1)

    def _leased(self, offset: int, attempt: int, now_ms: int) -> LeaseRecord:
        self.due(now_ms)
        held = self._leases.held.get(offset)
        if held is None or not held.is_leased or held.attempt != attempt:
            raise NotInFlight(f"message {offset} is not in flight any more, or was received by somebody else since")
        return held

    def _return(self, offset: int, held: LeaseRecord, now_ms: int, delay_ms: int, reason: str) -> None:
        """Its lease ends now. What is not to be received again is not hidden before."""
        if self._is_at_limit(held) or offset in self._expired:
            delay_ms = 0
        self._leases.give_back(offset, held, now_ms + max(0, delay_ms), reason, is_hidden=delay_ms > 0)
        self._came_back(offset, held)

    # -- time

    @property
    def next_due_ms(self) -> int | None:
        """When `due` is to be called."""
        times = [self._leases.next_ms, self._delays.next_ms, self._expiries.next_ms]
        for oldest_ms in (self._ages.oldest_ms, self._late.oldest_ms):
            if oldest_ms is not None:
                times.append(oldest_ms + self._settings.retention_ms)
        if self._index.is_unsaved:
            times.append(self._saved_ms + _SAVE_EVERY_MS)
        return min((time for time in times if time is not None), default=None)

    def due(self, now_ms: int) -> None:
        """Whatever is to happen by now: leases and delays end, messages are too old."""
        for offset, held, was_leased in self._leases.due(now_ms):
            if was_leased:
                self._hide_again(offset, held, now_ms)
            self._came_back(offset, held)
        self._show(now_ms)
        for offset in self._expiries.due(now_ms, _FINISHED_AT_ONCE) or ():
            self._expire(offset)
        self._age(now_ms)

    def _show(self, now_ms: int) -> None:
        """Delays end, turn by turn."""
        room = _SHOWN_AT_ONCE
        while room > 0:
            soonest_ms = self._delays.next_ms
            if soonest_ms is None or soonest_ms > now_ms:
                return
            end_ms = self._late.end_of(soonest_ms)
            shown = self._delays.due(min(now_ms, end_ms), room)
            assert shown is not None
            room -= len(shown)
            self._late.add_all(shown, end_ms)
            shown &= self._delayed
            self._delayed -= shown
            if self._groups is None:
                self._shelf.put_all(shown)
            else:
                for offset in shown:
                    self._groups.unblocked(offset)

    def _age(self, now_ms: int) -> None:
        oldest_ms, late_ms = self._ages.oldest_ms, self._late.oldest_ms
        limit_ms = now_ms - self._settings.retention_ms
        if oldest_ms is not None and oldest_ms <= limit_ms:
            last = self._ages.sent_by(limit_ms)
            if last is not None:
                if not self._late and not self._delayed:
                    self._finish_up_to(last)
                else:
                    last = min(last, max(self.head, self._aged_to) + _AGED_AT_ONCE)
                    self._finish_aged(last)
                self._ages.forget_before(last + 1)
        if late_ms is not None and late_ms <= limit_ms:
            for offset in self._late.take_due_by(limit_ms, _FINISHED_AT_ONCE):
                if offset not in self._done:
                    self._finish(offset)
        if now_ms - self._saved_ms >= _SAVE_EVERY_MS:
            self._saved_ms = now_ms
            self._ages.forget_before(self.head)
            self._delays.forget_before(self.head)
            self._expiries.forget_before(self.head)
            self._late.forget_before(self.head)
            self._ids.forget(now_ms)
            self._ids.save_open()
            self._index.save_open()

    def _hide_again(self, offset: int, held: LeaseRecord, now_ms: int) -> None:
        """Its receiver is gone, or was too slow: that counts as a failure at the end of the lease. Not kept, since it
        follows from what is."""
        if self._is_at_limit(held) or offset in self._expired:
            return
        until_ms = held.until_ms + self._backoff.delay_ms(held.attempt, self._jitter())
        if until_ms > now_ms:
            self._leases.hide(offset, held, until_ms)

    def _expire(self, offset: int) -> None:
        if offset not in self._done:
            held = self._leases.held.get(offset)
            if offset in self._moving or (held is not None and held.is_leased):
                self._expired.add(offset)
            else:
                self._finish(offset)

    def _is_at_limit(self, held: LeaseRecord) -> bool:
        return self._most_attempts is not None and held.attempt - held.excused >= self._most_attempts

    def _came_back(self, offset: int, held: LeaseRecord) -> None:
        """A message is leased no more (then it may be hidden), or hidden no more."""
        if offset in self._expired:
            self._finish(offset)
        elif self._is_at_limit(held):
            self._give_up(offset)
        elif self._groups is not None:
            self._groups.unblocked(offset)
        elif not self._leases.is_hidden(offset):
            self._make_available(offset)

    def _give_up(self, offset: int) -> None:
        """It was received as often as it may be."""
        self._dead[offset] = None
        self._shelf.take_off(offset)
        if self._groups is not None:
            self._groups.gone(offset)
        if not self._moves_dead:
            self._finish(offset)

    @property
    def _moves_dead(self) -> bool:
        """Whether dead messages wait to be moved. If not, they are done."""
        return self._keeping.dead_letters
