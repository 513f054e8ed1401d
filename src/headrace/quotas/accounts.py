"""What each client uses of what, and how long it has to wait. Pure.

An account counts the use of one kind by one `AccountName`. An account that was idle for all windows is the same as a
new one, so idle accounts are forgotten without a trace. There are at most `max_accounts`: clients beyond that share one
account of each kind and limit until idle ones are forgotten.
"""

from collections.abc import Iterable
from itertools import chain
from math import inf
from typing import NamedTuple

from headrace.model.quotas import MAX_NAME_CHARS, ClusterQuotas, QuotaKind
from headrace.quotas.bucket import TokenBucket
from headrace.quotas.limits import AccountName, QuotaLimit, QuotaTable
from headrace.quotas.rate import MAX_DELAY_MS, RateWindows, SampledRate

MAX_ACCOUNTS = 10_000
_USED_AT_ONCE = 3
"""The windows whose quota a fetch may use at once."""
_OTHERS = AccountName(client_id="(others)")
_RATES = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST)


class QuotaWindows(NamedTuple):
    """The windows of rates and of the token bucket."""

    rates: RateWindows = RateWindows()
    mutations: RateWindows = RateWindows()


class QuotaAccount:
    """The use of one kind by one client or group of clients. Its bound is infinite where use is only observed."""

    __slots__ = (
        "_rate",
        "_tokens",
        "_windows",
        "bound",
        "kind",
        "max_delay_ms",
        "name",
        "throttled_count",
        "throttled_ms",
        "used_ms",
    )

    def __init__(self, kind: QuotaKind, name: AccountName, bound: float, windows: QuotaWindows, now_ms: int) -> None:
        self.kind = kind
        self.name = name
        self.bound = bound
        self._windows = windows
        is_mutation = kind is QuotaKind.MUTATION
        self._rate = SampledRate(windows.mutations if is_mutation else windows.rates)
        self._tokens = TokenBucket(windows.mutations, bound, now_ms) if is_mutation and bound < inf else None
        self.max_delay_ms: int = windows.rates.window_ms if kind is QuotaKind.REQUEST else MAX_DELAY_MS
        """The longest delay: KIP-124 limits that of request time to one window."""
        self.used_ms = now_ms
        """When it was last used."""
        self.throttled_count = 0
        self.throttled_ms = 0

    def change(self, bound: float, now_ms: int) -> None:
        """Apply another bound; what was used counts on."""
        if bound == self.bound:
            return
        self.bound = bound
        if self.kind is not QuotaKind.MUTATION:
            return
        if bound == inf:
            self._tokens = None
        elif self._tokens is None:
            self._tokens = TokenBucket(self._windows.mutations, bound, now_ms)
        else:
            self._tokens.change(bound, now_ms)

    def record(self, value: float, now_ms: int) -> int:
        """Count a use; how long its client has to wait, in milliseconds."""
        self.used_ms = now_ms
        delay_ms = self._rate.charge(value, self.bound, now_ms)
        if self._tokens is not None:
            self._tokens.take(value, now_ms)
            return self._tokens.delay_ms(now_ms)
        return delay_ms if delay_ms <= self.max_delay_ms else self.max_delay_ms

    def owed_ms(self, now_ms: int) -> int:
        """How long a client has to wait for tokens before anything more is taken; 0 if the bucket is not overdrawn."""
        self.used_ms = now_ms
        return 0 if self._tokens is None else self._tokens.delay_ms(now_ms)

    def take_back(self, value: float, now_ms: int) -> None:
        """Undo the recording of a use that did not take place."""
        self._rate.record(-value, now_ms)

    def total(self, now_ms: int) -> float:
        """What was used in all windows."""
        return self._rate.total(now_ms)

    def room(self, now_ms: int) -> float:
        """What may be used now without a delay, or the quota of a few windows if that is more.

        Less at a time would waste much of it: consumers discard the batch at the end of an answer that is cut off.
        """
        if self.bound == inf:
            return inf
        samples, window_ms = self._windows.rates
        left = self.bound * self._rate.window_ms(now_ms) / 1000 - self.total(now_ms)
        most = self.bound * (samples - 1) * window_ms / 1000
        return max(min(left, most), min(most, self.bound * _USED_AT_ONCE * window_ms / 1000))

    def used_per_s(self, now_ms: int) -> float:
        return self._rate.measure(now_ms)

    def is_idle(self, since_ms: int, now_ms: int) -> bool:
        """Whether it was not used since a time, and owes no tokens: then it is the same as a new one."""
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


class QuotaAccounts:
    """The accounts of all clients of a broker."""

    def __init__(self, windows: QuotaWindows, max_accounts: int = MAX_ACCOUNTS) -> None:
        self._windows = windows
        self._max_accounts = max_accounts
        self._idle_ms = max(each.samples * each.window_ms for each in windows)
        self._table = QuotaTable({})
        self._observes = False
        self._accounts: dict[tuple[QuotaKind, AccountName], QuotaAccount] = {}
        self._clients: dict[tuple[str, str], ClientAccounts] = {}
        self.generation = 0
        """Another number when a client may have other accounts than before."""
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

    def _forget_clients(self) -> None:
        self._clients.clear()
        self.generation += 1

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
            account = QuotaAccount(kind, limit.account, limit.bound, self._windows, now_ms)
            self._accounts[kind, limit.account] = account
        account.change(limit.bound, now_ms)
        return account

    def _shared_account(self, kind: QuotaKind, bound: float, now_ms: int) -> QuotaAccount:
        account = self._shared.get((kind, bound))
        if account is None:
            account = self._shared[kind, bound] = QuotaAccount(kind, _OTHERS, bound, self._windows, now_ms)
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
