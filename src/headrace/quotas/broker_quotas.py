"""The quotas of one broker: in force when the image changes, without cost while there are none. Pure.

`is_active` is what each request looks at: false while no quota limits clients and their use is not watched.
"""

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from headrace.model.quotas import ClusterQuotas, QuotaKind
from headrace.quotas.accounts import QuotaAccount, QuotaAccounts, QuotaWindows
from headrace.quotas.connection_rate import ConnectionRates

WATCHED_MS = 30_000
"""How long the use of clients without a quota is counted after it was last asked for."""
_SWEEP_EVERY_MS = 5_000
UNLIMITED_CONNECTIONS = 2**31 - 1
DEFAULT_WINDOWS = QuotaWindows()


class QuotaUse(NamedTuple):
    """How much of what a client uses on a broker."""

    kind: str
    """The name of the quota."""
    user: str
    """Empty: whatever the user."""
    client_id: str
    """Empty: whatever the client id."""
    is_prefix: bool
    used: float
    """Each second, or percent of the event loop's time."""
    limit: float | None
    throttled_count: int
    """How often it was delayed since it was last idle."""
    throttled_ms: int


class BrokerQuotas:
    """Who may use how much on this broker, and who does."""

    def __init__(self, windows: QuotaWindows = DEFAULT_WINDOWS) -> None:
        self.accounts = QuotaAccounts(windows)
        self.connections = ConnectionRates(windows.rates)
        self.is_active = False
        """Whether the requests of clients are counted."""
        self._watched_until_ms = self._sweeps_at_ms = -inf
        self.throttled_counts: Counter[QuotaKind] = Counter()
        """How often clients were delayed, by what they had used too much of."""
        self.throttled_ms: Counter[QuotaKind] = Counter()

    def update(
        self, quotas: ClusterQuotas, connections_per_s: float, listeners_per_s: Mapping[str, float], now_ms: int
    ) -> None:
        """Apply the quotas of the cluster, and the limits of connections in the settings of this broker."""
        self.accounts.update(quotas)
        limit = None if connections_per_s >= UNLIMITED_CONNECTIONS else connections_per_s
        self.connections.update(self.accounts.table, limit, listeners_per_s)
        self._decide(now_ms)

    def watch(self, now_ms: int) -> None:
        """Count the use of clients without a quota, too, for a while."""
        self._watched_until_ms = now_ms + WATCHED_MS
        self._decide(now_ms)

    def sweep(self, now_ms: int) -> None:
        """Forget what is idle. Called periodically."""
        if now_ms >= self._sweeps_at_ms:
            self._sweeps_at_ms = now_ms + _SWEEP_EVERY_MS
            self.accounts.forget_idle(now_ms)
            self.connections.forget_idle(now_ms)
            self._decide(now_ms)

    def _decide(self, now_ms: int) -> None:
        is_watched = now_ms < self._watched_until_ms
        self.accounts.observe(everyone=is_watched)
        self.is_active = is_watched or self.accounts.table.limits_clients

    def throttled(self, account: QuotaAccount, delay_ms: int) -> None:
        """Note that a client is delayed because of an account."""
        account.note_throttled(delay_ms)
        self.throttled_counts[account.kind] += 1
        self.throttled_ms[account.kind] += delay_ms

    def use(self, now_ms: int) -> list[QuotaUse]:
        """Who uses how much of what now."""
        return [
            QuotaUse(
                each.kind.value,
                *each.name,
                each.used_per_s(now_ms),
                None if each.bound == inf else each.bound,
                each.throttled_count,
                each.throttled_ms,
            )
            for each in self.accounts.all()
        ]
