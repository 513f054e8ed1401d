"""What each client uses of what, and how long it has to wait. Pure.

An account counts the use of one kind by one `AccountName`. An account that was idle for all windows is the same as a
new one, so idle accounts are forgotten without a trace. There are at most `max_accounts`: clients beyond that share one
account of each kind and limit until idle ones are forgotten.

A quota is that of this broker alone, or this broker has a part of one of the whole cluster (`shares.py`). The part
changes every second: then a token bucket says how long a client has to wait, since what was used under an earlier part
must not count as if it had been used under this one.

Most requests are within the bound and in the same window as the one before. Their use is only added up (`pending`)
until it could cost a delay, or the window ends; `count` is that quick path. What it computes is the same: a sample is a
sum. Whatever looks at an account settles it first.
"""

from collections.abc import Iterable
from itertools import chain
from math import inf
from typing import NamedTuple

from headrace.model.quotas import MAX_NAME_CHARS, ClusterQuotas, QuotaKind
from headrace.quotas.bucket import TokenBucket
from headrace.quotas.cluster_demand import EXCHANGED_EVERY_MS, ClusterDemand, DemandKey
from headrace.quotas.limits import AccountName, QuotaLimit, QuotaTable
from headrace.quotas.rate import MAX_DELAY_MS, RateWindows, SampledRate
from headrace.quotas.shares import NO_DEMAND, BrokerDemand

MAX_ACCOUNTS = 10_000
_USED_AT_ONCE = 3
"""The windows whose quota a fetch may use at once."""
_DEMAND_MS = 3_000
"""The time over which the use of a client is measured for its share."""
_OTHERS = AccountName(client_id="(others)")
_RATES = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST)


class QuotaWindows(NamedTuple):
    """The windows of rates and of the token bucket."""

    rates: RateWindows = RateWindows()
    mutations: RateWindows = RateWindows()


class QuotaAccount:
    """The use of one kind by one client or group of clients. Its limit is infinite where use is only observed."""

    __slots__ = (
        "_hungry_until_ms",
        "_rate",
        "_tokens",
        "_windows",
        "bound",
        "free",
        "kind",
        "last_ms",
        "limit",
        "max_delay_ms",
        "name",
        "part",
        "pending",
        "quick_until_ms",
        "throttled_count",
        "throttled_ms",
        "used_ms",
    )

    def __init__(
        self,
        kind: QuotaKind,
        name: AccountName,
        limit: float,
        windows: QuotaWindows,
        now_ms: int,
        part: float | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.limit = self.bound = limit
        """What the quota says, and below what this broker allows."""
        self.part: float | None = None
        """The part of the limit that is this broker's; None if all of it is, and every broker has as much."""
        self._windows = windows
        self._rate = SampledRate(windows.mutations if kind is QuotaKind.MUTATION else windows.rates)
        self._tokens: TokenBucket | None = None
        self.max_delay_ms: int = windows.rates.window_ms if kind is QuotaKind.REQUEST else MAX_DELAY_MS
        """The longest delay: KIP-124 limits that of request time to one window."""
        self.used_ms = now_ms
        """When it was last used."""
        self.pending = 0.0
        """What was used since it was last settled, at most `free`, and below when that was; before `quick_until_ms`."""
        self.free = 0.0
        self.last_ms = 0.0
        self.quick_until_ms = -inf
        self._hungry_until_ms = -inf
        self.throttled_count = 0
        self.throttled_ms = 0
        self._apply(limit, part, now_ms)

    def change(self, limit: float, part: float | None, now_ms: int) -> None:
        """Apply another limit, or another part of it; what was used counts on."""
        if limit != self.limit or part != self.part:
            self._apply(limit, part, now_ms)

    def _apply(self, limit: float, part: float | None, now_ms: int) -> None:
        self.settle()
        self.limit, self.part = limit, part
        self.bound = limit if part is None else limit * part
        is_mutation = self.kind is QuotaKind.MUTATION
        if limit == inf or not (is_mutation or part is not None):
            self._tokens = None
        elif self._tokens is None:
            self._tokens = TokenBucket(self._bucket_windows(), self.bound, now_ms)
            if part is not None:
                self._tokens.take(self.total(now_ms) * part, now_ms)
        else:
            self._tokens.change(self.bound, now_ms)

    def _bucket_windows(self) -> RateWindows:
        if self.kind is QuotaKind.MUTATION:
            return self._windows.mutations
        samples, window_ms = self._windows.rates
        return RateWindows(max(1, samples - 1), window_ms)

    def count(self, value: float, now_ms: float) -> int:
        """Count a use; how long its client has to wait, in milliseconds."""
        if now_ms < self.quick_until_ms and (pending := self.pending + value) <= self.free:
            self.pending = pending
            self.last_ms = now_ms
            return 0
        return self.record(value, int(now_ms))

    def record(self, value: float, now_ms: int) -> int:
        """Like `count`, not on the quick path; prepares it for the next use."""
        self.settle()
        self.used_ms = now_ms
        delay_ms = self._rate.charge(value, self.bound, now_ms)
        if self._tokens is not None:
            self._tokens.take(value, now_ms)
            delay_ms = self._tokens.delay_ms(now_ms)
        if delay_ms:
            return self._delay(delay_ms, now_ms)
        # Tokens are only added meanwhile.
        self.free = self._rate.free(self.bound) if self._tokens is None else self._tokens.tokens(now_ms)
        self.quick_until_ms = self._rate.steady_until_ms
        return 0

    def settle(self) -> None:
        """Record what was used on the quick path, and leave it."""
        self.quick_until_ms = -inf
        if self.pending:
            self.used_ms = now_ms = int(self.last_ms)
            self._rate.record(self.pending, now_ms)
            if self._tokens is not None:
                self._tokens.take(self.pending, now_ms)
            self.pending = 0.0

    def owed_ms(self, now_ms: int) -> int:
        """How long a client has to wait for tokens before anything more is taken; 0 if the bucket is not overdrawn."""
        self.settle()
        self.used_ms = now_ms
        return 0 if self._tokens is None else self._delay(self._tokens.delay_ms(now_ms), now_ms)

    def _delay(self, delay_ms: int, now_ms: int) -> int:
        delay_ms = min(delay_ms, self.max_delay_ms)
        if delay_ms:
            self._hungry_until_ms = max(self._hungry_until_ms, now_ms + delay_ms)
        return delay_ms

    def take_back(self, value: float, now_ms: int) -> None:
        """Undo the recording of a use that did not take place."""
        self.settle()
        self._rate.record(-value, now_ms)
        if self._tokens is not None:
            self._tokens.take(-value, now_ms)

    def total(self, now_ms: int) -> float:
        """What was used in all windows."""
        self.settle()
        return self._rate.total(now_ms)

    def room(self, now_ms: float) -> float:
        """About what may be used now without a delay, or the quota of a few windows if that is more.

        With less at a time an answer would be a batch or two, however small.
        """
        if self.bound == inf:
            return inf
        samples, window_ms = self._windows.rates
        most = self.bound * (samples - 1) * window_ms / 1000
        if now_ms < self.quick_until_ms:
            left = self.free - self.pending
        elif self._tokens is not None:
            self.settle()
            left = self._tokens.tokens(int(now_ms))
        else:
            left = self.bound * self._rate.window_ms(int(now_ms)) / 1000 - self.total(int(now_ms))
        return max(min(left, most), min(most, self.bound * _USED_AT_ONCE * window_ms / 1000))

    def used_per_s(self, now_ms: int) -> float:
        self.settle()
        return self._rate.measure(now_ms)

    def demand(self, now_ms: int) -> BrokerDemand:
        """What was used in the last seconds, and whether clients are delayed, or were since the last exchange."""
        self.settle()
        used = self._rate.recent(_DEMAND_MS, now_ms)
        return BrokerDemand(used, now_ms < self._hungry_until_ms + EXCHANGED_EVERY_MS)

    def is_idle(self, since_ms: int, now_ms: int) -> bool:
        """Whether it was not used since a time, and owes no tokens: then it is the same as a new one."""
        self.settle()
        return self.used_ms <= since_ms and (self._tokens is None or self._tokens.is_full(now_ms))

    def note_throttled(self, delay_ms: int) -> None:
        self.throttled_count += 1
        self.throttled_ms += delay_ms


class ClientAccounts:
    """The accounts that count the use of one client; None where it has no quota and is not observed."""

    __slots__ = ("fetch", "mutation", "produce", "request")

    def __init__(self, by_kind: dict[QuotaKind, QuotaAccount | None]) -> None:
        self.produce = by_kind[QuotaKind.PRODUCE]
        self.fetch = by_kind[QuotaKind.FETCH]
        self.request = by_kind[QuotaKind.REQUEST]
        self.mutation = by_kind[QuotaKind.MUTATION]

    def all(self) -> tuple[QuotaAccount | None, ...]:
        return self.produce, self.fetch, self.request, self.mutation


class AccountsGeneration:
    """The time in which each client has the same accounts."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


class QuotaAccounts:
    """The accounts of all clients of a broker."""

    def __init__(self, windows: QuotaWindows, max_accounts: int = MAX_ACCOUNTS) -> None:
        self._windows = windows
        self._max_accounts = max_accounts
        self._idle_ms = max(each.samples * each.window_ms for each in windows)
        self._table = QuotaTable({})
        self._observes = False
        self._cluster: ClusterDemand | None = None
        self._accounts: dict[DemandKey, QuotaAccount] = {}
        self._clients: dict[tuple[str, str], ClientAccounts] = {}
        self.generation = AccountsGeneration()
        """Another one when a client may have other accounts than before; each is found in one place only."""
        self._shared: dict[tuple[QuotaKind, float], QuotaAccount] = {}
        """The accounts of clients for which there was no room."""

    @property
    def table(self) -> QuotaTable:
        return self._table

    def __len__(self) -> int:
        return len(self._accounts)

    def all(self) -> Iterable[QuotaAccount]:
        return chain(self._accounts.values(), self._shared.values())

    def update(self, quotas: ClusterQuotas) -> None:
        """Apply the quotas of another image; what clients have used counts on."""
        self._table = QuotaTable(quotas)
        # Each client finds its accounts again when it is next used; those of removed quotas are forgotten when idle.
        self._forget_clients()

    def observe(self, *, everyone: bool) -> None:
        """Count the use of clients without a quota, too, or no longer."""
        if everyone is not self._observes:
            self._observes = everyone
            self._forget_clients()

    def share_with(self, cluster: ClusterDemand | None, now_ms: int) -> None:
        """Divide quotas with the other brokers of a cluster; None if every broker has all of each."""
        if cluster is not self._cluster:
            self._cluster = cluster
            for account in self.all():
                self.divide(account, now_ms)

    def divide(self, account: QuotaAccount, now_ms: int) -> None:
        """Compute the part of an account that is this broker's."""
        part = self._part(account.kind, account.name, account.limit, account.demand(now_ms), now_ms)
        account.change(account.limit, part, now_ms)

    def _part(
        self, kind: QuotaKind, name: AccountName, limit: float, demand: BrokerDemand, now_ms: int
    ) -> float | None:
        if self._cluster is None or limit == inf:
            return None
        # Those that share an account are not the same on each broker.
        return self._cluster.equal_part if name is _OTHERS else self._cluster.part((kind, name), limit, demand, now_ms)

    def demands(self, now_ms: int) -> Iterable[tuple[DemandKey, BrokerDemand]]:
        """What clients with a quota use, for the other brokers."""
        for key, account in self._accounts.items():
            if account.limit < inf:
                demand = account.demand(now_ms)
                if demand != NO_DEMAND:
                    yield key, demand

    def _forget_clients(self) -> None:
        self._clients.clear()
        self.renew()

    def renew(self) -> None:
        """Let every client find its accounts again."""
        self.generation.is_over = True
        self.generation = AccountsGeneration()

    def client(self, user: str, client_id: str, now_ms: int) -> ClientAccounts:
        """The accounts of a client. No quota has a longer name: of longer client ids only the beginning counts."""
        client_id = client_id[:MAX_NAME_CHARS]
        found = self._clients.get((user, client_id))
        if found is None:
            found = self._opened(user, client_id, now_ms)
        return found

    def _opened(self, user: str, client_id: str, now_ms: int) -> ClientAccounts:
        if len(self._clients) >= self._max_accounts:
            self.forget_idle(now_ms)
        by_kind = {kind: self._account(kind, user, client_id, now_ms) for kind in (*_RATES, QuotaKind.MUTATION)}
        found = ClientAccounts(by_kind)
        if len(self._clients) < self._max_accounts:
            self._clients[user, client_id] = found
        return found

    def _account(self, kind: QuotaKind, user: str, client_id: str, now_ms: int) -> QuotaAccount | None:
        limit = self._table.limit(kind, user, client_id)
        if limit is None:
            if not self._observes:
                return None
            limit = QuotaLimit(inf, AccountName(user, client_id))
        account = self._accounts.get((kind, limit.account))
        if account is None:
            if len(self._accounts) >= self._max_accounts:
                return self._shared_account(kind, limit.bound, now_ms)
            account = self._new_account(kind, limit.account, limit.bound, now_ms)
            self._accounts[kind, limit.account] = account
        elif account.limit != limit.bound:
            part = self._part(kind, limit.account, limit.bound, account.demand(now_ms), now_ms)
            account.change(limit.bound, part, now_ms)
        return account

    def _new_account(self, kind: QuotaKind, name: AccountName, limit: float, now_ms: int) -> QuotaAccount:
        part = self._part(kind, name, limit, NO_DEMAND, now_ms)
        return QuotaAccount(kind, name, limit, self._windows, now_ms, part)

    def _shared_account(self, kind: QuotaKind, bound: float, now_ms: int) -> QuotaAccount:
        account = self._shared.get((kind, bound))
        if account is None:
            account = self._shared[kind, bound] = self._new_account(kind, _OTHERS, bound, now_ms)
        return account

    def forget_idle(self, now_ms: int) -> None:
        """Forget the accounts that were idle for all windows: they are as good as new."""
        since_ms = now_ms - self._idle_ms
        before = len(self._accounts) + len(self._shared)
        self._accounts = {key: each for key, each in self._accounts.items() if not each.is_idle(since_ms, now_ms)}
        self._shared = {key: each for key, each in self._shared.items() if not each.is_idle(since_ms, now_ms)}
        if len(self._accounts) + len(self._shared) < before or len(self._clients) >= self._max_accounts:
            # A client must not go on with an account that no other client finds.
            self._forget_clients()
