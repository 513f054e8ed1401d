"""A model of the metadata store: one linearizable process, and each broker's unreliable connection to it.

`StoreModel` has the keys, the history and the leases, with etcd's semantics. `StoreClient` is the `MetadataStore` of
one broker: each call is a request and a response over the links between the broker and the store. Either may be lost:
then the call raises `StoreUnavailable` after a timeout, and a transaction whose response was lost is committed all the
same. A watch lags behind, and may break or find that its revision was compacted.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.cluster.store import (
    ABSENT,
    Change,
    Compare,
    DeleteKey,
    LeaseId,
    Put,
    Revision,
    Snapshot,
    StoreUnavailable,
    Versioned,
    WatchLost,
    Write,
)
from headrace.testing.sim.network import Network
from headrace.testing.sim.world import Process, World

T = TypeVar("T")

_CALL_LIMIT_S = 2.0
_LEASE_LATE_MAX_S = 0.5
"""How long after its TTL a lease may end: a store checks its leases periodically."""


@dataclass(slots=True)
class _Item:
    value: bytes
    mod_revision: Revision
    lease: LeaseId | None


@dataclass(slots=True)
class _SimLease:
    ttl_s: float
    deadline_s: float
    keys: dict[str, None]


class StoreModel:
    """The state of the store."""

    def __init__(self, world: World, name: str = "store") -> None:
        self.world = world
        self.process = world.process(name)
        self.revision = ABSENT
        self.items: dict[str, _Item] = {}
        self.history: list[tuple[Revision, tuple[Change, ...]]] = []
        self.compacted = ABSENT
        """Changes up to this revision are no longer available to watches."""
        self.on_commit: list[Callable[[Revision, tuple[Change, ...]], None]] = []
        """Called with every transaction at the instant of its commit, before any client sees it."""
        self._leases: dict[LeaseId, _SimLease] = {}
        self._last_lease = 0
        self._watchers: list[Callable[[], None]] = []

    # The operations, as executed in the store

    def snapshot(self, prefix: str) -> Snapshot:
        found = {
            key: Versioned(item.value, item.mod_revision)
            for key, item in sorted(self.items.items())
            if key.startswith(prefix)
        }
        return Snapshot(found, self.revision)

    def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Revision | None:
        for compare in compares:
            item = self.items.get(compare.key)
            if (ABSENT if item is None else item.mod_revision) != compare.mod_revision:
                return None
        if any(
            isinstance(write, Put) and write.lease is not None and write.lease not in self._leases for write in writes
        ):
            return None
        return self._apply(writes)

    def grant_lease(self, ttl_ms: int) -> LeaseId:
        self._last_lease += 1
        lease = LeaseId(self._last_lease)
        ttl_s = ttl_ms / 1000
        self._leases[lease] = _SimLease(ttl_s, self.world.now_s + ttl_s, {})
        self._schedule_check(lease)
        return lease

    def keep_alive(self, lease: LeaseId) -> bool:
        held = self._leases.get(lease)
        if held is None:
            return False
        held.deadline_s = self.world.now_s + held.ttl_s
        return True

    def revoke_lease(self, lease: LeaseId) -> None:
        held = self._leases.pop(lease, None)
        if held is not None and held.keys:
            self._apply([DeleteKey(key) for key in held.keys])

    def compact(self) -> None:
        """Drop the history: a watch that is behind is lost."""
        self.compacted = self.revision
        self.history.clear()

    def changes_after(self, after: Revision) -> Sequence[tuple[Revision, tuple[Change, ...]]]:
        """The changes after a revision; `WatchLost` if they were compacted."""
        if after < self.compacted:
            raise WatchLost(f"changes up to revision {self.compacted} are compacted, the watch is after {after}")
        return self.history[bisect_right(self.history, after, key=lambda entry: entry[0]) :]

    def _apply(self, writes: Sequence[Write]) -> Revision:
        revision = Revision(self.revision + 1)
        changes: list[Change] = []
        for write in writes:
            before = self.items.get(write.key)
            if before is not None and before.lease is not None and before.lease in self._leases:
                self._leases[before.lease].keys.pop(write.key, None)
            if isinstance(write, Put):
                self.items[write.key] = _Item(write.value, revision, write.lease)
                if write.lease is not None:
                    self._leases[write.lease].keys[write.key] = None
                changes.append(Change(write.key, write.value, revision))
            elif before is not None:
                del self.items[write.key]
                changes.append(Change(write.key, None, revision))
        if not changes:
            return self.revision
        self.revision = revision
        self.history.append((revision, tuple(changes)))
        for listener in self.on_commit:
            listener(revision, tuple(changes))
        for wake in self._watchers:
            wake()
        return revision

    def _schedule_check(self, lease: LeaseId) -> None:
        held = self._leases[lease]
        late_s = self.world.random.uniform(0, _LEASE_LATE_MAX_S)
        self.world.post(self.process, held.deadline_s - self.world.now_s + late_s, self._check_lease, lease)

    def _check_lease(self, lease: LeaseId) -> None:
        held = self._leases.get(lease)
        if held is None:
            return
        if held.deadline_s <= self.world.now_s:
            self.world.trace.note(self.process.name, "lease %d ends with %s", lease, ", ".join(held.keys))
            self.revoke_lease(lease)
        else:
            self._schedule_check(lease)

    # Watches

    def add_watcher(self, wake: Callable[[], None]) -> None:
        self._watchers.append(wake)

    def remove_watcher(self, wake: Callable[[], None]) -> None:
        if wake in self._watchers:
            self._watchers.remove(wake)


class StoreClient:
    """The `MetadataStore` of one process, over an unreliable network."""

    def __init__(self, model: StoreModel, network: Network, process: Process) -> None:
        self._model = model
        self._network = network
        self._process = process
        self._world = network.world
        self._is_closed = False
        self._watches: dict[_SimWatch, None] = {}
        self.failing = 0.0
        """The share of requests, and of responses, that are lost."""
        process.on_death.append(self._stop_watches)

    async def snapshot(self, prefix: str = "") -> Snapshot:
        return await self._call(self._model.snapshot, prefix)

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Revision | None:
        return await self._call(self._model.commit, tuple(compares), tuple(writes))

    async def grant_lease(self, ttl_ms: int) -> LeaseId:
        return await self._call(self._model.grant_lease, ttl_ms)

    async def keep_alive(self, lease: LeaseId) -> bool:
        return await self._call(self._model.keep_alive, lease)

    async def revoke_lease(self, lease: LeaseId) -> None:
        await self._call(self._model.revoke_lease, lease)

    async def close(self) -> None:
        self._is_closed = True
        self._stop_watches()

    async def watch(self, prefix: str, after: Revision) -> AsyncGenerator[Sequence[Change], None]:
        await self._call(lambda: None)
        watch = _SimWatch(self._model, self._network, self._process, prefix, after)
        self._watches[watch] = None
        try:
            while True:
                changes = await watch.next()
                if changes is None:
                    return
                yield changes
        finally:
            self._watches.pop(watch, None)
            watch.stop()

    def break_watches(self) -> None:
        """Break the connection of the watches: each ends with `StoreUnavailable`."""
        for watch in tuple(self._watches):
            watch.fail(StoreUnavailable("the connection to the metadata store broke"))

    def lose_watches(self) -> None:
        """End the watches with `WatchLost`, as if their history was compacted."""
        for watch in tuple(self._watches):
            watch.fail(WatchLost("the history was compacted"))

    def lag_watches(self, lag_s: float) -> None:
        """Delay changes by up to this much from now on."""
        for watch in self._watches:
            watch.lag_s = lag_s

    def _stop_watches(self) -> None:
        for watch in tuple(self._watches):
            watch.end()

    async def _call(self, verb: Callable[..., T], *args: Any) -> T:
        if self._is_closed:
            raise StoreUnavailable("the metadata store is closed")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        world, network, here, store = self._world, self._network, self._process, self._model.process

        def is_lost(source: Process, target: Process) -> bool:
            return network.is_cut(source.name, target.name) or world.random.random() < self.failing

        def asked() -> None:
            result = verb(*args)
            if not is_lost(store, here):
                world.post(here, network.delay_s(store.name, here.name), answered, result)

        def answered(result: T) -> None:
            if not answer.done():
                answer.set_result(result)

        if not is_lost(here, store):
            world.post(store, network.delay_s(here.name, store.name), asked)
        try:
            async with asyncio.timeout(_CALL_LIMIT_S):
                return await answer
        except TimeoutError:
            raise StoreUnavailable("the metadata store does not answer") from None


class _SimWatch:
    """Delivers changes from the store to one process, in order."""

    def __init__(self, model: StoreModel, network: Network, process: Process, prefix: str, after: Revision) -> None:
        self._model = model
        self._network = network
        self._world = network.world
        self._process = process
        self._prefix = prefix
        self._sent = after
        self._arrives_s = 0.0
        self._arrived: asyncio.Queue[Sequence[Change] | BaseException | None] = asyncio.Queue()
        self._is_over = False
        self._retry_is_due = False
        self.lag_s = 0.0
        model.add_watcher(self._push)
        self._push()

    async def next(self) -> Sequence[Change] | None:
        """The next transaction's changes; None when the store was closed."""
        found = await self._arrived.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def stop(self) -> None:
        self._is_over = True
        self._model.remove_watcher(self._push)

    def end(self) -> None:
        if not self._is_over:
            self.stop()
            self._arrived.put_nowait(None)

    def fail(self, error: BaseException) -> None:
        if not self._is_over:
            self.stop()
            self._world.post_at(self._process, self._arrival_s(), self._arrived.put_nowait, error)

    def _push(self) -> None:
        """Send new changes; retry later if the link is cut."""
        if self._is_over:
            return
        try:
            entries = self._model.changes_after(self._sent)
        except WatchLost as lost:
            self.fail(lost)
            return
        if not entries:
            return
        store = self._model.process
        if self._network.is_cut(store.name, self._process.name) or self._network.is_cut(self._process.name, store.name):
            if not self._retry_is_due:
                self._retry_is_due = True
                self._world.post(store, self._world.random.uniform(0.05, 0.5), self._push_again)
            return
        for revision, changes in entries:
            self._sent = revision
            if wanted := [change for change in changes if change.key.startswith(self._prefix)]:
                self._world.post_at(self._process, self._arrival_s(), self._arrived.put_nowait, wanted)

    def _push_again(self) -> None:
        self._retry_is_due = False
        self._push()

    def _arrival_s(self) -> float:
        """The arrival time of a message sent now: not before earlier ones."""
        world = self._world
        delay_s = self._network.delay_s(self._model.process.name, self._process.name)
        self._arrives_s = max(world.now_s + delay_s + world.random.uniform(0, self.lag_s), self._arrives_s)
        return self._arrives_s
