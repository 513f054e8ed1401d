"""Copies a range of offsets of one partition to Parquet files, one file per day.

Memory is bounded whatever the range and the timestamps: copying stops early when the files are large enough or span too
many days, and buffered rows are written out when they become too many.
"""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.errors import RecordError
from headrace.pipelines.archive.layout import SCHEMA, file_name, folder_of
from headrace.pipelines.source.blocks import read_blocks
from headrace.pipelines.tables.parquet import ParquetWriter
from headrace.pipelines.tables.store import TableError, TableFile, TableStore
from headrace.runtime.disk import Disk
from headrace.wire import Cluster, OffsetGone

MAX_DAYS = 16
_PENDING_BYTES = 64 * 1024 * 1024
_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_DAY = np.iinfo(np.int64).min

_Days = npt.NDArray[np.int64]


class CopiedRange(NamedTuple):
    """Files written by `copy_range`, and how far they go."""

    files: list[TableFile]
    """Written and synced, but not committed to the table yet."""
    next_offset: int
    """All committed records below are in these files or in earlier ones, unless they were compacted away."""
    records_lost: bool
    """The broker deleted records of the range while it was being read."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def copy_range(
    cluster: Cluster,
    store: TableStore,
    disk: Disk,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    target_bytes: int,
) -> CopiedRange:
    """Copy the committed records from `start` up to `end`, or until the files reach about `target_bytes`."""
    writers: dict[str | None, ParquetWriter] = {}
    try:
        offset, lost = _fill(writers, cluster, store, disk, topic, partition, start, end, target_bytes)
        files = []
        for day, writer in writers.items():
            size_bytes = writer.close()
            files.append(TableFile(writer.path.name, folder_of(partition, day), writer.rows, size_bytes))
    except BaseException:
        for writer in writers.values():
            writer.abandon()
        raise
    return CopiedRange(files, offset, lost)


def _fill(
    writers: dict[str | None, ParquetWriter],
    cluster: Cluster,
    store: TableStore,
    disk: Disk,
    topic: str,
    partition: int,
    start: int,
    end: int,
    target_bytes: int,
) -> tuple[int, bool]:
    """Write records to files by day; returns the next offset, and whether records of the range were deleted."""
    offset, lost = start, False
    pieces = read_blocks(cluster, topic, partition, start, end)
    try:
        for blocks, following in pieces:
            for block in blocks:
                for day, rows in by_day(block):
                    if day not in writers:
                        name = file_name(partition, start, uuid.uuid4().hex[:8])
                        path = store.path_for_new(name, folder_of(partition, day))
                        writers[day] = ParquetWriter(disk, path, SCHEMA)
                    writers[day].write(rows)
                _spill(writers)
            offset = following
            if len(writers) > MAX_DAYS or sum(writer.size_bytes for writer in writers.values()) >= target_bytes:
                break
        else:
            # No records follow the last batch: they were compacted away, or are transaction markers.
            offset = end
    except OffsetGone:
        lost = True
    except RecordError as error:
        raise TableError(
            f"the records of {topic}-{partition} from offset {offset} on cannot be read: {error}"
        ) from error
    finally:
        pieces.close()
    return offset, lost


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.Table]]:
    """The records of each day, in their order; None for records without a timestamp."""
    table = pa.Table.from_batches([batch])
    days = _days(batch.column("timestamp"))
    if len(days) and days.min() == days.max():
        yield day_name(int(days[0])), table
        return
    for day in np.unique(days):
        yield day_name(int(day)), table.filter(pa.array(days == day))


def _days(timestamps: pa.Array) -> _Days:
    micros = timestamps.cast(pa.int64())
    if not micros.null_count:
        return np.asarray(micros.to_numpy(zero_copy_only=False) // _DAY_US, dtype=np.int64)
    present = micros.is_valid().to_numpy(zero_copy_only=False)
    days = micros.fill_null(0).to_numpy(zero_copy_only=False) // _DAY_US
    return np.where(present, days, _NO_DAY)


def day_name(day: int) -> str | None:
    """`2026-01-31` for a number of days since 1970; a day outside the calendar stays a number."""
    if day == _NO_DAY:
        return None
    try:
        return (_EPOCH + timedelta(days=day)).date().isoformat()
    except OverflowError:
        return f"{day}d"


def _spill(writers: dict[str | None, ParquetWriter]) -> None:
    while sum(writer.pending_bytes for writer in writers.values()) > _PENDING_BYTES:
        max(writers.values(), key=lambda writer: writer.pending_bytes).flush()
