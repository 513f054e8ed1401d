"""Tables: a set of Parquet files and properties; a commit changes both atomically.

`TableStore` is the storage of the archive and of the table sink. There are two implementations:

- `ManifestStore` (here): a directory that any reader of Parquet can read, without a catalog.
- `IcebergStore` (`iceberg.py`): an Iceberg table with a SQLite catalog in the directory.

The directory of a `ManifestStore`:

    data/<folder>/<name>          for plain readers: hard links to committed files, in Hive folders
    _headrace/commits/<n>.json    manifest with the whole state after commit n; the highest number is current
    _headrace/files/<name>        the files themselves
    _headrace/staging/            files being written

A commit is the rename of its manifest. `data/` is updated afterwards: a plain reader never sees a row of an uncommitted
batch, and never a row twice. After a crash in between, the last batch appears when the next writer opens the table.
When a commit replaces files, their folder in `data/` is swapped for a new one atomically; the old files stay in
`_headrace/files` for a while, for readers that use an earlier manifest.
"""

import fcntl
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Protocol

import msgspec

from headrace.model.errors import HeadraceError
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.disk import Disk, OsDisk

if TYPE_CHECKING:
    import pyarrow as pa

OURS = "hr-"
"""Prefix of the names of our files: any other file in a table's directory is left alone."""
HIDDEN = "_headrace"
CATALOG_NOTE = "catalog.json"
"""File in a directory whose Iceberg catalog is elsewhere; see `catalogs.py`."""
KEEP_REMOVED_MS = 60 * 60_000
_KEEP_COMMITS = 8
_READ_ATTEMPTS = 20
_LOCK_POLL_S = 0.05


class TableError(HeadraceError):
    """A table cannot be read or written."""


class TableChanged(TableError):
    """Another writer has changed the table since its state was read."""


class TableFile(msgspec.Struct, frozen=True):
    """A Parquet file of a table."""

    name: str
    folder: str
    """Its folder below `data/`: Hive's `column=value/…`, or empty."""
    rows: int
    size_bytes: int


class TableState(msgspec.Struct, frozen=True):
    """The state of a table after a commit. `version` increases with each commit; 0 before the first."""

    version: int = 0
    files: tuple[TableFile, ...] = ()
    properties: dict[str, str] = {}


class TableStore(Protocol):
    """Storage of a table. Reading needs no lock; `path_for_new`, `commit` and `recover` need the table's lock."""

    root: Path

    def prepare(self, schema: "pa.Schema", partition_by: Sequence[tuple[str, str]]) -> None:
        """Create the table, or add new columns; `partition_by` has (column, `identity` or `day`) pairs."""
        ...

    def state(self) -> TableState: ...

    def path(self, file: TableFile) -> Path:
        """The path of a file. It stays there for a while after a commit has removed it."""
        ...

    def path_for_new(self, name: str, folder: str) -> Path:
        """The path for a file that a later commit adds; creates its directory."""
        ...

    def commit(
        self, base: TableState, *, add: Collection[TableFile], remove: Collection[str], properties: Mapping[str, str]
    ) -> TableState:
        """Add files (written and synced), remove others by name, and replace the properties, atomically."""
        ...

    def recover(self) -> list[str]:
        """Clean up after a crashed writer: finish its commit, remove uncommitted files; returns their names."""
        ...

    def close(self) -> None: ...


def has_catalog_note(root: Path) -> bool:
    """Whether the directory is an Iceberg table with its catalog elsewhere."""
    return (root / HIDDEN / CATALOG_NOTE).exists()


@contextmanager
def table_lock(root: Path, who: str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the write lock of a table; the system releases it when the process ends, however it ends."""
    folder = root / HIDDEN
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + wait_s
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder = os.pread(fd, 200, 0).decode(errors="replace").strip() or "another process"
                    raise TableError(f"{root} is being written to by {holder}; stop it first") from None
                time.sleep(_LOCK_POLL_S)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{who}, process {os.getpid()}".encode(), 0)
        yield
    finally:
        os.close(fd)


def make_folders(disk: Disk, path: Path) -> None:
    """Create a directory and its parents, each synced."""
    if not path.is_dir():
        make_folders(disk, path.parent)
        disk.make_dir(path)


class _Manifest(msgspec.Struct, frozen=True):
    version: int
    files: tuple[TableFile, ...]
    properties: dict[str, str]
    removed: tuple[tuple[str, int], ...] = ()
    """Removed files, with the time of removal in ms: they are deleted `keep_removed_ms` later."""
    format: int = 1


class _Format(msgspec.Struct, frozen=True):
    """The part of a manifest that all formats have."""

    format: int = 1


_FORMAT = 1
_decode = msgspec.json.Decoder(_Manifest).decode
_decode_format = msgspec.json.Decoder(_Format).decode


class ManifestStore:
    """See the module. Removed files stay on disk for `keep_removed_ms`."""

    def __init__(
        self,
        root: Path,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        keep_removed_ms: int = KEEP_REMOVED_MS,
    ) -> None:
        self.root = root
        self._disk = disk or OsDisk()
        self._clock = clock or SystemClock()
        self._keep_removed_ms = keep_removed_ms
        self._commits = root / HIDDEN / "commits"
        self._files = root / HIDDEN / "files"
        self._swap = root / HIDDEN / "swap"
        self._data = root / "data"

    def prepare(self, schema: "pa.Schema", partition_by: Sequence[tuple[str, str]]) -> None:
        """Nothing to do: the files have their schemas, and the folder names the partition values."""

    def state(self) -> TableState:
        manifest = self._newest()
        return TableState(manifest.version, manifest.files, manifest.properties)

    def path(self, file: TableFile) -> Path:
        return self._files / file.name

    def path_for_new(self, name: str, folder: str) -> Path:
        make_folders(self._disk, self._files)
        return self._files / name

    def commit(
        self, base: TableState, *, add: Collection[TableFile], remove: Collection[str], properties: Mapping[str, str]
    ) -> TableState:
        before = self._newest()
        if before.version != base.version:
            raise TableChanged(f"{self.root} was changed by another writer (commit {before.version}); try again")
        self._disk.sync_dir(self._files)
        now_ms = self._clock.wall_ms()
        expired = [name for name, at_ms in before.removed if at_ms + self._keep_removed_ms <= now_ms]
        gone = set(remove)
        after = _Manifest(
            version=before.version + 1,
            files=(*(file for file in before.files if file.name not in gone), *add),
            properties=dict(properties),
            removed=(
                *((name, at_ms) for name, at_ms in before.removed if name not in expired),
                *((name, now_ms) for name in remove),
            ),
        )
        make_folders(self._disk, self._commits)
        self._disk.write_atomic(self._commits / f"{after.version:020d}.json", msgspec.json.encode(after))
        touched = {file.folder for file in add} | {file.folder for file in before.files if file.name in gone}
        self._publish(after, touched)
        for name in expired:
            self._disk.unlink(self._files / name)
        self._disk.unlink(self._commits / f"{after.version - _KEEP_COMMITS:020d}.json")
        return TableState(after.version, after.files, after.properties)

    def recover(self) -> list[str]:
        # Before any change: a table of a newer format is refused.
        manifest = self._newest()
        for folder in (self._commits, self._files, self._data):
            make_folders(self._disk, folder)
        if self._swap.is_dir():
            self._disk.remove_tree(self._swap)
        visible = set(self._visible_folders())
        if visible and not manifest.version:
            raise TableError(f"{self.root} has files but no commits: its _headrace/commits is lost")
        for name in self._disk.files(self._commits):
            if name.endswith(".tmp") or _number(name) + _KEEP_COMMITS <= manifest.version:
                self._disk.unlink(self._commits / name)
        known = {file.name for file in manifest.files} | {name for name, _ in manifest.removed}
        orphans = sorted(name for name in self._disk.files(self._files) if name not in known)
        for name in orphans:
            self._disk.unlink(self._files / name)
        self._publish(manifest, {file.folder for file in manifest.files} | visible)
        return orphans

    def close(self) -> None: ...

    def _newest(self) -> _Manifest:
        """The manifest with the highest number. If it disappears between listing and reading, there is a newer one."""
        for _ in range(_READ_ATTEMPTS):
            if not self._commits.is_dir():
                break
            try:
                numbers = [_number(name) for name in self._disk.files(self._commits) if name.endswith(".json")]
                if not numbers:
                    break
                data = self._disk.read_bytes(self._commits / f"{max(numbers):020d}.json")
                if (found := _decode_format(data).format) > _FORMAT:
                    raise TableError(
                        f"{self.root} was written by a newer Headrace (format {found}, this one reads {_FORMAT}): "
                        "use that one"
                    )
                return _decode(data)
            except FileNotFoundError:
                continue
            except msgspec.MsgspecError as error:
                raise TableError(f"commit {max(numbers)} of {self.root} cannot be read: {error}") from None
        else:
            raise TableError(f"{self.root} changes too quickly to be read; try again")
        return _Manifest(0, (), {})

    def _visible_folders(self) -> Iterator[str]:
        for folder, _, names in os.walk(self._data):
            if any(name.startswith(OURS) for name in names):
                yield "" if Path(folder) == self._data else str(PurePosixPath(Path(folder).relative_to(self._data)))

    def _publish(self, manifest: _Manifest, folders: Iterable[str]) -> None:
        """Update these folders of `data/` to the manifest."""
        for folder in sorted(folders):
            wanted = {file.name for file in manifest.files if file.folder == folder}
            target = self._data / folder
            make_folders(self._disk, target)
            there = {name for name in self._disk.files(target) if name.startswith(OURS)}
            if there <= wanted:
                for name in wanted - there:
                    self._disk.link(self._files / name, target / name)
                if wanted - there:
                    self._disk.sync_dir(target)
            else:
                self._replace(target, wanted)

    def _replace(self, target: Path, wanted: Iterable[str]) -> None:
        make_folders(self._disk, self._swap.parent)
        self._disk.make_dir(self._swap)
        for name in wanted:
            self._disk.link(self._files / name, self._swap / name)
        self._disk.sync_dir(self._swap)
        try:
            self._disk.exchange(self._swap, target)
        except OSError as error:
            raise TableError(
                f"{target} cannot be swapped for another directory ({error.strerror}): make an Iceberg table on this "
                "file system"
            ) from None
        self._disk.remove_tree(self._swap)


def _number(name: str) -> int:
    stem = name.partition(".")[0]
    return int(stem) if stem.isdigit() else -1
