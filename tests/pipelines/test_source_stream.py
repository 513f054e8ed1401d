"""Topics read as streams by a real Spark from a real broker."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.pipelines.source.offsets import from_json
from headrace.pipelines.spark_errors import explain_error
from headrace.wire import Cluster

Write = Callable[..., int]
NewTopic = Callable[..., str]
WAIT_S = 300


class Stream:
    """A stream into a table in memory, and what has come through it."""

    def __init__(self, spark: SparkSession, bootstrap: str, home: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._home = home
        self._queries: list[StreamingQuery] = []
        self._by_id: dict[int, list[str]] = {}
        """A batch that is done again after a restart is the same batch."""

    def start(self, trigger: dict[str, Any] | None = None, **options: Any) -> StreamingQuery:
        reader = self._spark.readStream.format("headrace").option("kafka.bootstrap.servers", self._bootstrap)
        for name, value in options.items():
            reader = reader.option(name, value)
        writer = reader.load().select("topic", "partition", "offset", "value").writeStream
        writer = writer.foreachBatch(self._take).option("checkpointLocation", str(self._home / "checkpoint"))
        query = writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()
        self._queries.append(query)
        return query

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        self._by_id[batch_id] = sorted(bytes(row.value).decode() for row in frame.collect())

    @property
    def batches(self) -> list[list[str]]:
        """What each micro-batch had, without those that had nothing."""
        return [values for _, values in sorted(self._by_id.items()) if values]

    @property
    def values(self) -> list[str]:
        return sorted(value for batch in self.batches for value in batch)

    def await_values(self, *values: str) -> None:
        """Wait until exactly these have come."""
        end_s = time.monotonic() + WAIT_S
        while self.values != sorted(values):
            for query in self._queries:
                if not query.isActive and (error := query.exception()) is not None:
                    raise AssertionError(explain_error(error))
            assert time.monotonic() < end_s, f"{self.values} came, not {sorted(values)}"
            time.sleep(0.05)

    def finish(self, query: StreamingQuery) -> None:
        assert query.awaitTermination(WAIT_S), "the query is to end by itself"

    def failure(self, query: StreamingQuery) -> str:
        with pytest.raises(PySparkException) as caught:
            query.awaitTermination(WAIT_S)
        return explain_error(caught.value)

    def close(self) -> None:
        for query in self._queries:
            query.stop()


@pytest.fixture
def stream(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Iterator[Stream]:
    stream = Stream(spark, bootstrap, tmp_path)
    yield stream
    stream.close()


AVAILABLE_NOW = {"availableNow": True}


def test_a_stream_finds_new_topics_and_goes_on_where_it_stopped(
    stream: Stream, cluster: Cluster, new_topic: NewTopic, write: Write
) -> None:
    prefix = f"live-{uuid4().hex[:6]}"
    first = new_topic(prefix=prefix)
    write(first, b"a")
    query = stream.start(subscribePattern=f"{prefix}.*", startingOffsets="earliest")
    stream.await_values("a")
    second = new_topic(prefix=prefix)
    write(second, b"b")
    cluster.add_partitions(first, 2)
    write(first, b"c", partition=1)
    stream.await_values("a", "b", "c")
    query.stop()
    write(first, b"d")
    stream.start(subscribePattern=f"{prefix}.*", startingOffsets="earliest")
    stream.await_values("a", "b", "c", "d")


def test_limits_available_now_and_losses(stream: Stream, cluster: Cluster, new_topic: NewTopic, write: Write) -> None:
    topic, group = new_topic(2), f"mirror-{uuid4().hex[:6]}"
    write(topic, *[b"a%d" % number for number in range(6)])
    write(topic, *[b"b%d" % number for number in range(4)], partition=1)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 4, "commitGroup": group}
    query = stream.start(AVAILABLE_NOW, **options)
    stream.finish(query)
    assert [len(batch) for batch in stream.batches] == [4, 4, 2]
    latest = json.loads(query.recentProgress[0].sources[0].latestOffset)
    assert from_json(latest) == {(topic, 0): 6, (topic, 1): 4}, "tools see how far behind the stream is"
    assert cluster.committed_offsets(group) == {(topic, 0): 6, (topic, 1): 4}
    write(topic, b"c0", b"c1", b"c2")
    cluster.delete_records({(topic, 0): 8})
    sentence = stream.failure(stream.start(AVAILABLE_NOW, **options))
    assert f"offsets 6 to 7 of {topic}-0 no longer exist" in sentence
    stream.finish(stream.start(AVAILABLE_NOW, **options, failOnDataLoss="false"))
    assert stream.batches[-1] == ["c2"]
    assert len(stream.values) == 11


def test_an_unreachable_broker_is_told_in_a_sentence(stream: Stream, spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", "127.0.0.1:1")
    reader = reader.option("kafka.default.api.timeout.ms", "100").option("subscribe", "t")
    query = reader.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "none")).start()
    assert stream.failure(query) == "no broker answers at 127.0.0.1:1: connection refused"
