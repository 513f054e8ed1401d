"""The metadata store's interface: an ordered key-value store with compare-and-set, leases and watches.

Implementations: `sqlite.py` for one node, `etcd.py` for a cluster. A key's *mod revision* is the store revision of its
last write; 0 means that the key does not exist. Fencing is always a comparison inside a transaction, never a read
before it.

Guarantees:
- a transaction is atomic, durable when `commit` returns, and evaluates all of its comparisons at one revision;
- revisions grow with every committed write and never repeat, also across restarts;
- a watch delivers every change after the given revision exactly once, in order, or ends with `WatchLost`, after which
  the reader takes a new snapshot, or with `StoreUnavailable`, after which it resumes from the last revision it saw;
- a key written under a lease is deleted when the lease ends, which is not before its TTL;
- every call ends in bounded time. After `StoreUnavailable` the outcome of a transaction is unknown.
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
    """The store rejects this transaction permanently: it is too large or malformed."""


class WatchLost(HeadraceError):
    """The changes after the watch's revision were compacted: take a snapshot and watch from there."""


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
        """Apply `writes` if every comparison holds and every lease in them is live; the new revision, or else None."""
        ...

    def watch(self, prefix: str, after: Revision) -> AsyncGenerator[Sequence[Change], None]:
        """Changes under `prefix` after the revision; one sequence per transaction. Ends when the store is closed."""
        ...

    async def grant_lease(self, ttl_ms: int) -> LeaseId:
        """Grant a lease that ends when not renewed for its TTL, or a little longer."""
        ...

    async def keep_alive(self, lease: LeaseId) -> bool:
        """Renew; False means that the lease has ended and its keys are gone."""
        ...

    async def revoke_lease(self, lease: LeaseId) -> None: ...

    async def close(self) -> None: ...
