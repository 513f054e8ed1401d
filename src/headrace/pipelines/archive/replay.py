"""Replays archived records into a topic, to process them again after retention has deleted them.

Records of a partition are written in offset order, with their key, value, headers and timestamp. Each goes to its
original partition, modulo the number of partitions if the target has fewer. Retries write no duplicates within a run;
a run that is killed and restarted writes its records again.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.archive.layout import ArchivedFile, ArchiveSnapshot
from headrace.pipelines.tables.parquet import read_in_parts
from headrace.records.compression import Codec
from headrace.records.encoder import encode
from headrace.runtime.clock import Clock, SystemClock
from headrace.wire import Cluster, TopicNotFound

_BUFFER_BYTES = 64 * 1024 * 1024


class ReplayFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The records to replay: timestamps from `since_ms` up to, not including, `until_ms`, of some or all partitions."""

    since_ms: int | None = None
    until_ms: int | None = None
    partitions: frozenset[int] | None = None


class ReplayedRecords(msgspec.Struct):
    """Totals of a replay."""

    records: int = 0
    size_bytes: int = 0


def replay(
    cluster: Cluster,
    view: ArchiveSnapshot,
    topic: str,
    wanted: ReplayFilter,
    *,
    on_progress: Callable[[ReplayedRecords], None] = lambda done: None,
    clock: Clock | None = None,
) -> ReplayedRecords:
    """Write the selected records of an archive to a topic; returns their totals."""
    found = cluster.metadata([topic]).get(topic)
    if found is None:
        raise TopicNotFound(f"there is no topic {topic}; create it with `headrace topic create {topic}`")
    producer = cluster.init_producer_id()
    sequences: dict[int, int] = {}
    done = ReplayedRecords()
    now_ms = (clock or SystemClock()).wall_ms()
    for partition in sorted({file.partition for file in view.files}):
        if wanted.partitions is not None and partition not in wanted.partitions:
            continue
        target = partition % len(found.partitions)
        for table in records_in_order([file for file in view.files if file.partition == partition], wanted):
            at = sequences.get(target, 0)
            for batch in encode(
                table,
                timestamp_ms=now_ms,
                codec=Codec.LZ4,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=at,
            ):
                cluster.produce({(topic, target): batch})
                done.size_bytes += len(batch)
            sequences[target] = (at + table.num_rows) & 0x7FFF_FFFF
            done.records += table.num_rows
            on_progress(done)
    return done


def records_in_order(files: Sequence[ArchivedFile], wanted: ReplayFilter) -> Iterator[pa.Table]:
    """The selected records of one partition in offset order: files of a day are sorted, days are merged."""
    days: dict[str, list[Path]] = {}
    for file in files:
        if _may_have(file.day, wanted):
            days.setdefault(file.day, []).append(file.path)
    part_bytes = max(1 << 20, _BUFFER_BYTES // max(1, len(days)))
    sources = [_records(paths, wanted, part_bytes) for paths in days.values()]
    blocks = {index: block for index, source in enumerate(sources) if (block := next(source, None)) is not None}
    while blocks:
        # Up to this offset, every day has all of its records in its current block.
        bound = min(block["offset"][-1].as_py() for block in blocks.values())
        ready = []
        for index, block in [*blocks.items()]:
            count = pc.sum(pc.less_equal(block["offset"], bound)).as_py()
            ready.append(block.slice(0, count))
            rest: pa.Table | None = block.slice(count)
            if count == block.num_rows:
                rest = next(sources[index], None)
            if rest is None:
                del blocks[index]
            else:
                blocks[index] = rest
        merged = pa.concat_tables(ready)
        yield merged if len(ready) == 1 else merged.sort_by("offset")


def _records(paths: Sequence[Path], wanted: ReplayFilter, part_bytes: int) -> Iterator[pa.Table]:
    for path in paths:
        for table in read_in_parts(path, part_bytes):
            matching = _within(table, wanted)
            if matching.num_rows:
                yield matching


def _within(table: pa.Table, wanted: ReplayFilter) -> pa.Table:
    times = table["timestamp"].cast(pa.int64())
    if wanted.since_ms is not None:
        table = table.filter(pc.greater_equal(times, wanted.since_ms * 1000))
        times = table["timestamp"].cast(pa.int64())
    if wanted.until_ms is not None:
        table = table.filter(pc.less(times, wanted.until_ms * 1000))
    return table


def _may_have(day: str, wanted: ReplayFilter) -> bool:
    try:
        start = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC)
        end = start + timedelta(days=1)
    except (ValueError, OverflowError):
        return True
    start_ms, end_ms = start.timestamp() * 1000, end.timestamp() * 1000
    return (wanted.since_ms is None or end_ms > wanted.since_ms) and (
        wanted.until_ms is None or start_ms < wanted.until_ms
    )
