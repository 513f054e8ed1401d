"""Who uses how much of what: of this broker, and of all brokers together."""

from collections.abc import Iterable

import msgspec

from headrace.monitor.loop_slices import sliced
from headrace.quotas.broker_quotas import BrokerQuotas, QuotaUse
from headrace.runtime.clock import Clock

_AT_ONCE = 500

UseKey = tuple[str, str, str, bool]


class QuotaUseStat(msgspec.Struct, array_like=True, frozen=True):
    """What a client, or clients that are counted together, use of one thing on one broker, or on all."""

    kind: str
    """The name of the quota."""
    user: str
    """Empty: whatever the user."""
    client_id: str
    """Empty: whatever the client id."""
    is_prefix: bool
    used: float
    """Each second, of all brokers; percent for request_percentage, bytes for stored_bytes."""
    limit: float | None
    """Of each broker, or of all brokers if they share it; None without a quota."""
    throttled_count: int
    throttled_ms: int
    most_used: float
    """On the broker where it uses the most: what the limit is compared with."""
    brokers: list[int]
    parts: dict[int, float] = {}
    """The part of the limit of each broker (`quota.scope` = cluster, and stored_bytes); empty if each has all of it."""

    @property
    def share(self) -> float:
        """The part of its limit that it uses: on the broker where it uses the most, or on all if they share the limit.

        0 without a quota.
        """
        return 0.0 if self.limit is None else (self.used if self.parts else self.most_used) / self.limit

    @property
    def key(self) -> UseKey:
        return self.kind, self.user, self.client_id, self.is_prefix


class LocalQuotaUse:
    """The use of this broker. Clients without a quota are counted for a while after each question."""

    def __init__(self, quotas: BrokerQuotas, clock: Clock, broker_id: int) -> None:
        self._quotas = quotas
        self._clock = clock
        self._broker_id = broker_id

    async def rows(self) -> list[QuotaUseStat]:
        now_ms = int(self._clock.monotonic_ms())
        self._quotas.watch(now_ms)
        return [self._stat(each) for each in self._quotas.use(now_ms)]

    def _stat(self, use: QuotaUse) -> QuotaUseStat:
        parts = {} if use.part is None else {self._broker_id: use.part}
        return QuotaUseStat(*use[:-1], use.used, [self._broker_id], parts)


async def merged_use(rows: Iterable[QuotaUseStat]) -> list[QuotaUseStat]:
    """Each client and kind once."""
    found: dict[UseKey, QuotaUseStat] = {}
    async for row in sliced(rows, _AT_ONCE):
        before = found.get(row.key)
        found[row.key] = row if before is None else _sum(before, row)
    return [*found.values()]


def _sum(one: QuotaUseStat, other: QuotaUseStat) -> QuotaUseStat:
    limits = [each for each in (one.limit, other.limit) if each is not None]
    return QuotaUseStat(
        *one.key,
        one.used + other.used,
        min(limits, default=None),
        one.throttled_count + other.throttled_count,
        one.throttled_ms + other.throttled_ms,
        max(one.most_used, other.most_used),
        sorted({*one.brokers, *other.brokers}),
        {**one.parts, **other.parts},
    )
