"""The quotas of one broker: in force when the image changes, without cost while there are none. Pure.

`is_active` is what each request looks at: false while no quota limits clients, their use is not watched, there is room
on the disk, and no prefix of topics has a quota.
"""

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from headrace.model.quotas import TOPIC_PREFIX, ClusterQuotas, QuotaKind
from headrace.quotas.accounts import QuotaAccount, QuotaAccounts, QuotaWindows
from headrace.quotas.connection_rate import ConnectionRates
from headrace.quotas.disk_pressure import DiskPressure
from headrace.quotas.queue_rates import QueueRates
from headrace.quotas.stored_bytes import StoredBytes

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
    """Each second, or percent of the event loop's time, or bytes stored here."""
    limit: float | None
    """Of this broker, or of the whole cluster."""
    throttled_count: int
    """How often it was delayed since it was last idle."""
    throttled_ms: int
    part: float | None
    """The part of the cluster's limit that is this broker's; None if each broker has all of it."""


class BrokerQuotas:
    """Who may use how much on this broker, and who does."""

    def __init__(self, windows: QuotaWindows = DEFAULT_WINDOWS) -> None:
        self.accounts = QuotaAccounts(windows)
        self.connections = ConnectionRates(windows.rates)
        self.queues = QueueRates()
        self.disk = DiskPressure()
        self.stored = StoredBytes()
        self.is_active = False
        """Whether the requests of clients are counted."""
        self.meters_producers = False
        """Whether each Produce is, of any client: it may be delayed."""
        self.is_timing = False
        """Whether their time is, too."""
        self._counts_clients = False
        self._watched_until_ms = self._sweeps_at_ms = -inf
        self.throttled_counts: Counter[QuotaKind] = Counter()
        """How often clients were delayed, by what they had used too much of."""
        self.throttled_ms: Counter[QuotaKind] = Counter()

    def update(
        self, quotas: ClusterQuotas, connections_per_s: float, listeners_per_s: Mapping[str, float], now_ms: int
    ) -> None:
        """Apply the quotas of the cluster, and the limits of connections in the settings of this broker."""
        self.accounts.update(quotas)
        self.queues.update(quotas, now_ms)
        self.stored.update(quotas)
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
        self._counts_clients = is_watched or self.accounts.table.limits_clients
        self.is_timing = is_watched or self.accounts.table.limits_time
        self.disk_changed()

    def disk_changed(self) -> None:
        """Count requests also while producers are slowed down because of the disk."""
        meters_producers = self.disk.is_slowing or self.stored.is_active
        if meters_producers is not self.meters_producers:
            self.meters_producers = meters_producers
            self.accounts.renew()
        self.is_active = self._counts_clients or self.meters_producers

    def throttled(self, account: QuotaAccount, delay_ms: int) -> None:
        """Note that a client is delayed because of an account."""
        account.note_throttled(delay_ms)
        self.throttled_counts[account.kind] += 1
        self.throttled_ms[account.kind] += delay_ms

    def use(self, now_ms: int) -> list[QuotaUse]:
        """Who uses how much of what now."""
        return self._clients_use(now_ms) + self._queues_use(now_ms) + self._stored_use()

    def _clients_use(self, now_ms: int) -> list[QuotaUse]:
        return [
            QuotaUse(
                each.kind.value,
                *each.name,
                each.used_per_s(now_ms),
                None if each.limit == inf else each.limit,
                each.throttled_count,
                each.throttled_ms,
                each.part,
            )
            for each in self.accounts.all()
        ]

    def _queues_use(self, now_ms: int) -> list[QuotaUse]:
        return [
            QuotaUse(
                kind.value,
                "",
                f"{entity} {name}",
                False,
                account.rate.measure(now_ms),
                account.bucket.bound,
                account.refused_count,
                0,
                None,
            )
            for entity, name, kind, account in self.queues.all()
        ]

    def _stored_use(self) -> list[QuotaUse]:
        return [
            QuotaUse(
                QuotaKind.STORED.value,
                "",
                f"{TOPIC_PREFIX} {each.prefix}",
                True,
                each.own_bytes,
                each.limit,
                each.throttled_count,
                each.throttled_ms,
                max(0.0, each.limit - each.other_bytes),
            )
            for each in self.stored.accounts
        ]
