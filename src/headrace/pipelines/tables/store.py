"""A table is a set of Parquet files and what is known about them; a commit changes both in one step.

`TableStore` is what the archive and the table sink build on. There are two:

- `ManifestStore` (here): a directory that any reader of Parquet can read, without a catalog.
- `IcebergStore` (`iceberg.py`): an Iceberg table with a SQLite catalog in the directory.

The directory of a `ManifestStore`:

    data/<folder>/<name>          what plain readers list: hard links to committed files, in Hive folders
    _headrace/commits/<n>.json    the whole state after commit n; the highest number counts
    _headrace/files/<name>        the files themselves
    _headrace/staging/            what is being made

A commit is the rename of its manifest. Only then `data/` is brought up to it: a plain reader never sees a row of a
batch that was not committed, and never one twice. After a crash in between it sees the last batch late, when the next
writer opens the table. Files that a commit removes leave a folder of `data/` together with the arrival of those that
replace them, because the folder is swapped for another in one step; they stay in `_headrace/files` for a while, for
those who go by a manifest and have not finished reading.
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
"""How the names of our files begin: whatever else lies in a table's directory is left alone."""
HIDDEN = "_headrace"
CATALOG_NOTE = "catalog.json"
"""In a directory whose Iceberg catalog is elsewhere; see `catalogs.py`."""
KEEP_REMOVED_MS = 60 * 60_000
_KEEP_COMMITS = 8
_READ_ATTEMPTS = 20
_LOCK_POLL_S = 0.05


class TableError(HeadraceError):
    """A table cannot be read or written as asked; the message is one sentence for a person."""


class TableChanged(TableError):
    """Somebody else has changed the table meanwhile: look again."""


class TableFile(msgspec.Struct, frozen=True):
    name: str
    folder: str
    """Where plain readers find it below `data/`: Hive's `column=value/…`, or nothing."""
    rows: int
    size_bytes: int


class TableState(msgspec.Struct, frozen=True):
    """What a table is at one moment. `version` grows with each commit; 0 is a table without any."""

    version: int = 0
    files: tuple[TableFile, ...] = ()
    properties: dict[str, str] = {}


class TableStore(Protocol):
    """Reading needs nothing more than the directory; `path_for_new`, `commit` and `recover` need its lock."""

    root: Path

    def prepare(self, schema: "pa.Schema", partition_by: Sequence[tuple[str, str]]) -> None:
        """Make the table, or add columns that are new; (column, `identity` or `day`) tells how files are divided."""
        ...

    def state(self) -> TableState: ...

    def path(self, file: TableFile) -> Path:
        """Where a file of the state is. It stays there for a while after a commit has removed it."""
        ...

    def path_for_new(self, name: str, folder: str) -> Path:
        """Where to write a file that a commit will then add; its directory exists."""
        ...

    def commit(
        self, base: TableState, *, add: Collection[TableFile], remove: Collection[str], properties: Mapping[str, str]
    ) -> TableState:
        """Add files, which are on disk and synced, remove others by name, and replace the properties, in one step."""
        ...

    def recover(self) -> list[str]:
        """Undo what a crashed writer began and finish what it had committed; the names of orphans removed."""
        ...

    def close(self) -> None: ...


def has_catalog_note(root: Path) -> bool:
    """Whether the directory is an Iceberg table whose catalog is elsewhere."""
    return (root / HIDDEN / CATALOG_NOTE).exists()


@contextmanager
def table_lock(root: Path, who: str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Be the only one who writes to a table; a process that ends, however it ends, lets go of the lock."""
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
    """Make a directory and those above it, each durable."""
    if not path.is_dir():
        make_folders(disk, path.parent)
        disk.make_dir(path)


class _Manifest(msgspec.Struct, frozen=True):
    version: int
    files: tuple[TableFile, ...]
    properties: dict[str, str]
    removed: tuple[tuple[str, int], ...] = ()
    """Files that a commit removed, and when (in ms): they are deleted some time later."""
    format: int = 1


class _Format(msgspec.Struct, frozen=True):
    """What every manifest has, of whichever format the rest is."""

    format: int = 1


_FORMAT = 1
_decode = msgspec.json.Decoder(_Manifest).decode
_decode_format = msgspec.json.Decoder(_Format).decode


class ManifestStore:
    """See the module. `keep_removed_ms` is how long files stay after a commit has removed them."""

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
        """The files say themselves which columns they have, and the folders how they are divided."""

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
        # Before anything is changed: a table of a newer format is refused.
        manifest = self._newest()
        for folder in (self._commits, self._files, self._data):
            make_folders(self._disk, folder)
        if self._swap.is_dir():
            self._disk.remove_tree(self._swap)
        visible = set(self._visible_folders())
        if visible and not manifest.version:
            raise TableError(
                f"{self.root} has files and no commit that tells about them: its _headrace/commits is lost"
            )
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
        """The manifest with the highest number. It may go between listing and reading: then there is a newer one."""
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
        """Bring what plain readers see up to the manifest, in these folders."""
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
