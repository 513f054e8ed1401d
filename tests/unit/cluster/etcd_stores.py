"""Stores over a real etcd, and who follows them, for the tests that need one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from uuid import uuid4

import pytest
import uvloop

from headrace.cluster.store import ABSENT, Change, Compare, Put, Revision, StoreUnavailable, WatchLost
from headrace.testing.etcd import is_installed

pytest.importorskip("aetcd")

from headrace.cluster.etcd import EtcdStore
from headrace.cluster.etcd_client import EtcdAccess

NEEDS_ETCD = [
    pytest.mark.xdist_group("etcd store"),
    pytest.mark.skipif(not is_installed(), reason="etcd is not installed"),
]
WAIT_S = 60


def new_prefix() -> str:
    return f"/test-{uuid4()}"


@asynccontextmanager
async def opened(
    *endpoints: str, prefix: str = "/headrace", timeout_s: float = 10.0, **access: object
) -> AsyncIterator[EtcdStore]:
    given = EtcdAccess(endpoints, **access)  # type: ignore[arg-type]
    store = await EtcdStore.open(given, prefix, timeout_s=timeout_s, start_timeout_s=WAIT_S)
    try:
        yield store
    finally:
        await store.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """On the loop of the broker."""

    async def main() -> None:
        async with asyncio.timeout(WAIT_S * 1.5):
            await scenario()

    uvloop.run(main())


class Follower:
    """Reads a watch for as long as the test lasts, watching again where it was after each failure."""

    def __init__(self, store: EtcdStore, after: Revision) -> None:
        self.seen: list[Change] = []
        self.failures: list[Exception] = []
        self._store = store
        self._after = after
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            try:
                async with aclosing(self._store.watch("", self._after)) as watching:
                    async for changes in watching:
                        await self._take(changes)
                return
            except (StoreUnavailable, WatchLost) as error:
                async with self._changed:
                    self.failures.append(error)
                    self._changed.notify_all()
                await asyncio.sleep(0.1)

    async def _take(self, changes: Sequence[Change]) -> None:
        async with self._changed:
            self._after = changes[-1].revision
            self.seen.extend(changes)
            self._changed.notify_all()

    async def until(self, condition: Callable[["Follower"], bool]) -> None:
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def until_key(self, key: str) -> None:
        await self.until(lambda self: any(change.key == key for change in self.seen))

    def revisions(self) -> list[Revision]:
        return [change.revision for change in self.seen]


async def put_for_certain(store: EtcdStore, key: str) -> None:
    """Put a key, in as many attempts as it takes."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                if await store.commit([Compare(key, ABSENT)], [Put(key, b"")]) is not None:
                    return
                if key in (await store.snapshot(key)).items:
                    return  # by an attempt whose answer was lost
            except StoreUnavailable:
                await asyncio.sleep(0.1)
