"""How many bytes the topics with a prefix store, and whether more may be written to them. Pure.

What counts is the logs that leaders have: of this broker as they are now, of the others as these have last reported.
Above `SLOW_SHARE` of the limit producers may write at a rate with which the rest would last for `DRAIN_S`; what does
not fit into the rest is refused. A topic that has several of the prefixes is bound by each of them.
"""

from collections.abc import Collection, Iterable, Mapping

from headrace.model.errors import StorageQuotaExceeded
from headrace.model.quotas import TOPIC_PREFIX, ClusterQuotas, QuotaKind
from headrace.quotas.disk_pressure import paid_until_ms

SLOW_SHARE = 0.9


class StoredAccount:
    """What is stored in topics with one prefix."""

    __slots__ = ("_paid_until_ms", "limit", "other_bytes", "own_bytes", "prefix", "throttled_count", "throttled_ms")

    def __init__(self, prefix: str, limit: float) -> None:
        self.prefix = prefix
        self.limit = limit
        self.own_bytes = 0
        """In the logs that this broker leads."""
        self.other_bytes = 0
        """In those that others lead, as they have last reported."""
        self._paid_until_ms = 0.0
        """When what was written until now is paid for, at the rate of its time."""
        self.throttled_count = 0
        self.throttled_ms = 0

    @property
    def used_bytes(self) -> int:
        return self.own_bytes + self.other_bytes

    def refusal(self, size_bytes: int) -> StorageQuotaExceeded | None:
        """Why so much must not be written now; None if it may be."""
        used = self.used_bytes
        if used + size_bytes <= self.limit:
            return None
        return StorageQuotaExceeded(
            f"topics and queues whose names begin with {self.prefix!r} store {used} bytes of at most {self.limit:.0f}: "
            f"{size_bytes} more do not fit. Nothing was written: delete topics or records, shorten their retention, or "
            f"raise the quota with `headrace quota set --topic-prefix {self.prefix} --stored …`"
        )

    def delay_ms(self, size_bytes: int, now_ms: float) -> int:
        """How long a producer has to wait that has just written so much."""
        used = self.used_bytes
        if used <= self.limit * SLOW_SHARE:
            return 0
        self._paid_until_ms = paid_until_ms(self._paid_until_ms, now_ms, size_bytes, self.limit - used)
        return int(self._paid_until_ms - now_ms)

    def note_throttled(self, delay_ms: int) -> None:
        self.throttled_count += 1
        self.throttled_ms += delay_ms


class StoredRoom:
    """The room that a topic has: that of each of its prefixes with a quota."""

    __slots__ = ("_accounts",)

    def __init__(self, accounts: tuple[StoredAccount, ...]) -> None:
        self._accounts = accounts

    def refusal(self, size_bytes: int) -> StorageQuotaExceeded | None:
        """Why so much must not be written now; None if it may be."""
        return next((found for each in self._accounts if (found := each.refusal(size_bytes)) is not None), None)

    def add(self, size_bytes: int) -> None:
        """So much more is stored here, or less."""
        for account in self._accounts:
            account.own_bytes += size_bytes

    def delay(self, size_bytes: int, now_ms: float) -> tuple[StoredAccount, int]:
        """How long a producer has to wait that has just written so much, and because of which prefix."""
        delays = [(each, each.delay_ms(size_bytes, now_ms)) for each in self._accounts]
        return max(delays, key=lambda found: found[1])


class StoredBytes:
    """The prefixes with a quota, as one broker knows what they store."""

    def __init__(self) -> None:
        self._accounts: dict[str, StoredAccount] = {}
        self._reports: dict[int, Mapping[str, int]] = {}
        """What each other broker stores, by prefix."""

    @property
    def is_active(self) -> bool:
        """Whether any prefix has a quota."""
        return bool(self._accounts)

    @property
    def accounts(self) -> Collection[StoredAccount]:
        return self._accounts.values()

    def update(self, quotas: ClusterQuotas) -> None:
        """Apply the quotas of the cluster. Then rooms must be asked for again, and what is stored counted."""
        before, self._accounts = self._accounts, {}
        for entity, values in quotas.items():
            kind, prefix = entity[0]
            limit = values.get(QuotaKind.STORED)
            if kind != TOPIC_PREFIX or prefix is None or limit is None:
                continue
            account = self._accounts[prefix] = before.get(prefix) or StoredAccount(prefix, limit)
            account.limit = limit
        self._add_reports()

    def room(self, topic: str) -> StoredRoom | None:
        """None if no quota is for the topic."""
        found = tuple(each for prefix, each in self._accounts.items() if topic.startswith(prefix))
        return StoredRoom(found) if found else None

    def count(self, sizes: Iterable[tuple[StoredRoom, int]]) -> None:
        """Count again what this broker stores: the size of each log that it leads and that has a quota."""
        for account in self._accounts.values():
            account.own_bytes = 0
        for room, size_bytes in sizes:
            room.add(size_bytes)

    # -- what other brokers store

    @property
    def report(self) -> dict[str, int]:
        """What this broker stores, by prefix, for the others."""
        return {prefix: each.own_bytes for prefix, each in self._accounts.items() if each.own_bytes}

    def heard(self, broker_id: int, report: Mapping[str, int]) -> None:
        """Another broker has reported what it stores."""
        self._reports[broker_id] = report
        self._add_reports()

    def keep_only(self, broker_ids: Collection[int]) -> None:
        """Forget the reports of other brokers: their partitions are led by those that are left."""
        self._reports = {each: report for each, report in self._reports.items() if each in broker_ids}
        self._add_reports()

    def _add_reports(self) -> None:
        for prefix, account in self._accounts.items():
            account.other_bytes = sum(report.get(prefix, 0) for report in self._reports.values())
