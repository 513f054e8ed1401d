"""Parquet files on a `Disk`: written in row groups, synced on close, merged with one row group in memory."""

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.runtime.disk import Disk, DiskFile

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ROW_GROUP_BYTES = 32 * 1024 * 1024
_READ_BYTES = 8 * 1024 * 1024


class DiskStream(io.RawIOBase):
    """A new file as a writable stream; closing it syncs."""

    def __init__(self, disk: Disk, path: Path) -> None:
        super().__init__()
        self.size_bytes = 0
        self._is_abandoned = False
        self._file: DiskFile | None = None
        self._file = disk.open(path, create=True)
        self._file.truncate(0)

    def abandon(self) -> None:
        """Give up the file: further writes are discarded, and closing does not sync."""
        self._is_abandoned = True

    def writable(self) -> bool:
        return True

    def write(self, data: "ReadableBuffer") -> int:
        view = memoryview(data).cast("B")
        if len(view) and self._file is not None and not self._is_abandoned:
            self._file.append((view,))
        self.size_bytes += len(view)
        return len(view)

    def tell(self) -> int:
        return self.size_bytes

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._file is not None and not self._is_abandoned:
                self._file.sync_data()
        finally:
            if self._file is not None:
                self._file.close()
            super().close()

    def __del__(self) -> None:
        """Abandon a file that was not closed: it is useless after an error, and a finalizer must not wait for a disk.

        The base class would close it. Since Python 3.13 an error of that is reported.
        """
        self.abandon()
        self.close()


class ParquetWriter:
    """Writes one file. Rows are buffered until a row group is full, so memory is bounded by `row_group_bytes`."""

    def __init__(self, disk: Disk, path: Path, schema: pa.Schema, *, row_group_bytes: int = ROW_GROUP_BYTES) -> None:
        self.path = path
        self.rows = 0
        self._schema = schema
        self._stream = DiskStream(disk, path)
        self._writer = pq.ParquetWriter(self._stream, schema, compression="zstd", compression_level=1)
        self._row_group_bytes = row_group_bytes
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes in the file so far, without the buffered rows."""
        return self._stream.size_bytes

    @property
    def pending_bytes(self) -> int:
        return self._pending_bytes

    def write(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        if self._pending_bytes >= self._row_group_bytes:
            self.flush()

    def close(self) -> int:
        """Finish and sync the file; returns its size in bytes."""
        self.flush()
        self._writer.close()
        self._stream.close()
        return self._stream.size_bytes

    def abandon(self) -> None:
        """Give up the file unfinished; `TableStore.recover` removes it."""
        self._stream.abandon()
        self._pending = []
        self._writer.close()
        self._stream.close()

    def flush(self) -> None:
        """Write the buffered rows as a row group."""
        if self._pending:
            group = pa.concat_tables(self._pending)
            self._pending, self._pending_bytes = [], 0
            self._writer.write_table(group, row_group_size=max(1, group.num_rows))


def merge(disk: Disk, sources: Sequence[Path], target: Path, schema: pa.Schema) -> tuple[int, int]:
    """Merge files in order into one; returns its rows and size. Columns that a file lacks are null."""
    writer = ParquetWriter(disk, target, schema)
    try:
        for source in sources:
            for table in read_in_parts(source):
                writer.write(conform(table, schema))
        size_bytes = writer.close()
    except BaseException:
        writer.abandon()
        raise
    return writer.rows, size_bytes


def read_in_parts(path: Path, part_bytes: int = _READ_BYTES) -> Iterator[pa.Table]:
    """The rows of a file, some megabytes at a time."""
    with pq.ParquetFile(path) as file:
        metadata = file.metadata
        whole_bytes = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
        per_row_bytes = max(1, whole_bytes // max(1, metadata.num_rows))
        for batch in file.iter_batches(batch_size=max(1, part_bytes // per_row_bytes)):
            yield pa.Table.from_batches([batch])


def unified(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The union of schemas: every column, with the wider type where two differ."""
    return pa.unify_schemas([schema.remove_metadata() for schema in schemas], promote_options="permissive")


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns and types of a schema; missing columns are null."""
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
