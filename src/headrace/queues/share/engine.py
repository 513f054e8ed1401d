"""The lease engine for share groups (KIP-932): records in the order of their offsets, acknowledged by ranges. Pure.

It is driven like `engine.Engine`, with these differences. Nothing is kept of what was indexed: after `load`, index
everything from `indexed_to` to the end again, in one call of `index_plain(first, last, None, now)`. Of a lease only the
delivery is kept: what was acquired and not acknowledged is available after a restart, and its next delivery counts one
more. A record that was delivered as often as it may be and comes back is done (archived); deliveries that were excused
do not count towards that limit. If the group has a dead-letter topic, such a record and one that is rejected is `dead`
until it was written there, and then `moved`.

`log_end` is to be set as the log grows: a record that comes back stands behind all that are in the log by then, also
those that were not indexed yet. After a restart the order is that of the offsets again.

Ranges include both ends. `NotInFlight`, and nothing changes, if any record of the range is not acquired by this
receiver.
"""

from typing import NamedTuple

from headrace.config.queue import QueueSettings
from headrace.model.errors import NotInFlight
from headrace.queues.engine.engine import Engine
from headrace.queues.engine.inventory import EnginePolicy
from headrace.queues.engine.stored import LeaseRecord

_SHARE = EnginePolicy(leases=False, index=False, dead_letters=False, longest_lease_ms=None)
_FOREVER_MS = 1 << 50
_REJECTED = "rejected"
"""The reason that is kept of a record which is dead because a member said so."""


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


class ShareEngine(Engine):
    def __init__(self, most_deliveries: int, most_in_flight: int, lock_ms: int, *, buries: bool = False) -> None:
        """`buries`: whether the group has a dead-letter topic."""
        self._buries = buries
        self.log_end = 0
        """Where the log ends for members: a record that comes back stands behind all that are before it."""
        super().__init__(_settings(most_deliveries, most_in_flight, lock_ms), lambda: 0.5, _SHARE)

    def limit(
        self, most_deliveries: int, most_in_flight: int, lock_ms: int, now_ms: int, *, buries: bool = False
    ) -> None:
        """Other limits, from now on. Without a dead-letter topic what is dead is done."""
        self._buries = buries
        if not buries:
            for offset in tuple(self._dead):
                self._finish(offset)
        self.configure(_settings(most_deliveries, most_in_flight, lock_ms), now_ms)

    @property
    def _moves_dead(self) -> bool:
        return self._buries

    def _is_at_limit(self, held: LeaseRecord) -> bool:
        return held.reason == _REJECTED or super()._is_at_limit(held)

    def is_rejected(self, offset: int) -> bool:
        """Whether a dead record is that because a member said so."""
        held = self._leases.held.get(offset)
        return held is not None and held.reason == _REJECTED

    def start_at(self, offset: int) -> None:
        """Begin anew, with every record from here on undelivered. Index from here."""
        self._start_at(offset)

    @property
    def _tail(self) -> int:
        return max(self.log_end, self.indexed_to)

    def _make_available(self, offset: int) -> None:
        held = self._leases.held.get(offset)
        if held is not None and held.until_ms <= 0:
            # A restart ended its delivery, or an earlier one: the records of the log are delivered in order again.
            self._shelf.put(offset)
        else:
            super()._make_available(offset)

    def _reached(self) -> int | None:
        """What stands before this offset may be acquired; None: everything."""
        first = self._shelf.first()
        if first is None and self.indexed_to < self.log_end:
            return self.indexed_to
        return first

    def next_available(self, now_ms: int) -> int | None:
        """The record that is to be acquired next. None if it was not indexed, or there is none."""
        self.due(now_ms)
        reached = self._reached()
        returned = self._shelf.first_returned(reached)
        return self._shelf.first() if returned is None else returned

    def acquire(
        self, first: int, last: int, most: int, now_ms: int, receiver: str, lock_ms: int | None = None
    ) -> list[AcquiredRange]:
        """Records of this range, the first that are available: before others those that were never delivered. None if
        as many are in flight as may be."""
        self.due(now_ms)
        wanted = min(most, self._settings.max_in_flight - self._leases.leased)
        if wanted <= 0:
            return []
        until_ms = now_ms + (self._settings.visibility_timeout_ms if lock_ms is None else lock_ms)
        spans: list[AcquiredRange] = []
        found = self._shelf.take_between(first, last, wanted)
        if len(found) < wanted:
            found += self._shelf.take_returned_between(first, last, wanted - len(found), self._reached())
            found.sort()
        for offset in found:
            attempt = self._leases.lease(offset, now_ms, until_ms, receiver).attempt
            if spans and spans[-1].last + 1 == offset and spans[-1].attempt == attempt:
                spans[-1] = spans[-1]._replace(last=offset)
            else:
                spans.append(AcquiredRange(offset, offset, attempt))
        return spans

    def accept(self, first: int, last: int, receiver: str, now_ms: int) -> None:
        """They are done. The same for gaps."""
        for offset, _ in self._acquired(first, last, receiver, now_ms):
            self._leases.forget(offset)
        self._live -= self._done.add_range(first, last)

    def reject(self, first: int, last: int, receiver: str, now_ms: int) -> None:
        """They are never delivered again: dead, or done if the group has no dead-letter topic."""
        if not self._buries:
            self.accept(first, last, receiver, now_ms)
            return
        for offset, held in self._acquired(first, last, receiver, now_ms):
            held.reason = _REJECTED
            self._return(offset, held, now_ms, 0, _REJECTED)

    def release(self, first: int, last: int, receiver: str, now_ms: int, *, is_excused: bool = False) -> None:
        """They are available again, or done if they were delivered as often as they may be; a delivery that is excused
        does not count towards that."""
        for offset, held in self._acquired(first, last, receiver, now_ms):
            held.excused += is_excused
            self._return(offset, held, now_ms, 0, "")

    def renew(self, first: int, last: int, receiver: str, now_ms: int, lock_ms: int | None = None) -> None:
        """They are acquired for as long as if it had been now."""
        until_ms = now_ms + (self._settings.visibility_timeout_ms if lock_ms is None else lock_ms)
        for offset, held in self._acquired(first, last, receiver, now_ms):
            self._leases.extend(offset, held, until_ms)

    def acquired_by(self, receiver: str, now_ms: int) -> list[AcquiredRange]:
        """What a receiver has, as to release it when it is gone."""
        self.due(now_ms)
        spans: list[AcquiredRange] = []
        held_by = sorted(
            (offset, held.attempt)
            for offset, held in self._leases.held.items()
            if held.is_leased and held.receiver == receiver
        )
        for offset, attempt in held_by:
            if spans and spans[-1].last + 1 == offset and spans[-1].attempt == attempt:
                spans[-1] = spans[-1]._replace(last=offset)
            else:
                spans.append(AcquiredRange(offset, offset, attempt))
        return spans

    def archive(self, first: int, last: int) -> None:
        """They are done, whoever has them: as records that turn out to be none for this group."""
        for offset in range(max(first, self.head), min(last, self.indexed_to - 1) + 1):
            if offset not in self._done:
                self._finish(offset)

    def _acquired(self, first: int, last: int, receiver: str, now_ms: int) -> list[tuple[int, LeaseRecord]]:
        self.due(now_ms)
        held_by = self._leases.held
        found = []
        for offset in range(first, last + 1):
            held = held_by.get(offset)
            if held is None or not held.is_leased or held.receiver != receiver:
                raise NotInFlight(f"record {offset} is not acquired by this member, or not any more")
            found.append((offset, held))
        return found
