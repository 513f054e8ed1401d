"""Times the calls to a metadata store, and counts those that fail."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

from headrace.cluster.store import Change, Compare, LeaseId, MetadataStore, Revision, Snapshot, Write
from headrace.observe.histogram import Histogram

T = TypeVar("T")

OPERATIONS = ("snapshot", "commit", "grant_lease", "keep_alive")


class TimedStore:
    """A `MetadataStore` that passes every call on to another."""

    def __init__(self, store: MetadataStore, now_s: Callable[[], float]) -> None:
        """`now_s` is a monotonic clock."""
        self._store = store
        self._now_s = now_s
        self.times = {name: Histogram() for name in OPERATIONS}
        """Seconds of each call, by operation."""
        self.failures = dict.fromkeys(OPERATIONS, 0)
        self.last_s: float | None = None
        """How long the last call took that was answered."""

    def answered(self) -> tuple[int, float]:
        """How many calls were answered, and how many seconds that took in sum."""
        times = self.times.values()
        return sum(each.count for each in times), sum(each.total for each in times)

    async def _timed(self, operation: str, call: Awaitable[T]) -> T:
        began_s = self._now_s()
        try:
            result = await call
        except Exception:
            self.failures[operation] += 1
            raise
        self.last_s = self._now_s() - began_s
        self.times[operation].observe(self.last_s)
        return result

    async def snapshot(self, prefix: str = "") -> Snapshot:
        return await self._timed("snapshot", self._store.snapshot(prefix))

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Revision | None:
        return await self._timed("commit", self._store.commit(compares, writes))

    def watch(self, prefix: str, after: Revision) -> AsyncGenerator[Sequence[Change], None]:
        return self._store.watch(prefix, after)

    async def grant_lease(self, ttl_ms: int) -> LeaseId:
        return await self._timed("grant_lease", self._store.grant_lease(ttl_ms))

    async def keep_alive(self, lease: LeaseId) -> bool:
        return await self._timed("keep_alive", self._store.keep_alive(lease))

    async def revoke_lease(self, lease: LeaseId) -> None:
        await self._store.revoke_lease(lease)

    async def close(self) -> None:
        await self._store.close()
