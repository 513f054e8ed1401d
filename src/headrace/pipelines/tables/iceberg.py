"""An Iceberg table in a directory, by default with its catalog in a SQLite file beside it: no server and no jars. For
external catalogs see `catalogs.py`.

    catalog.db                  the catalog: which metadata file is the current one (a commit is one transaction in it)
    metadata/                   Iceberg's own files
    data/<folder>/<name>        the Parquet files
    _headrace/                  lock and staging

The table's properties are in the summary of our newest snapshot, with the prefix `headrace.`, so they change with the
files in one commit. Other writers may add snapshots of their own. Any Iceberg reader sees only whole commits:

    SqlCatalog("headrace", uri="sqlite:////lake/orders/catalog.db").load_table("headrace.orders")

pyiceberg does not sync files, so they are written through `SyncedFileIO`: the catalog never refers to a file that a
power failure could lose.
"""

import itertools
import os
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform, IdentityTransform, Transform
from pyiceberg.typedef import Identifier

from headrace.pipelines.tables.catalogs import (
    CATALOG_ERRORS,
    NAMESPACE,
    check_catalog,
    close_catalog,
    encode_catalog_note,
    flat_identifier_of,
    identifier_of,
    open_catalog,
    tables_in,
)
from headrace.pipelines.tables.parquet import DiskStream
from headrace.pipelines.tables.store import (
    KEEP_REMOVED_MS,
    OURS,
    TableChanged,
    TableError,
    TableFile,
    TableState,
    make_folders,
)
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.disk import Disk, OsDisk

_PREFIX = "headrace."
_TRANSFORMS: dict[str, Transform[Any, Any]] = {"identity": IdentityTransform(), "day": DayTransform()}
_PROPERTIES = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
# Another writer may be about to commit; its uncommitted files are younger than this.
_FOREIGN_AFTER_S = 24 * 3600.0
_COLLECT_EVERY_COMMITS = 50


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location} exists already")
        path = _local(self.location)
        make_folders(SyncedFileIO.disk, path.parent)
        stream = DiskStream(SyncedFileIO.disk, path)
        SyncedFileIO.disk.sync_dir(path.parent)
        return stream


class SyncedFileIO(PyArrowFileIO):
    """pyiceberg's FileIO, with every file synced before it can be committed."""

    disk: Disk = OsDisk()

    def new_output(self, location: str) -> PyArrowFile:
        plain = super().new_output(location)
        return _SyncedFile(plain.location, plain._path, plain._filesystem, plain._buffer_size)


class IcebergStore:
    """See the module. Without a name, the only table of the catalog.

    Removed files, and the snapshots that have them, stay for `keep_removed_ms`.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        keep_removed_ms: int = KEEP_REMOVED_MS,
        read_only: bool = False,
        catalog: str = "",
    ) -> None:
        self.root = root.absolute()
        self._disk = disk or OsDisk()
        self._clock = clock or SystemClock()
        self._keep_removed_ms = keep_removed_ms
        self._data = self.root / "data"
        self._is_elsewhere = bool(catalog)
        to_note = check_catalog(self.root, catalog, name)
        file_io = f"{__name__}.{SyncedFileIO.__name__}"
        if not read_only:
            make_folders(self._disk, self.root)
        self._catalog = open_catalog(self.root, catalog, _location(self.root), file_io, read_only=read_only)
        try:
            self._name = identifier_of(name) if catalog else self._own_table(name)
            if not read_only:
                self._catalog.create_namespace_if_not_exists(self._name[:-1])
            self._check_location()
        except (*CATALOG_ERRORS, NoSuchNamespaceError) as error:
            self.close()
            raise TableError(f"the catalog of {self.root} cannot be read, or nothing is in it yet: {error}") from None
        if to_note is not None and not read_only:
            path, text = encode_catalog_note(self.root, to_note)
            make_folders(self._disk, path.parent)
            new = path.with_name(f"{path.name}.new")
            new.unlink(missing_ok=True)
            with DiskStream(self._disk, new) as stream:
                stream.write(text)
            self._disk.rename(new, path, sync=True)
        self._commits = 0

    def prepare(self, schema: pa.Schema, partition_by: Sequence[tuple[str, str]]) -> None:
        table = self._table()
        if table is None:
            making = self._catalog.create_table_transaction(
                self._name, schema, location=_location(self.root), properties=_PROPERTIES
            )
            with making, making.update_spec() as spec:
                for column, transform in partition_by:
                    spec.add_field(column, _TRANSFORMS[transform], f"{column}_{transform}")
            return
        with table.update_schema() as update:
            update.union_by_name(schema)

    def state(self) -> TableState:
        table = self._table()
        snapshot = None if table is None else table.current_snapshot()
        if table is None or snapshot is None:
            return TableState()
        files = tuple(self._file(task.file) for task in table.scan().plan_files())
        return TableState(snapshot.sequence_number or 0, files, _properties(table, snapshot))

    def path(self, file: TableFile) -> Path:
        return self._data / file.folder / file.name

    def path_for_new(self, name: str, folder: str) -> Path:
        make_folders(self._disk, self._data / folder)
        return self._data / folder / name

    def commit(
        self, base: TableState, *, add: Collection[TableFile], remove: Collection[str], properties: Mapping[str, str]
    ) -> TableState:
        table = self._table()
        if table is None:
            raise TableError(f"there is no Iceberg table {'.'.join(self._name)} in {self.root}")
        for folder in {file.folder for file in add}:
            self._disk.sync_dir(self._data / folder)
        summary = {f"{_PREFIX}{name}": value for name, value in properties.items()}
        paths = [_location(self.path(file)) for file in add]
        gone = set(remove)
        try:
            with table.transaction() as transaction:
                if remove:
                    old = [task.file for task in table.scan().plan_files() if _local(task.file.file_path).name in gone]
                    if len(old) != len(gone):
                        raise CommitFailedException("files to remove are gone already")
                    with transaction.update_snapshot(snapshot_properties=summary).overwrite() as overwrite:
                        for file in old:
                            overwrite.delete_data_file(file)
                        for path in paths:
                            made = parquet_file_to_data_file(table.io, transaction.table_metadata, path)
                            overwrite.append_data_file(made)
                else:
                    transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
        except CommitFailedException as error:
            raise TableChanged(f"{self.root} was changed by another writer; try again ({error})") from None
        except (*CATALOG_ERRORS, CommitStateUnknownException, sqlite3.Error) as error:
            # Whether it was committed is found out from the table when the batch is repeated.
            raise TableError(f"the catalog of {self.root} refused a commit: {error}") from None
        self._commits += 1
        if remove or self._commits % _COLLECT_EVERY_COMMITS == 0:
            self._expire()
        snapshot = table.current_snapshot()
        version = base.version + 1 if snapshot is None else snapshot.sequence_number or 0
        return TableState(version, (*(file for file in base.files if file.name not in gone), *add), dict(properties))

    def recover(self) -> list[str]:
        """Remove our files that are in no snapshot, and those of other writers when they are a day old."""
        table = self._table()
        if table is None and self._is_elsewhere:
            return []  # It may have been dropped from the catalog: that is no reason to delete its files.
        known = set() if table is None else set(self._referenced(table))
        orphans = []
        for folder in (self._data, self.root / "metadata"):
            for parent, _, names in os.walk(folder):
                for name in names:
                    path = Path(parent, name)
                    if path not in known and (name.startswith(OURS) or self._age_s(path) > _FOREIGN_AFTER_S):
                        self._disk.unlink(path)
                        orphans.append(name)
        return sorted(orphans)

    def close(self) -> None:
        close_catalog(self._catalog)

    def _own_table(self, name: str) -> Identifier:
        """The name of the directory's table. A directory has one table: files of a second one would be removed as
        uncommitted. A table of an earlier version keeps the name that it had.
        """
        found = tables_in(self._catalog)
        wanted = flat_identifier_of(name) if name else None
        if len(found) == 1 and wanted in (None, found[0]):
            return found[0]
        if len(found) == 1 and found[0] == (NAMESPACE, table_name(name)):
            return found[0]
        if found or wanted is None:
            self.close()
            names = ", ".join(".".join(each) for each in found)
            there = f"the Iceberg table {names}" if found else "no Iceberg table"
            raise TableError(f"{self.root} has {there}, not {name or 'just one'}: use another directory")
        return wanted

    def _check_location(self) -> None:
        """An external catalog may have another table of this name."""
        table = self._table()
        if table is not None and _local(table.location()) != self.root:
            self.close()
            raise TableError(
                f"the table {'.'.join(self._name)} of the catalog is at {table.location()}, not at {self.root}: choose "
                "another name, or that directory"
            )

    def _table(self) -> Table | None:
        try:
            return self._catalog.load_table(self._name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _file(self, file: DataFile) -> TableFile:
        path = _local(file.file_path)
        folder = str(path.parent.relative_to(self._data)) if path.is_relative_to(self._data) else ""
        return TableFile(path.name, "" if folder == "." else folder, file.record_count, file.file_size_in_bytes)

    def _expire(self) -> None:
        """Expire snapshots that were replaced more than `keep_removed_ms` ago, and delete their files."""
        table = self._table()
        if table is None:
            return
        before_ms = self._clock.wall_ms() - self._keep_removed_ms
        history = sorted(table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
        old = [
            each.snapshot_id for each, following in itertools.pairwise(history) if following.timestamp_ms <= before_ms
        ]
        if old:
            before = set(self._referenced(table))
            table.maintenance.expire_snapshots().by_ids(old).commit()
            for path in before - set(self._referenced(table.refresh())):
                self._disk.unlink(path)

    def _referenced(self, table: Table) -> Iterator[Path]:
        """Every file that the table's metadata refers to, in all snapshots."""
        yield _local(table.metadata_location)
        for earlier in table.metadata.metadata_log:
            yield _local(earlier.metadata_file)
        seen = set()
        for snapshot in table.snapshots():
            yield _local(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                if manifest.manifest_path not in seen:
                    seen.add(manifest.manifest_path)
                    yield _local(manifest.manifest_path)
                    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                        yield _local(entry.data_file.file_path)

    def _age_s(self, path: Path) -> float:
        return self._clock.wall_ms() / 1000 - path.stat().st_mtime


def _properties(table: Table, snapshot: Snapshot) -> dict[str, str]:
    """Our properties, from the newest snapshot that has any: snapshots of other writers have none."""
    at: Snapshot | None = snapshot
    while at is not None:
        summary = {} if at.summary is None else at.summary.additional_properties
        ours = {name.removeprefix(_PREFIX): value for name, value in summary.items() if name.startswith(_PREFIX)}
        if ours:
            return ours
        at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)
    return {}


def table_name(text: str) -> str:
    """The name of a topic or directory as a table name: other characters than letters, digits and _ replaced."""
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def _location(path: Path) -> str:
    # As Hadoop and pyiceberg write them: a URI without escapes.
    return f"file://{path}"


def _local(location: str) -> Path:
    return Path(location.removeprefix("file://"))
