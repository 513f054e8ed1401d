"""The metadata store on SQLite, for a single node: one file, nothing to install.

- One thread owns the connection; the event loop never waits for the disk.
- WAL with `synchronous=FULL`: a transaction is on disk when `commit` returns. The revision is written in the same
  transaction, so it never repeats.
- Only its owner, and the group if it was let in, can read the file.
- The file is locked while it is open: a second broker on the same data directory does not start.
- Watches are in-process. The changes of the last `HISTORY_LIMIT` transactions are in memory; a watch after an older
  revision, or one from an earlier run, ends with `WatchLost`.
- A lease belongs to the process that was granted it: leases of an earlier run end when the file is opened.
"""

import asyncio
import logging
import os
import sqlite3
import stat
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.cluster.layout_keys import DATA_KEYS
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
from headrace.model.errors import StartupError
from headrace.runtime.clock import Clock

HISTORY_LIMIT = 1_000
"""A transaction is a kilobyte or more: a watch that is further behind is better off with a snapshot."""
APPLICATION_ID = 0x48445243  # "HDRC", in the file's header
FORMAT = 1
_LEASE_TICK_MS = 10

_SCHEMA = """
CREATE TABLE items (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL, lease INTEGER) WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('revision', 0), ('lease', 0);
"""

log = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass(slots=True)
class _Lease:
    ttl_ms: int
    deadline_ms: float


class SqliteStore:
    """A `MetadataStore` in the file at `path`. Open it with `await SqliteStore.open(path, clock)`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="metadata")
        self._revision = ABSENT
        self._history: list[tuple[Revision, tuple[Change, ...]]] = []
        self._compacted = ABSENT
        """Changes up to this revision are no longer in the history."""
        self._leases: dict[LeaseId, _Lease] = {}
        self._expiry: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._closed = False

    @classmethod
    async def open(cls, path: Path, clock: Clock) -> "SqliteStore":
        """Open or create the file; raises `StartupError`."""
        store = cls(path, clock)
        try:
            store._revision = store._compacted = await store._run(store._connect)
        except BaseException:
            store._thread.shutdown(wait=False)
            raise
        return store

    async def snapshot(self, prefix: str = "") -> Snapshot:
        await self._end_expired()
        return await self._run(lambda: self._read(prefix))

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Revision | None:
        await self._end_expired()
        for write in writes:
            if isinstance(write, Put) and write.lease is not None and write.lease not in self._leases:
                return None
        return await self._run(lambda: self._transact(compares, writes))

    async def watch(self, prefix: str, after: Revision) -> AsyncGenerator[Sequence[Change], None]:
        while not self._closed:
            if after < self._compacted:
                raise WatchLost(f"changes up to revision {self._compacted} are compacted, the watch is after {after}")
            changed = self._changed
            start = bisect_right(self._history, after, key=lambda entry: entry[0])
            # Copied, because the history may be truncated while the reader handles an entry.
            for revision, changes in self._history[start:]:
                after = revision
                if wanted := [change for change in changes if change.key.startswith(prefix)]:
                    yield wanted
            if after >= self._revision:
                await changed.wait()

    async def grant_lease(self, ttl_ms: int) -> LeaseId:
        lease = LeaseId(await self._run(self._next_lease))
        self._leases[lease] = _Lease(ttl_ms, self._clock.monotonic_ms() + ttl_ms)
        self._arm()
        return lease

    async def keep_alive(self, lease: LeaseId) -> bool:
        await self._end_expired()
        held = self._leases.get(lease)
        if held is None:
            return False
        held.deadline_ms = self._clock.monotonic_ms() + held.ttl_ms
        return True

    async def revoke_lease(self, lease: LeaseId) -> None:
        await self._run(lambda: self._delete_leased([lease]))
        self._leases.pop(lease, None)

    async def close(self) -> None:
        if self._closed:
            return
        await self._run(self._disconnect)
        self._closed = True
        self._wake()
        if self._expiry is not None:
            self._expiry.cancel()
        self._thread.shutdown()

    # On the event loop

    async def _run(self, work: Callable[[], _T]) -> _T:
        if self._closed:
            raise StoreUnavailable("the metadata store is closed")
        try:
            return await self._loop.run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the metadata store {self._path} failed: {error}") from error

    def _publish(self, revision: Revision, changes: tuple[Change, ...]) -> None:
        self._revision = revision
        self._history.append((revision, changes))
        if len(self._history) > HISTORY_LIMIT:
            # Drop half at once: dropping one entry at a time would shift the whole list for each transaction.
            half = HISTORY_LIMIT // 2
            self._compacted = self._history[half - 1][0]
            del self._history[:half]
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _end_expired(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if expired := [lease for lease, held in self._leases.items() if held.deadline_ms <= now_ms]:
            await self._run(lambda: self._delete_leased(expired))
            for lease in expired:
                self._leases.pop(lease, None)

    def _arm(self) -> None:
        """Start the task that expires leases between calls."""
        if self._expiry is None and self._leases:
            self._expiry = self._loop.create_task(self._expire(), name="metadata leases")

    async def _expire(self) -> None:
        while self._leases:
            wait_ms = min(held.deadline_ms for held in self._leases.values()) - self._clock.monotonic_ms()
            await asyncio.sleep(max(wait_ms, _LEASE_TICK_MS) / 1000)
            try:
                await self._end_expired()
            except StoreUnavailable as error:
                log.warning("an expired lease could not be deleted, retrying: %s", error)
        self._expiry = None

    # On the store's thread

    def _connect(self) -> Revision:
        try:
            _hide_from_others(self._path)
            self._connection = sqlite3.connect(self._path, timeout=0, isolation_level=None)
            try:
                return self._prepare(self._connection)
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.DatabaseError as error:
            raise StartupError(_why_not_opened(self._path, error)) from error

    def _prepare(self, connection: sqlite3.Connection) -> Revision:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (written_format,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application_id != APPLICATION_ID:
            raise StartupError(f"{self._path} was not written by Headrace: choose another data.dir")
        if written_format > FORMAT:
            raise StartupError(f"{self._path} was written by a newer version of Headrace: use that version")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        # A data key that was destroyed must not remain in a free part of a page.
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("BEGIN IMMEDIATE")
        if tables == 0:
            for statement in _SCHEMA.strip().split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={FORMAT}")
        connection.execute("COMMIT")
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        if connection.execute("SELECT 1 FROM items WHERE lease IS NOT NULL").fetchone() is not None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM items WHERE lease IS NOT NULL")
            self._count("revision")
            connection.execute("COMMIT")
        (revision,) = connection.execute("SELECT value FROM counters WHERE name='revision'").fetchone()
        return Revision(revision)

    def _disconnect(self) -> None:
        self._connection.close()

    def _read(self, prefix: str) -> Snapshot:
        connection = self._connection
        connection.execute("BEGIN")
        try:
            rows = connection.execute(
                "SELECT key, value, revision FROM items WHERE substr(key, 1, ?) = ? ORDER BY key", (len(prefix), prefix)
            ).fetchall()
            (revision,) = connection.execute("SELECT value FROM counters WHERE name='revision'").fetchone()
        finally:
            connection.execute("COMMIT")
        return Snapshot({key: Versioned(value, Revision(at)) for key, value, at in rows}, Revision(revision))

    def _transact(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Revision | None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            for compare in compares:
                row = connection.execute("SELECT revision FROM items WHERE key=?", (compare.key,)).fetchone()
                if (ABSENT if row is None else row[0]) != compare.mod_revision:
                    connection.execute("ROLLBACK")
                    return None
            revision = self._count("revision")
            changes = [change for write in writes if (change := self._write(write, revision)) is not None]
            if not changes:
                connection.execute("ROLLBACK")
                return Revision(revision - 1)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if any(change.key.startswith(DATA_KEYS) for change in changes):
            # Otherwise the write-ahead log would still have a destroyed data key.
            with suppress(sqlite3.DatabaseError):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # Before the caller is woken, and even if it was cancelled: the change is committed.
        self._loop.call_soon_threadsafe(self._publish, revision, tuple(changes))
        return revision

    def _write(self, write: Write, revision: Revision) -> Change | None:
        """Execute one write and return its change; deleting an absent key is no change."""
        if isinstance(write, DeleteKey):
            deleted = self._connection.execute("DELETE FROM items WHERE key=?", (write.key,)).rowcount
            return Change(write.key, None, revision) if deleted else None
        self._connection.execute(
            "INSERT INTO items VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
            "value=excluded.value, revision=excluded.revision, lease=excluded.lease",
            (write.key, write.value, revision, write.lease),
        )
        return Change(write.key, write.value, revision)

    def _delete_leased(self, leases: Sequence[LeaseId]) -> None:
        marks = ",".join("?" * len(leases))
        rows = self._connection.execute(f"SELECT key FROM items WHERE lease IN ({marks})", leases).fetchall()
        if rows:
            self._transact([], [DeleteKey(key) for (key,) in rows])

    def _next_lease(self) -> int:
        return self._count("lease")

    def _count(self, name: str) -> Revision:
        (value,) = self._connection.execute(
            "UPDATE counters SET value = value + 1 WHERE name=? RETURNING value", (name,)
        ).fetchone()
        return Revision(value)


def _hide_from_others(path: Path) -> None:
    """Other users of the machine must not read it: it has the secrets of access keys. SQLite gives its log the same
    permissions. An error is left to SQLite, which says more."""
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for file in (path, path.with_name(f"{path.name}-wal")):
            mode = file.stat().st_mode
            if mode & stat.S_IRWXO:
                file.chmod(stat.S_IMODE(mode) & ~stat.S_IRWXO)


def _why_not_opened(path: Path, error: sqlite3.DatabaseError) -> str:
    text = str(error)
    if "locked" in text:
        return f"{path} is in use: another broker runs on this data directory; stop it, or choose another data.dir"
    if "unable to open" in text or "readonly" in text:
        return f"{path} cannot be opened for writing: check that the directory exists, and its owner"
    if "full" in text:
        return f"{path} cannot be written: the disk is full"
    return f"{path} is damaged ({text}): restore it from a backup, or move it away to start with empty metadata"
