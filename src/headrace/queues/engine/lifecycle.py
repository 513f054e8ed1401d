"""What happens to messages by themselves: leases and delays end, messages expire, age out, or are dead. Pure."""

from collections.abc import Callable

from headrace.config.queue import QueueSettings
from headrace.queues.engine.backoff import QueueRetryDelay
from headrace.queues.engine.indexer import Indexer
from headrace.queues.engine.inventory import Inventory
from headrace.queues.engine.stored import LeaseRecord

_SAVE_EVERY_MS = 60_000
# The most messages that one call of `due` handles; if there are more, the next call is due at once.
_SHOWN_AT_ONCE = 10_000
_AGED_AT_ONCE = 50_000
_EXPIRED_AT_ONCE = 2_000


class Lifecycle:
    def __init__(self, inventory: Inventory, indexer: Indexer, jitter: Callable[[], float]) -> None:
        """`jitter` gives numbers from 0 to 1."""
        self._inventory = inventory
        self._indexer = indexer
        self._jitter = jitter
        self._saved_ms = 0
        self.dropped = 0
        """How many messages were dropped because the backlog was at its bound."""
        self.moves_dead = True
        """Whether dead messages wait to be moved. If not, they are acked."""
        self._set_limits()

    def _set_limits(self) -> None:
        settings, policy = self._inventory.settings, self._inventory.policy
        self._retry_delay = QueueRetryDelay.of(settings)
        has_limit = settings.max_receives > 0 and (bool(settings.dead_letter) or not policy.limit_needs_dead_letter)
        self.most_attempts = settings.max_receives if has_limit else None
        """The receive limit, if there is one."""

    def configure(self, settings: QueueSettings, now_ms: int) -> None:
        inventory = self._inventory
        inventory.configure(settings)
        self._set_limits()
        for offset, held in list(inventory.leases.held.items()):
            if inventory.is_idle(offset) and self._is_at_limit(held):
                self._give_up(offset)
        self.due(now_ms)

    # -- leases

    def end_lease(self, offset: int, held: LeaseRecord, now_ms: int, delay_ms: int, reason: str) -> None:
        """The lease ends now. The message is hidden for the delay, unless it is not to be received again."""
        inventory = self._inventory
        if self._is_at_limit(held) or offset in inventory.expired:
            delay_ms = 0
        inventory.leases.end(offset, held, now_ms + max(0, delay_ms), reason, is_hidden=delay_ms > 0)
        self._came_back(offset, held)

    def backoff_ms(self, attempt: int) -> int:
        """How long a message that failed is hidden after this attempt."""
        return self._retry_delay.after(attempt, self._jitter())

    def end_move(self, offset: int) -> None:
        """A message that was to be moved stays in the queue."""
        inventory = self._inventory
        if offset in inventory.expired:
            inventory.ack(offset)
            return
        inventory.moving.remove(offset)
        held = inventory.leases.get(offset)
        if held is not None:
            self._came_back(offset, held)
        else:
            inventory.unblock(offset)

    def _came_back(self, offset: int, held: LeaseRecord) -> None:
        """A message is not in flight any more, in which case it may be hidden, or not hidden any more."""
        inventory = self._inventory
        if offset in inventory.expired:
            inventory.ack(offset)
        elif self._is_at_limit(held):
            self._give_up(offset)
        else:
            inventory.unblock(offset)

    def _is_at_limit(self, held: LeaseRecord) -> bool:
        if self.most_attempts is not None and held.attempt - held.excused >= self.most_attempts:
            return True
        rejected_reason = self._inventory.policy.rejected_reason
        return rejected_reason is not None and held.reason == rejected_reason

    def _give_up(self, offset: int) -> None:
        self._inventory.mark_dead(offset)
        if not self.moves_dead:
            self._inventory.ack(offset)

    # -- time

    @property
    def next_due_ms(self) -> int | None:
        """When `due` is to be called."""
        inventory = self._inventory
        times = [inventory.leases.next_ms, inventory.delays.next_ms, inventory.expiries.next_ms]
        for oldest_ms in (inventory.send_times.oldest_ms, inventory.delayed_retention.oldest_ms):
            if oldest_ms is not None:
                times.append(oldest_ms + inventory.age_limit_ms)
        if self._indexer.is_unsaved:
            times.append(self._saved_ms + _SAVE_EVERY_MS)
        return min((time for time in times if time is not None), default=None)

    def due(self, now_ms: int) -> None:
        """Do everything that is due by now."""
        inventory = self._inventory
        for offset, held, was_leased in inventory.leases.due(now_ms):
            if was_leased:
                self._back_off(offset, held, now_ms)
            self._came_back(offset, held)
        self._end_delays(now_ms)
        for offset in inventory.expiries.due(now_ms, _EXPIRED_AT_ONCE) or ():
            self._expire(offset)
        self._retain(now_ms)
        if now_ms - self._saved_ms >= _SAVE_EVERY_MS:
            self._saved_ms = now_ms
            inventory.forget_times_before_head()
            self._indexer.save_open(now_ms)

    def _back_off(self, offset: int, held: LeaseRecord, now_ms: int) -> None:
        """A lease that ended by its timeout counts as a failure at that time. The delay is not persisted: it follows
        from the lease."""
        inventory = self._inventory
        if self._is_at_limit(held) or offset in inventory.expired:
            return
        until_ms = held.until_ms + self.backoff_ms(held.attempt)
        if until_ms > now_ms:
            inventory.leases.hide(offset, held, until_ms)

    def _end_delays(self, now_ms: int) -> None:
        """Delays end, one turn of `delayed_retention` after another."""
        inventory = self._inventory
        room = _SHOWN_AT_ONCE
        while room > 0:
            soonest_ms = inventory.delays.next_ms
            if soonest_ms is None or soonest_ms > now_ms:
                return
            end_ms = inventory.delayed_retention.end_of(soonest_ms)
            due = inventory.delays.due(min(now_ms, end_ms), room)
            assert due is not None
            room -= len(due)
            inventory.delayed_retention.add_all(due, end_ms)
            inventory.end_delays(due)

    def _expire(self, offset: int) -> None:
        inventory = self._inventory
        if offset not in inventory.acked:
            held = inventory.leases.get(offset)
            if offset in inventory.moving or (held is not None and held.is_leased):
                inventory.expired.add(offset)
            else:
                inventory.ack(offset)

    def _retain(self, now_ms: int) -> None:
        """Ack messages that are older than the retention, or than a backlog that drops them may be."""
        inventory = self._inventory
        unacked = inventory.unacked
        send_times, delayed_retention = inventory.send_times, inventory.delayed_retention
        oldest_ms, oldest_delayed_ms = send_times.oldest_ms, delayed_retention.oldest_ms
        limit_ms = now_ms - inventory.age_limit_ms
        if oldest_ms is not None and oldest_ms <= limit_ms:
            last = send_times.sent_by(limit_ms)
            if last is not None:
                if not delayed_retention and not inventory.delayed:
                    inventory.ack_up_to(last)
                else:
                    last = min(last, max(inventory.head, inventory.retained_from) + _AGED_AT_ONCE)
                    inventory.ack_undelayed_up_to(last)
                send_times.forget_before(last + 1)
        if oldest_delayed_ms is not None and oldest_delayed_ms <= limit_ms:
            for offset in delayed_retention.take_due_by(limit_ms, _EXPIRED_AT_ONCE):
                if offset not in inventory.acked:
                    inventory.ack(offset)
        if inventory.age_limit_ms < inventory.settings.retention_ms:
            self.dropped += unacked - inventory.unacked

    def drop_beyond(self, most: int, now_ms: int) -> None:
        """Drop the oldest messages until the backlog has at most so many, as far as they can be dropped."""
        self.due(now_ms)
        excess = self._inventory.backlog - most
        if excess > 0:
            self.dropped += self._inventory.drop_oldest(excess)
