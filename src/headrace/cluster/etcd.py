"""The metadata store on etcd, for a cluster.

- Keys are those of `layout.py` behind a prefix, so that one etcd can serve several clusters.
- A transaction is an etcd transaction that compares mod revisions. If the connection breaks before the response, its
  outcome is unknown: `StoreUnavailable`. A caller that retries decides again from the image the watch then delivers.
- A snapshot is read in pages at one revision. It may be stale: only a comparison in a transaction is authoritative.
- etcd counts lease TTLs in whole seconds and has a lower bound (two seconds by default), so a lease may last longer
  than requested, never shorter.

Limits are etcd's: 128 comparisons and 128 writes per transaction, 1.5 MiB in all. More is `StoreRefused`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from aetcd import rpc

from headrace.cluster.etcd_client import AccessDenied, Compacted, EtcdAccess, EtcdClient, LeaseGone
from headrace.cluster.store import (
    Change,
    Compare,
    LeaseId,
    Put,
    Revision,
    Snapshot,
    StoreRefused,
    StoreUnavailable,
    Versioned,
    WatchLost,
    Write,
)
from headrace.model.errors import StartupError

PAGE_KEYS = 1_000
_START_RETRY_S = 0.2
_READ_ATTEMPTS = 3

log = logging.getLogger(__name__)


class EtcdStore:
    """A `MetadataStore` in etcd. Open it with `await EtcdStore.open(access, prefix)`."""

    def __init__(self, access: EtcdAccess, prefix: str, timeout_s: float) -> None:
        self._client = EtcdClient(access)
        self._root = prefix.rstrip("/")
        self._timeout_s = timeout_s
        self._is_closed = False

    @classmethod
    async def open(
        cls, access: EtcdAccess, prefix: str, *, timeout_s: float = 5.0, start_timeout_s: float = 15.0
    ) -> "EtcdStore":
        """Connect, retrying for up to `start_timeout_s` while etcd is not up; raises `StartupError`.

        `timeout_s` limits each call.
        """
        store = cls(access, prefix, timeout_s)
        give_up_at = asyncio.get_running_loop().time() + start_timeout_s
        try:
            while True:
                try:
                    await store._ask(lambda to: to.kv.Range, store._range("", limit=1))
                    return store
                except (AccessDenied, StoreRefused) as error:
                    raise StartupError(str(error)) from None
                except StoreUnavailable as error:
                    if asyncio.get_running_loop().time() >= give_up_at:
                        raise StartupError(f"{error}: is it running, and is etcd.endpoints right?") from None
                await asyncio.sleep(_START_RETRY_S)
        except BaseException:
            await store.close()
            raise

    async def snapshot(self, prefix: str = "") -> Snapshot:
        attempt = 1
        while True:
            try:
                return await self._read(prefix)
            except (Compacted, StoreUnavailable) as error:
                # A read can be repeated; after a failure it goes to the next member.
                if self._is_closed or isinstance(error, AccessDenied) or attempt == _READ_ATTEMPTS:
                    raise
            attempt += 1

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Revision | None:
        request = rpc.TxnRequest(
            compare=[
                rpc.Compare(
                    key=self._full(compare.key),
                    target=rpc.Compare.MOD,
                    result=rpc.Compare.EQUAL,
                    mod_revision=compare.mod_revision,
                )
                for compare in compares
            ],
            success=[self._operation(write) for write in writes],
        )
        try:
            answer = await self._ask(lambda to: to.kv.Txn, request)
        except LeaseGone:
            return None
        return Revision(answer.header.revision) if answer.succeeded else None

    async def watch(self, prefix: str, after: Revision) -> AsyncGenerator[Sequence[Change], None]:
        wanted = self._range(prefix)
        create = rpc.WatchCreateRequest(key=wanted.key, range_end=wanted.range_end, start_revision=after + 1)
        try:
            async with self._client.stream(lambda to: to.watches.Watch) as stream:
                async with asyncio.timeout(self._timeout_s):
                    await stream.write(rpc.WatchRequest(create_request=create))
                    answer = await stream.read()
                while True:
                    self._check_watch(answer, after)
                    for changes in self._by_transaction(answer.events):
                        if changes[0].revision > after:
                            after = changes[0].revision
                            yield changes
                    answer = await stream.read()
        except StoreUnavailable:
            if not self._is_closed:
                raise

    async def grant_lease(self, ttl_ms: int) -> LeaseId:
        answer = await self._ask(lambda to: to.leases.LeaseGrant, rpc.LeaseGrantRequest(TTL=-(-ttl_ms // 1000)))
        return LeaseId(answer.ID)

    async def keep_alive(self, lease: LeaseId) -> bool:
        async with self._client.stream(lambda to: to.leases.LeaseKeepAlive) as stream:
            async with asyncio.timeout(self._timeout_s):
                await stream.write(rpc.LeaseKeepAliveRequest(ID=lease))
                answer = await stream.read()
        self._client.check(answer.header)
        return bool(answer.TTL > 0)

    async def revoke_lease(self, lease: LeaseId) -> None:
        with suppress(LeaseGone):
            await self._ask(lambda to: to.leases.LeaseRevoke, rpc.LeaseRevokeRequest(ID=lease))

    async def close(self) -> None:
        self._is_closed = True
        await self._client.close()

    async def _ask(self, method: Callable[[Any], Callable[..., Awaitable[Any]]], request: Any) -> Any:
        return await self._client.ask(method, request, self._timeout_s)

    async def _read(self, prefix: str) -> Snapshot:
        """Read all keys under a prefix, at the revision of the first page."""
        request = self._range(prefix, limit=PAGE_KEYS)
        items: dict[str, Versioned] = {}
        while True:
            page = await self._ask(lambda to: to.kv.Range, request)
            request.revision = request.revision or page.header.revision
            for item in page.kvs:
                items[self._short(item.key)] = Versioned(item.value, Revision(item.mod_revision))
            if not page.more:
                return Snapshot(items, Revision(request.revision))
            request.key = page.kvs[-1].key + b"\0"

    def _check_watch(self, answer: Any, after: Revision) -> None:
        """Raise if the watch was cancelled or compacted, or the response is from another etcd cluster."""
        self._client.check(answer.header)
        if answer.compact_revision:
            raise WatchLost(f"etcd has compacted up to revision {answer.compact_revision}, the watch was at {after}")
        if answer.canceled:
            raise StoreUnavailable(f"etcd cancelled the watch: {answer.cancel_reason}")

    def _by_transaction(self, events: Sequence[Any]) -> Iterator[list[Change]]:
        for revision, group in groupby(events, lambda event: event.kv.mod_revision):
            yield [
                Change(
                    self._short(event.kv.key),
                    None if event.type == rpc.Event.DELETE else event.kv.value,
                    Revision(revision),
                )
                for event in group
            ]

    def _operation(self, write: Write) -> Any:
        key = self._full(write.key)
        if isinstance(write, Put):
            return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=write.value, lease=write.lease or 0))
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))

    def _range(self, prefix: str, *, limit: int = 0) -> Any:
        first = self._full(prefix or "/")
        # UTF-8 has no byte 0xff, so the last byte can always be raised by one.
        return rpc.RangeRequest(key=first, range_end=first[:-1] + bytes([first[-1] + 1]), limit=limit)

    def _full(self, key: str) -> bytes:
        return (self._root + key).encode()

    def _short(self, key: bytes) -> str:
        return key.decode()[len(self._root) :]
