"""How fast connections may be opened: for an address, for a listener and for the broker, as in KIP-612. Pure.

An address beyond its quota is refused: its connection is closed after a delay, so that it does not try again at once,
and does not count. A listener or broker beyond its limit accepts connections more slowly: each waits its turn. As in
Kafka, whose acceptor waits before it accepts the next one, the turns of a listener are one after the other.

Between two turns is at most one window. A connection that would wait more than `MAX_WAIT_MS` for its turn is closed at
once and gets none: its client would not wait for it, and those who only open and close connections must not block the
listener for long.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.quotas.limits import QuotaTable
from headrace.quotas.rate import RateWindows, SampledRate

MAX_ADDRESSES = 10_000
MAX_WAIT_MS = 30_000


class Admission(NamedTuple):
    """What becomes of a connection: it is served after a delay, or closed after a delay, at once if too many wait."""

    delay_ms: int = 0
    is_refused: bool = False


_AT_ONCE = Admission()


class _Gate:
    """A limit of a listener or of the broker."""

    __slots__ = ("_rate", "_windows", "free_ms", "limit_per_s")

    def __init__(self, windows: RateWindows) -> None:
        self._windows = windows
        self._rate = SampledRate(windows)
        self.limit_per_s: float | None = None
        self.free_ms = 0
        """When the next connection may be accepted."""

    def is_crowded(self, now_ms: int) -> bool:
        """Whether the next turn is too late."""
        return self.limit_per_s is not None and self.free_ms - now_ms > MAX_WAIT_MS

    def pass_at(self, now_ms: int) -> int:
        """When a connection of now may be served."""
        if self.limit_per_s is None:
            return now_ms
        at_ms = max(now_ms, self.free_ms)
        self._rate.record(1, at_ms)
        delay_ms = min(self._rate.delay_ms(self.limit_per_s, at_ms), self._windows.window_ms)
        self.free_ms = at_ms + delay_ms
        return self.free_ms

    def take_back(self, at_ms: int) -> None:
        """Undo `pass_at` of a connection that is refused; its turn stays, as in Kafka."""
        if self.limit_per_s is not None:
            self._rate.record(-1, at_ms)


class ConnectionRates:
    """The connections that were opened lately, and what becomes of the next one."""

    def __init__(self, windows: RateWindows, max_addresses: int = MAX_ADDRESSES) -> None:
        self._windows = windows
        self._max_addresses = max_addresses
        self._table = QuotaTable({})
        self._broker = _Gate(windows)
        self._listeners: dict[str, _Gate] = {}
        self._addresses: dict[str, tuple[SampledRate, int]] = {}
        """The rate of each address with a quota, and when it last connected, oldest first."""
        self.refused_count = 0
        self.delayed_count = 0
        self.is_limited = False
        """Whether there is any limit."""

    @property
    def address_count(self) -> int:
        """The addresses that are counted now."""
        return len(self._addresses)

    def update(self, table: QuotaTable, broker_per_s: float | None, listeners_per_s: Mapping[str, float]) -> None:
        """Apply other limits; None for no limit of the broker."""
        self._table = table
        self._broker.limit_per_s = broker_per_s
        for name in {*self._listeners, *listeners_per_s}:
            self._listeners.setdefault(name, _Gate(self._windows)).limit_per_s = listeners_per_s.get(name)
        if not table.limits_addresses:
            self._addresses.clear()
        self.is_limited = table.limits_addresses or broker_per_s is not None or bool(listeners_per_s)

    def admit(self, address: str, listener: str, now_ms: int, *, is_protected: bool = False) -> Admission:
        """Count a connection. A protected listener, that of brokers among themselves, ignores the broker's limit."""
        broker = None if is_protected else self._broker
        gate = self._listeners.get(listener)
        if any(each is not None and each.is_crowded(now_ms) for each in (broker, gate)):
            self.refused_count += 1
            return Admission(is_refused=True)
        served_ms = max((each.pass_at(now_ms) for each in (broker, gate) if each is not None), default=now_ms)
        refused_ms = self._refused_ms(address, served_ms)
        if refused_ms:
            for each in (broker, gate):
                if each is not None:
                    each.take_back(served_ms)
            self.refused_count += 1
            return Admission(refused_ms, is_refused=True)
        if served_ms > now_ms:
            self.delayed_count += 1
            return Admission(served_ms - now_ms)
        return _AT_ONCE

    def _refused_ms(self, address: str, now_ms: int) -> int:
        bound = self._table.connections_per_s(address)
        if bound is None:
            return 0
        known = self._addresses.pop(address, None)
        rate = SampledRate(self._windows) if known is None else known[0]
        if len(self._addresses) >= self._max_addresses:
            # The address that has not connected for the longest time.
            del self._addresses[next(iter(self._addresses))]
        self._addresses[address] = rate, now_ms
        rate.record(1, now_ms)
        delay_ms = min(rate.delay_ms(bound, now_ms), self._windows.window_ms)
        if delay_ms:
            rate.record(-1, now_ms)
        return delay_ms

    def forget_idle(self, now_ms: int) -> None:
        """Forget addresses that have opened no connection for all windows: they are as good as new."""
        idle_ms = self._windows.samples * self._windows.window_ms
        while self._addresses:
            address, (_, used_ms) = next(iter(self._addresses.items()))
            if now_ms - used_ms < idle_ms:
                return
            del self._addresses[address]
