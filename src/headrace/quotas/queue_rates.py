"""Rates of requests to queues over SQS, and of messages sent there, by queue and by access key. Pure.

Each is a token bucket that holds the tokens of a second. A request is refused while a bucket that counts it is empty,
and then counts nowhere; a batch may overdraw the bucket. Beyond `MAX_ACCOUNTS` queues and keys, those without a quota
of their own share one account.
"""

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from headrace.model.quotas import ACCESS_KEY, QUEUE, ClusterQuotas, QuotaKind
from headrace.quotas.bucket import TokenBucket
from headrace.quotas.rate import RateWindows, SampledRate

MAX_ACCOUNTS = 10_000
_BURST = RateWindows(1, 1000)
_OTHERS = "(others)"
_FORGETS_EVERY_MS = 1_000

_Key = tuple[str, str, QuotaKind]


class QueueAccount:
    """What was used of one quota by one queue or access key."""

    __slots__ = ("bucket", "rate", "refused_count")

    def __init__(self, bound: float, now_ms: int) -> None:
        self.bucket = TokenBucket(_BURST, bound, now_ms)
        self.rate = SampledRate(RateWindows())
        self.refused_count = 0


class ExceededRate(NamedTuple):
    """Why a request is refused."""

    kind: QuotaKind
    entity: str
    name: str
    bound: float
    wait_ms: int

    def __str__(self) -> str:
        what = "messages sent" if self.kind is QuotaKind.SQS_MESSAGES else "requests"
        return (
            f"{self.entity} {self.name} has used up its quota of {self.bound:g} {what} each second: try again in "
            f"{max(0.1, ceil(self.wait_ms / 100) / 10):g} seconds"
        )


class QueueRates:
    def __init__(self) -> None:
        self.is_active = False
        """Whether any queue or access key has a quota."""
        self._bounds: dict[tuple[str, str | None], dict[QuotaKind, float]] = {}
        self._accounts: dict[_Key, QueueAccount] = {}
        self._forgets_at_ms = 0

    def update(self, quotas: ClusterQuotas, now_ms: int) -> None:
        """Apply the quotas of the cluster; what was used counts on."""
        self._bounds = {
            entity[0]: {QuotaKind(kind): bound for kind, bound in values.items()}
            for entity, values in quotas.items()
            if entity[0][0] in (QUEUE, ACCESS_KEY)
        }
        self.is_active = bool(self._bounds)
        accounts, self._accounts = self._accounts, {}
        for (entity, name, kind), account in accounts.items():
            bound = self._bound(entity, name, kind)
            if bound is not None:
                account.bucket.change(bound, now_ms)
                self._accounts[entity, name, kind] = account

    def _bound(self, entity: str, name: str, kind: QuotaKind) -> float | None:
        own = self._bounds.get((entity, name), {}).get(kind)
        return self._bounds.get((entity, None), {}).get(kind) if own is None else own

    def count(self, queue: str, access_key: str, messages: int, now_ms: int) -> ExceededRate | None:
        """Count a request and the messages that it sends; why it is refused, None if it is not."""
        uses = [
            (key, account, amount)
            for entity, name in ((QUEUE, queue), (ACCESS_KEY, access_key))
            for kind, amount in ((QuotaKind.SQS_REQUESTS, 1), (QuotaKind.SQS_MESSAGES, messages))
            if name and amount and (account := self._account(key := (entity, name, kind), now_ms)) is not None
        ]
        for (entity, name, kind), account, _ in uses:
            # A whole token: a refused request must not come through a moment later at a fraction of one.
            if account.bucket.tokens(now_ms) < min(1.0, account.bucket.bound):
                account.refused_count += 1
                missing = min(1.0, account.bucket.bound) - account.bucket.tokens(now_ms)
                return ExceededRate(
                    kind, entity, name, account.bucket.bound, ceil(missing / account.bucket.bound * 1000)
                )
        for _, account, amount in uses:
            account.bucket.take(amount, now_ms)
            account.rate.record(amount, now_ms)
        return None

    def _account(self, key: _Key, now_ms: int) -> QueueAccount | None:
        bound = self._bound(*key)
        if bound is None:
            return None
        entity, name, kind = key
        if len(self._accounts) >= MAX_ACCOUNTS and key not in self._accounts:
            if now_ms >= self._forgets_at_ms:
                self._forget_idle(now_ms)
            if len(self._accounts) >= MAX_ACCOUNTS and (entity, name) not in self._bounds:
                key = (entity, _OTHERS, kind)
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = QueueAccount(bound, now_ms)
        return account

    def _forget_idle(self, now_ms: int) -> None:
        """Forget the accounts that are as good as new. Not for every request: there are many to look at."""
        self._forgets_at_ms = now_ms + _FORGETS_EVERY_MS
        self._accounts = {each: used for each, used in self._accounts.items() if not used.bucket.is_full(now_ms)}

    def all(self) -> Iterator[tuple[str, str, QuotaKind, QueueAccount]]:
        """Each account with the type and the name of its entity."""
        for (entity, name, kind), account in self._accounts.items():
            yield entity, name, kind, account
