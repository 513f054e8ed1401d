"""Receives that wait for messages: woken at once, in the order in which they began to wait."""

import asyncio
from collections.abc import Sequence
from typing import cast

from headrace.model.errors import HeadraceError, NotInFlight, QueueUnavailable, TooManyInFlight
from headrace.queues.engine.engine import Engine, Lease, LeaseRange
from headrace.queues.host.host import QueueHost

WAITING_MAX = 10_000

Leases = Sequence[Lease] | Sequence[LeaseRange]


class _WaitingReceive:
    __slots__ = ("as_ranges", "done", "max_messages", "visibility_ms")

    def __init__(self, max_messages: int, visibility_ms: int, *, as_ranges: bool) -> None:
        self.max_messages = max_messages
        self.visibility_ms = visibility_ms
        self.as_ranges = as_ranges
        self.done: asyncio.Future[Leases] = asyncio.get_running_loop().create_future()

    def leased(self, engine: Engine, now_ms: int) -> Leases:
        receive = engine.receive_ranges if self.as_ranges else engine.receive
        return receive(self.max_messages, now_ms, self.visibility_ms)

    @property
    def leases(self) -> Leases:
        """The leases that it got, if any."""
        done = self.done
        return done.result() if done.done() and not done.cancelled() and done.exception() is None else ()


class Receivers:
    """The waiting receives of one queue."""

    def __init__(self, host: QueueHost) -> None:
        self._host = host
        self._waiting: dict[_WaitingReceive, None] = {}
        host.on_change.append(self._wake)
        host.on_close.append(self._fail_waiting)

    def lease_now(self, max_messages: int, visibility_ms: int) -> Sequence[Lease]:
        """Like `lease`, without waiting."""
        return self._host.decide_now(lambda engine, now_ms: engine.receive(max_messages, now_ms, visibility_ms))

    def lease_ranges_now(self, max_messages: int, visibility_ms: int) -> Sequence[LeaseRange]:
        """Like `lease_ranges`, without waiting."""
        return self._host.decide_now(lambda engine, now_ms: engine.receive_ranges(max_messages, now_ms, visibility_ms))

    async def lease(self, max_messages: int, visibility_ms: int, wait_ms: int) -> Sequence[Lease]:
        """Lease messages, as soon as there are any; none if none came in time. The caller must await `host.persisted`
        before it answers. `TooManyInFlight` only for a receive that does not wait."""
        return cast(Sequence[Lease], await self._lease(max_messages, visibility_ms, wait_ms, as_ranges=False))

    async def lease_ranges(self, max_messages: int, visibility_ms: int, wait_ms: int) -> Sequence[LeaseRange]:
        """Like `lease`, of a standard queue."""
        return cast(Sequence[LeaseRange], await self._lease(max_messages, visibility_ms, wait_ms, as_ranges=True))

    async def _lease(self, max_messages: int, visibility_ms: int, wait_ms: int, *, as_ranges: bool) -> Leases:
        leases: Leases
        try:
            lease_now = self.lease_ranges_now if as_ranges else self.lease_now
            leases = lease_now(max_messages, visibility_ms)
        except TooManyInFlight:
            # A receive that may wait waits until messages are deleted: refused, it would only be repeated.
            if wait_ms <= 0:
                raise
            leases = ()
        if leases or wait_ms <= 0:
            return leases
        if len(self._waiting) >= WAITING_MAX:
            raise QueueUnavailable("too many receives are waiting at this queue: try again")
        waiting = _WaitingReceive(max_messages, visibility_ms, as_ranges=as_ranges)
        self._waiting[waiting] = None
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await waiting.done
        except TimeoutError:
            # Messages may have come at the same moment.
            return waiting.leases
        except asyncio.CancelledError:
            self.undo(waiting.leases)
            raise
        finally:
            self._waiting.pop(waiting, None)

    def undo(self, leases: Leases) -> None:
        """Undo a receive whose receiver is gone: the messages are available at once."""

        def decision(engine: Engine, now_ms: int) -> None:
            for lease in leases:
                offsets = (lease.offset,) if isinstance(lease, Lease) else range(lease.first, lease.last + 1)
                for offset in offsets:
                    try:
                        engine.undo_receive(offset, lease.attempt, now_ms)
                    except NotInFlight:
                        continue

        if leases and self._host.has_engine:
            try:
                self._host.decide_now(decision)
            except QueueUnavailable:
                return

    def _wake(self) -> None:
        """Messages may be available."""
        if not self._waiting:
            return
        host, waiting = self._host, self._waiting
        while waiting and host.has_engine and host.engine.has_available:
            first = next(iter(waiting))
            if not first.done.done():
                try:
                    leases = first.leased(host.engine, host.now_ms())
                except TooManyInFlight:
                    return
                if not leases:
                    return
                first.done.set_result(leases)
            del waiting[first]

    def _fail_waiting(self, why: HeadraceError) -> None:
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.done.done():
                each.done.set_exception(why)
