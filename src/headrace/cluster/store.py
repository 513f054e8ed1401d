"""The metadata store: a small ordered key-value space with three verbs: compare-and-set, lease, watch.

Adapters: `sqlite.py` for one node, `etcd.py` for a cluster. A key's *mod revision* is the store revision at which it
was last written; 0 stands for "is not there". Fencing is always a comparison inside a transaction, never a read before.

What a store promises:
- a transaction is atomic and durable when `commit` returns, and sees all of its comparisons at one revision;
- revisions grow with every committed write, and never repeat, also across restarts;
- a watch delivers every change after the given revision exactly once, in order, or ends with `WatchLost`, after which
  the reader takes a new snapshot, or with `StoreUnavailable`, after which it watches from the last revision it saw;
- a key written under a lease is gone when the lease ends, which is not before the time that was asked for;
- every call ends in bounded time. `StoreUnavailable` leaves open whether a transaction was carried out.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from headrace.model.errors import HeadraceError

Revision = NewType("Revision", int)
LeaseId = NewType("LeaseId", int)

ABSENT = Revision(0)


class StoreUnavailable(HeadraceError):
    """The store did not answer; the outcome of a transaction in flight is unknown."""


class StoreRefused(HeadraceError):
    """The store cannot take this transaction, now or later: it is too large, or not well formed."""


class WatchLost(HeadraceError):
    """History before the watch's position is gone: take a snapshot and watch from there."""


@dataclass(frozen=True, slots=True)
class Versioned:
    value: bytes
    mod_revision: Revision


@dataclass(frozen=True, slots=True)
class Compare:
    """Holds when the key's mod revision is exactly this; `ABSENT` means that the key must not exist."""

    key: str
    mod_revision: Revision


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: LeaseId | None = None


@dataclass(frozen=True, slots=True)
class DeleteKey:
    key: str


Write = Put | DeleteKey


@dataclass(frozen=True, slots=True)
class Change:
    """One key's change: `value` None means deleted."""

    key: str
    value: bytes | None
    revision: Revision


@dataclass(frozen=True, slots=True)
class Snapshot:
    items: Mapping[str, Versioned]
    revision: Revision


class MetadataStore(Protocol):
    async def snapshot(self, prefix: str = "") -> Snapshot:
        """All keys under `prefix` at one revision."""
        ...

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Revision | None:
        """Apply `writes` if every comparison holds and no lease in them has ended; the new revision, or else None."""
        ...

    def watch(self, prefix: str, after: Revision) -> AsyncGenerator[Sequence[Change], None]:
        """Changes under `prefix` after the revision; one sequence per transaction. Ends when the store is closed."""
        ...

    async def grant_lease(self, ttl_ms: int) -> LeaseId:
        """A lease that ends when it was not renewed for this long, or a little longer."""
        ...

    async def keep_alive(self, lease: LeaseId) -> bool:
        """Renew; False means that the lease has ended and its keys are gone."""
        ...

    async def revoke_lease(self, lease: LeaseId) -> None: ...

    async def close(self) -> None: ...
