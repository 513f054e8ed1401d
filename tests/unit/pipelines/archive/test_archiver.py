"""The archiver against a real broker: what it keeps, where it goes on, and what a crash at any step leaves."""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.pipelines.archive.archiver import ArchiveOptions, Archiver
from headrace.pipelines.archive.layout import ArchiveSnapshot, read_archive
from headrace.pipelines.tables.iceberg import SyncedFileIO
from headrace.pipelines.tables.store import TableError
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.reader import Record
from headrace.runtime.disk import Disk, OsDisk
from headrace.testing import Broker
from headrace.testing.disks import FaultyDisk, PowerLoss, stop_at
from headrace.wire import Cluster, TopicNotFound

DAY_MS = 86_400_000
NOON_MS = 1_700_000_000_000 // DAY_MS * DAY_MS + DAY_MS // 2
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # The records are years old, and retention would take them.
    with Broker(settings={"log.retention.ms": -1}) as broker, Cluster(broker.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"orders-{next(_numbers)}"
    cluster.create_topic(name, partitions=2)
    return name


@pytest.fixture(params=["manifest", "iceberg"])
def options(request: pytest.FixtureRequest, topic: str, tmp_path: Path) -> ArchiveOptions:
    return ArchiveOptions(topic=topic, path=str(tmp_path / "archive"), iceberg=request.param == "iceberg")


def produce(cluster: Cluster, topic: str, values: range, partition: int = 0, time_ms: int = NOON_MS) -> None:
    records = [Record(0, time_ms + value, b"k%d" % value, b"%d" % value) for value in values]
    cluster.produce({(topic, partition): build_batch(records)})


def archive(cluster: Cluster, options: ArchiveOptions, **more: Any) -> Archiver:
    with Archiver(cluster, options, **more) as archiver:
        archiver.run_once()
    return archiver


def rows(view: ArchiveSnapshot) -> list[dict[str, Any]]:
    tables = [pq.ParquetFile(file.path).read() for file in view.files]
    found = pa.concat_tables(tables).to_pylist() if tables else []
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def values(view: ArchiveSnapshot, partition: int = 0) -> list[int]:
    return [int(row["value"]) for row in rows(view) if row["partition"] == partition]


def test_records_are_kept_as_they_are(cluster: Cluster, topic: str, options: ArchiveOptions) -> None:
    records = [
        Record(0, NOON_MS, b"a", b"1", (("trace", b"\x00"), ("empty", None))),
        Record(0, NOON_MS + DAY_MS, None, b"2"),
        Record(0, NOON_MS + 1, b"c", None),
    ]
    cluster.produce({(topic, 0): build_batch(records, codec=Codec.ZSTD)})
    produce(cluster, topic, range(5), partition=1)
    archive(cluster, options)
    view = read_archive(Path(options.path))
    assert (view.topic, view.offsets, view.gaps) == (topic, {0: 3, 1: 5}, ())
    first, second, third = [row for row in rows(view) if row["partition"] == 0]
    assert first["headers"] == [{"key": "trace", "value": b"\x00"}, {"key": "empty", "value": None}]
    assert (second["key"], second["value"], third["value"]) == (None, b"2", None)
    assert [row["offset"] for row in (first, second, third)] == [0, 1, 2]
    assert [int(row["timestamp"].timestamp() * 1000) - NOON_MS for row in (first, second, third)] == [0, DAY_MS, 1]
    # A file for each partition and day.
    assert len(view.files) == 3
    assert values(view, 1) == [*range(5)]


def test_it_goes_on_where_it_was(cluster: Cluster, topic: str, options: ArchiveOptions) -> None:
    produce(cluster, topic, range(10))
    assert archive(cluster, options).progress.records == 10
    assert archive(cluster, options).progress.commits == 0
    produce(cluster, topic, range(10, 15))
    assert archive(cluster, options).progress.records == 5
    assert values(read_archive(Path(options.path))) == [*range(15)]


def test_only_committed_records(cluster: Cluster, topic: str, options: ArchiveOptions) -> None:
    def transaction(name: str, numbers: range) -> Callable[[bool], None]:
        producer = cluster.init_producer_id(name)
        batch = build_batch(
            [Record(0, NOON_MS, None, b"%d" % number) for number in numbers],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        cluster.produce({(topic, 0): batch}, transactional_id=name)
        return lambda committed: (cluster.end_txn(name, producer, committed=committed), None)[1]

    transaction(f"{topic}-a", range(3))(True)
    transaction(f"{topic}-b", range(3, 6))(False)
    end = transaction(f"{topic}-c", range(6, 9))
    produce(cluster, topic, range(9, 12))
    archive(cluster, options)
    assert values(read_archive(Path(options.path))) == [0, 1, 2]
    end(True)
    archive(cluster, options)
    assert values(read_archive(Path(options.path))) == [0, 1, 2, 6, 7, 8, 9, 10, 11]
    # Nothing but an aborted transaction: there is nothing to commit, and nothing is read twice.
    transaction(f"{topic}-d", range(20, 23))(False)
    assert archive(cluster, options).progress.commits == 0


def test_what_retention_deleted_is_said_and_recorded(cluster: Cluster, topic: str, options: ArchiveOptions) -> None:
    produce(cluster, topic, range(10))
    archive(cluster, options)
    produce(cluster, topic, range(10, 20))
    cluster.delete_records({(topic, 0): 15})
    said: list[str] = []
    archive(cluster, options, say=said.append)
    view = read_archive(Path(options.path))
    assert values(view) == [*range(10), *range(15, 20)]
    assert [(gap.partition, gap.first, gap.end) for gap in view.gaps] == [(0, 10, 15)]
    assert any("offsets 10 to 14 of partition 0" in text and "lost" in text for text in said)


def test_another_topic_is_refused(cluster: Cluster, topic: str, options: ArchiveOptions, tmp_path: Path) -> None:
    produce(cluster, topic, range(3))
    archive(cluster, options)
    cluster.delete_topic(topic)
    with pytest.raises(TopicNotFound, match="there is no topic"):
        archive(cluster, options)
    cluster.create_topic(topic, partitions=2)
    with pytest.raises(TableError, match="recreated"):
        archive(cluster, options)
    before = rows(read_archive(Path(options.path)))
    other = ArchiveOptions(topic=f"{topic}-other", path=options.path, iceberg=options.iceberg)
    with pytest.raises(TopicNotFound, match="there is no topic"):
        archive(cluster, ArchiveOptions(topic=other.topic, path=str(tmp_path / "new"), iceberg=options.iceberg))
    assert not (tmp_path / "new").exists()
    cluster.create_topic(other.topic)
    with pytest.raises(TableError, match=f"is the archive of {topic}|has the Iceberg table"):
        archive(cluster, other)
    wrong = ArchiveOptions(topic=topic, path=options.path, iceberg=not options.iceberg)
    with pytest.raises(TableError, match="--iceberg"):
        archive(cluster, wrong)
    assert rows(read_archive(Path(options.path))) == before
    with pytest.raises(TableError, match="there is no archive in"):
        read_archive(tmp_path / "nothing")


def test_small_files_are_merged_under_readers(cluster: Cluster, topic: str, options: ArchiveOptions) -> None:
    done = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not done.is_set():
            with suppress(TableError):
                view = read_archive(Path(options.path))
                if values(view) != [*range(view.offsets.get(0, 0))]:
                    wrong.append(values(view))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(9):
            produce(cluster, topic, range(number * 3, number * 3 + 3))
            archive(cluster, options)
    finally:
        done.set()
        reader.join(60)
    assert not wrong
    assert len(read_archive(Path(options.path)).files) == 2


def test_many_days_in_one_batch_end_the_haul_early(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    records = [Record(0, NOON_MS + number % 40 * DAY_MS, None, b"%d" % number) for number in range(400)]
    for start in range(0, 400, 100):
        cluster.produce({(topic, 0): build_batch(records[start : start + 100])})
    archive(cluster, ArchiveOptions(topic=topic, path=str(tmp_path / "a")))
    view = read_archive(tmp_path / "a")
    assert values(view) == [*range(400)]


def test_a_crash_at_any_step(
    cluster: Cluster, topic: str, options: ArchiveOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits of several files, merging included. pyiceberg is slow: only some of its steps are tried."""
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    for number in range(3):
        produce(cluster, topic, range(number * 4, number * 4 + 4), time_ms=NOON_MS + number // 2 * DAY_MS)
    steps = itertools.count(1, 83 if options.iceberg else 1)
    for step in steps:
        path = tmp_path / f"archive-{step}"
        tiny = ArchiveOptions(
            topic=topic, path=str(path), iceberg=options.iceberg, target_file_bytes=2000, compact_after=2
        )
        disk: Disk = FaultyDisk(OsDisk(), stop_at(step))
        monkeypatch.setattr(SyncedFileIO, "disk", disk)
        crashed = False
        try:
            archive(cluster, tiny, disk=disk)
        except PowerLoss:
            crashed = True
        monkeypatch.setattr(SyncedFileIO, "disk", OsDisk())
        with suppress(TableError):
            view = read_archive(path)
            assert values(view) == [*range(view.offsets.get(0, 0))]
        archive(cluster, tiny)
        view = read_archive(path)
        assert (values(view), view.offsets) == ([*range(12)], {0: 12, 1: 0})
        known = {file.path.name for file in view.files}
        if not crashed:
            break
        plain = {each.name for each in (path / "data").rglob("*.parquet")}
        assert known <= plain if options.iceberg else known == plain
