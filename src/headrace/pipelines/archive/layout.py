"""The layout of an archive: a table of a topic's records, and the offsets up to which it goes.

    view = read_archive(Path("archive/orders"))
    view.offsets        # {0: 1200, 1: 980}: all offsets below are archived, none from there on
    view.files          # Parquet files with the columns of Spark's Kafka source, headers included
    view.gaps           # offsets that retention deleted before they were archived

Files and offsets change in one commit (`tables/store.py`), so a view is consistent, and an archiver that was killed
continues after its last commit. Each file holds records of one partition and of one day (UTC, by their timestamps),
in the order of their offsets. `archiver.py` writes it, `topic_table.py` reads it together with the topic.
"""

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace.pipelines.tables.store import (
    HIDDEN,
    KEEP_REMOVED_MS,
    ManifestStore,
    TableError,
    TableState,
    TableStore,
    has_catalog_note,
)
from headrace.records.columns import schema
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk

SCHEMA = schema(headers=True)
PARTITION_BY = [("partition", "identity"), ("timestamp", "day")]
_TOPIC, _TOPIC_ID, _OFFSETS, _GAPS = "topic", "topic_id", "offsets", "gaps"
_FORMAT, _FORMAT_NOW = "archive_format", 1
"""Version of the properties; 1 if there is none, as 0.1 wrote them."""
_ENCRYPTED = "encrypted"
"""Always false: an archive has the records as a consumer reads them, also of a topic that is encrypted at rest."""


class Gap(msgspec.Struct, frozen=True):
    """Offsets from `first` up to, not including, `end`, that were deleted before they were archived."""

    partition: int
    first: int
    end: int
    at_ms: int

    def __str__(self) -> str:
        return f"offsets {self.first} to {self.end - 1} of partition {self.partition}"


class ArchivePosition(msgspec.Struct, frozen=True):
    """The topic of an archive and its end offsets, stored with each commit."""

    topic: str = ""
    topic_id: str = ""
    """The topic id, which a recreated topic does not share; empty if the broker has no topic ids."""
    offsets: dict[int, int] = {}
    gaps: tuple[Gap, ...] = ()

    def properties(self) -> dict[str, str]:
        return {
            _TOPIC: self.topic,
            _TOPIC_ID: self.topic_id,
            _OFFSETS: msgspec.json.encode(self.offsets).decode(),
            _GAPS: msgspec.json.encode(self.gaps).decode(),
            _FORMAT: str(_FORMAT_NOW),
            _ENCRYPTED: "false",
        }


def position_of(state: TableState) -> ArchivePosition:
    """The position stored in a table; `TableError` if a newer Headrace has written it."""
    properties = state.properties
    found = properties.get(_FORMAT, "1")
    if not found.isdecimal() or int(found) > _FORMAT_NOW:
        raise TableError(
            f"the archive was written by a newer Headrace (format {found}, this one reads {_FORMAT_NOW}): use that one"
        )
    return ArchivePosition(
        topic=properties.get(_TOPIC, ""),
        topic_id=properties.get(_TOPIC_ID, ""),
        offsets=msgspec.json.decode(properties.get(_OFFSETS, "{}"), type=dict[int, int]),
        gaps=msgspec.json.decode(properties.get(_GAPS, "[]"), type=tuple[Gap, ...]),
    )


class ArchivedFile(NamedTuple):
    """A Parquet file with records of one partition and one day."""

    path: Path
    partition: int
    day: str
    """The day of its records, in UTC: `2026-01-31`."""
    rows: int
    size_bytes: int


class ArchiveSnapshot(NamedTuple):
    """A consistent view of an archive. Its files stay on disk for an hour after they are replaced."""

    topic: str
    topic_id: str
    offsets: dict[int, int]
    gaps: tuple[Gap, ...]
    files: list[ArchivedFile]
    """Sorted by partition, then by offset."""


def read_archive(root: Path) -> ArchiveSnapshot:
    """The archive in a directory, plain or Iceberg; `TableError` if there is none."""
    if not is_archive(root):
        raise TableError(f"there is no archive in {root}; `headrace pipeline archive TOPIC --to {root}` makes one")
    with closing(_open_to_read(root)) as store:
        state = store.state()
        position = position_of(state)
        files = sorted(state.files, key=lambda file: file.name)
        return ArchiveSnapshot(
            position.topic,
            position.topic_id,
            position.offsets,
            position.gaps,
            [
                ArchivedFile(store.path(file), partition_in(file.name), day_in(file.folder), file.rows, file.size_bytes)
                for file in files
            ],
        )


def _open_to_read(root: Path) -> TableStore:
    if not is_iceberg(root):
        return ManifestStore(root)
    from headrace.pipelines.tables.catalogs import read_catalog_note
    from headrace.pipelines.tables.iceberg import IcebergStore

    note = read_catalog_note(root)
    if note is not None:
        return IcebergStore(root, note.table, read_only=True, catalog=note.catalog)
    return IcebergStore(root, "", read_only=True)


def is_archive(root: Path) -> bool:
    return (root / HIDDEN / "commits").is_dir() or is_iceberg(root)


def is_iceberg(root: Path) -> bool:
    return (root / "catalog.db").exists() or has_catalog_note(root)


def open_archive(
    root: Path,
    topic: str,
    *,
    iceberg: bool,
    table: str = "",
    catalog: str = "",
    disk: Disk | None = None,
    clock: Clock | None = None,
    keep_removed_ms: int = KEEP_REMOVED_MS,
) -> TableStore:
    """Open the table of an archive. A directory cannot change between plain Parquet and Iceberg."""
    if iceberg:
        if (root / HIDDEN / "commits").is_dir():
            raise TableError(f"{root} is an archive without Iceberg: leave --iceberg out, or use another directory")
        from headrace.pipelines.tables.iceberg import IcebergStore, table_name

        return IcebergStore(
            root,
            table or table_name(topic),
            disk=disk,
            clock=clock,
            keep_removed_ms=keep_removed_ms,
            catalog=catalog,
        )
    if is_iceberg(root):
        raise TableError(f"{root} is an archive in Iceberg: add --iceberg, or use another directory")
    return ManifestStore(root, disk=disk, clock=clock, keep_removed_ms=keep_removed_ms)


def file_name(partition: int, first_offset: int, unique: str) -> str:
    """A file name; files of a partition sort by their first offsets."""
    return f"hr-p{partition:05d}-{first_offset:020d}-{unique}.parquet"


def partition_in(name: str) -> int:
    return int(name.split("-")[1].removeprefix("p"))


def folder_of(partition: int, day: str | None) -> str:
    return f"p={partition}/day={day or '__HIVE_DEFAULT_PARTITION__'}"


def day_in(folder: str) -> str:
    return folder.rpartition("day=")[2]
