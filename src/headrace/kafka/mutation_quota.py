"""The quota of changes to topics, `controller_mutation_rate` (KIP-599): partitions that are created or deleted.

From the version of an API on that knows THROTTLING_QUOTA_EXCEEDED, a topic is refused with it while tokens are owed
(strict). Before that, and where a topic is created without being asked for, the change is made and the client is
delayed (permissive). A change may overdraw the bucket in both cases.
"""

from headrace.kafka.client_meters import user_of
from headrace.kafka.dispatch import Context
from headrace.model.errors import QuotaExceeded
from headrace.quotas.accounts import QuotaAccount


class MutationQuota:
    """The quota of one request. Without one, all of this does nothing."""

    __slots__ = ("_account", "_ctx", "_is_strict")

    def __init__(self, ctx: Context, *, strict_from: int | None) -> None:
        """`strict_from` is the first version that knows the error; None if none does."""
        self._ctx = ctx
        self._is_strict = strict_from is not None and ctx.version >= strict_from
        self._account: QuotaAccount | None = None
        quotas = ctx.services.quotas
        if quotas.is_active:
            accounts = quotas.accounts.client(user_of(ctx.peer), ctx.header.client_id or "", self._now_ms())
            self._account = accounts.mutation

    @property
    def applies(self) -> bool:
        """Whether there is a quota: only changes that are valid count towards it."""
        return self._account is not None

    def take(self, partitions: int) -> None:
        """Count a change of this many partitions. Raises `QuotaExceeded` if it must not be made now."""
        if self._account is None:
            return
        now_ms = self._now_ms()
        if self._is_strict:
            owed_ms = self._account.owed_ms(now_ms)
            if owed_ms:
                self._delay(owed_ms)
                raise QuotaExceeded(f"the quota controller_mutation_rate is used up: try again in {owed_ms} ms")
            self._account.record(partitions, now_ms)
        else:
            self._delay(self._account.record(partitions, now_ms))

    def _delay(self, delay_ms: int) -> None:
        metered = self._ctx.metered
        if metered is not None and self._account is not None:
            metered.delayed(self._account, delay_ms)

    def _now_ms(self) -> int:
        return int(self._ctx.services.clock.monotonic_ms())
