"""A topic as a table with a real Spark and a real broker: archive and live tail, each record once."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.archive.archiver import ArchiveOptions, Archiver
from headrace.pipelines.archive.topic_table import read_topic_table
from headrace.pipelines.tables.store import TableError
from headrace.wire import Cluster

Write = Callable[..., int]
NewTopic = Callable[..., str]

# The first query of a session takes long on a busy machine.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def archive(cluster: Cluster, tmp_path: Path) -> Callable[..., str]:
    def run(topic: str, **options: Any) -> str:
        path = str(tmp_path / "archive")
        with Archiver(cluster, ArchiveOptions(topic=topic, path=path, **options)) as archiver:
            archiver.run_once()
        return path

    return run


def found(df: DataFrame) -> list[tuple[int, int, str]]:
    rows = df.select("partition", "offset", "value").collect()
    return sorted((row.partition, row.offset, row.value.decode()) for row in rows)


@pytest.mark.parametrize("iceberg", [False, True], ids=["manifest", "iceberg"])
def test_archive_and_tail_are_one_table(
    spark: SparkSession,
    bootstrap: str,
    cluster: Cluster,
    new_topic: NewTopic,
    write: Write,
    archive: Callable[..., str],
    iceberg: bool,
) -> None:
    topic = new_topic(2)
    write(topic, *(b"%d" % number for number in range(6)), headers=[("h", b"1")])
    write(topic, b"p", b"q", partition=1)
    path = archive(topic, iceberg=iceberg)
    cluster.delete_records({(topic, 0): 4})
    write(topic, b"6", b"7")
    wanted = [(0, number, str(number)) for number in range(8)] + [(1, 0, "p"), (1, 1, "q")]
    table = read_topic_table(spark, topic, bootstrap, path, include_headers=True)
    live = spark.read.format("headrace").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    assert table.schema == live.option("includeHeaders", "true").load().schema
    # What comes later, and an archiver that goes on, change nothing about an answer that was asked for before.
    write(topic, b"8")
    archive(topic, iceberg=iceberg)
    assert found(table) == wanted
    headers = {row.offset: row.headers for row in table.where("partition = 0").collect()}
    assert [(header.key, bytes(header.value)) for header in headers[0]] == [("h", b"1")]
    assert headers[7] is None
    plain = read_topic_table(spark, topic, bootstrap, path)
    assert found(plain) == sorted([*wanted, (0, 8, "8")])
    assert plain.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    # All of it is archived, and then the topic is gone.
    cluster.delete_topic(topic)
    assert len(found(read_topic_table(spark, topic, bootstrap, path))) == 11


def test_typed_columns(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, write: Write, archive: Callable[..., str]
) -> None:
    topic = new_topic()
    write(topic, b'{"id": 1, "city": "Bern"}', b"not json")
    path = archive(topic)
    write(topic, b'{"id": 2, "city": "Genf"}')
    table = read_topic_table(
        spark, topic, bootstrap, path, format="json", schema="id BIGINT, city STRING", on_error="skip"
    )
    assert sorted((row.id, row.city, row._offset) for row in table.collect()) == [(1, "Bern", 0), (2, "Genf", 2)]


def test_it_is_consistent_while_the_archiver_runs(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, write: Write, tmp_path: Path
) -> None:
    topic, path = new_topic(), tmp_path / "archive"
    write(topic, b"0")
    stop = threading.Event()
    failed: list[BaseException] = []

    def archiving() -> None:
        try:
            options = ArchiveOptions(topic=topic, path=str(path), every_s=0.01, compact_after=3)
            with Cluster(bootstrap) as own, Archiver(own, options) as archiver:
                archiver.run_once()
                ready.set()
                archiver.run(stop)
        except BaseException as error:
            failed.append(error)
            raise
        finally:
            ready.set()

    def producing() -> None:
        for number in itertools.count(1):
            if stop.is_set():
                return
            write(topic, b"%d" % number)
            written.append(number)
            stop.wait(0.02)

    ready, written = threading.Event(), [0]
    threads = [threading.Thread(target=archiving), threading.Thread(target=producing)]
    for thread in threads:
        thread.start()
    try:
        assert ready.wait(200)
        for _ in range(3):
            before = written[-1]
            rows = found(read_topic_table(spark, topic, bootstrap, path))
            assert rows == [(0, number, str(number)) for number in range(len(rows))]
            assert len(rows) > before
    finally:
        stop.set()
        for thread in threads:
            thread.join(120)
    assert not failed


def test_what_is_nowhere_any_more_is_said(
    spark: SparkSession,
    bootstrap: str,
    cluster: Cluster,
    new_topic: NewTopic,
    write: Write,
    archive: Callable[..., str],
) -> None:
    topic = new_topic()
    write(topic, b"0", b"1")
    path = archive(topic)
    write(topic, b"2", b"3", b"4")
    cluster.delete_records({(topic, 0): 4})
    with pytest.raises(TableError, match=f"offsets 2 to 3 of {topic}-0 are neither"):
        read_topic_table(spark, topic, bootstrap, path)
    rest = read_topic_table(spark, topic, bootstrap, path, fail_on_data_loss=False)
    assert [offset for _, offset, _ in found(rest)] == [0, 1, 4]
    with pytest.raises(TableError, match=f"is the archive of {topic}, not of other"):
        read_topic_table(spark, "other", bootstrap, path)
