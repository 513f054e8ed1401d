"""A way to the store of a cluster that tests can break."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from headrace.cluster.store import (
    Change,
    Compare,
    LeaseId,
    MetadataStore,
    Revision,
    Snapshot,
    StoreUnavailable,
    WatchLost,
    Write,
)


class WayToStore:
    """A store that can be away, and that can have forgotten its history."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self.is_away = False
        self.stale: list[Snapshot] = []
        """Answers to the next reads of everything."""
        self.behind = 0
        """How many revisions reads are behind."""
        self.swaps = False
        """Whether each second change comes before the first."""
        self.refused = 0
        """How many calls came while it was away."""
        self._breaking = asyncio.Event()
        self._why: type[StoreUnavailable] | type[WatchLost] = StoreUnavailable

    def break_watch(self, why: type[StoreUnavailable] | type[WatchLost] = StoreUnavailable) -> None:
        self._why = why
        self._breaking.set()

    def go_away(self) -> None:
        self.is_away = True
        self.break_watch()

    def _check(self) -> None:
        if self.is_away:
            self.refused += 1
            raise StoreUnavailable("away")

    async def snapshot(self, prefix: str = "") -> Snapshot:
        self._check()
        if not prefix and self.stale:
            return self.stale.pop(0)
        snapshot = await self.store.snapshot(prefix)
        return replace(snapshot, revision=Revision(snapshot.revision - self.behind))

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Revision | None:
        self._check()
        return await self.store.commit(compares, writes)

    async def watch(self, prefix: str, after: Revision) -> AsyncGenerator[Sequence[Change], None]:
        self._check()
        changes = self.store.watch(prefix, after)
        breaking = asyncio.create_task(self._breaking.wait())
        taking: asyncio.Task[Sequence[Change]] | None = None
        try:
            while True:
                taking = asyncio.ensure_future(anext(changes))
                await asyncio.wait((taking, breaking), return_when=asyncio.FIRST_COMPLETED)
                if breaking.done():
                    self._breaking.clear()
                    raise self._why("broken")
                if self.swaps:
                    late = taking.result()
                    yield await anext(changes)
                    yield late
                else:
                    yield taking.result()
        finally:
            for task in (breaking, taking):
                if task is not None and not task.done():
                    task.cancel()
                    await asyncio.wait((task,))
            await changes.aclose()

    async def grant_lease(self, ttl_ms: int) -> LeaseId:
        self._check()
        return await self.store.grant_lease(ttl_ms)

    async def keep_alive(self, lease: LeaseId) -> bool:
        self._check()
        return await self.store.keep_alive(lease)

    async def revoke_lease(self, lease: LeaseId) -> None:
        self._check()
        await self.store.revoke_lease(lease)

    async def close(self) -> None: ...
