"""Topics read in batches by a real Spark from a real broker. What needs no Spark is in `test_source_reader.py`."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.spark_errors import explain_error
from headrace.wire import Cluster

Write = Callable[..., int]
NewTopic = Callable[..., str]
Load = Callable[..., DataFrame]
T0_MS = 1_700_000_000_000


@pytest.fixture
def load(spark: SparkSession, bootstrap: str) -> Load:
    def load(schema: str = "", **options: Any) -> DataFrame:
        reader = spark.read.format("headrace").option("kafka.bootstrap.servers", bootstrap)
        for name, value in options.items():
            reader = reader.option(name, value)
        return (reader.schema(schema) if schema else reader).load()

    return load


def failure(act: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        act()
    return explain_error(caught.value)


def test_every_column(load: Load, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic(2)
    write(topic, (b"k", b"v"), headers=[("trace", b"1"), ("empty", None)])
    write(topic, (None, None), partition=1, time_ms=T0_MS + 5)
    rows = load(subscribe=topic, includeHeaders="true").orderBy("partition").collect()
    first, second = (row.asDict(recursive=True) for row in rows)
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert list(first) == names
    assert (bytes(first["key"]), bytes(first["value"]), first["topic"], first["partition"]) == (b"k", b"v", topic, 0)
    assert (first["offset"], first["timestampType"]) == (0, 0)
    assert first["timestamp"].astimezone(UTC) == datetime.fromtimestamp(T0_MS / 1000, UTC)
    assert [(one["key"], one["value"]) for one in first["headers"]] == [("trace", bytearray(b"1")), ("empty", None)]
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


def test_columns_and_tasks_of_a_users_choice(load: Load, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    for _ in range(5):
        write(topic, *[b"x"] * 20)
    frame = load("offset LONG, value BINARY", subscribe=topic, MINPARTITIONS=4)
    assert frame.columns == ["offset", "value"]
    rows = frame.selectExpr("offset", "spark_partition_id() AS task").collect()
    assert sorted(row.offset for row in rows) == list(range(100))
    assert len({row.task for row in rows}) == 4


def test_lost_offsets_are_named(load: Load, cluster: Cluster, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    write(topic, *[b"x"] * 10)
    planned = load(subscribe=topic)
    assert planned.rdd.getNumPartitions() == 1
    cluster.delete_records({(topic, 0): 6})
    sentence = failure(planned.collect)
    assert f"offsets 0 to 5 of {topic}-0 no longer exist" in sentence
    assert "failOnDataLoss=false" in sentence
    start = json.dumps({topic: {"0": 1}})
    assert load(subscribe=topic, startingOffsets=start, failOnDataLoss="false").count() == 4


def test_mistakes_are_told_in_a_sentence(spark: SparkSession, load: Load, bootstrap: str) -> None:
    assert failure(lambda: load(subscribe="no-such-topic").collect()) == (
        f"the topic no-such-topic does not exist at {bootstrap}: create it first, or check the name"
    )
    assert failure(lambda: load(subscribe="t", startingOfsets="earliest")) == (
        "there is no option startingofsets for reading; did you mean startingOffsets?"
    )
    unreachable = spark.read.format("headrace").option("kafka.bootstrap.servers", "127.0.0.1:1")
    unreachable = unreachable.option("kafka.default.api.timeout.ms", "100").option("subscribe", "t")
    with pytest.raises(PySparkException) as caught:
        unreachable.load().collect()
    assert explain_error(caught.value) == "no broker answers at 127.0.0.1:1: connection refused"
    assert "Traceback" not in str(caught.value), "what a script shows has no stack in it"
    assert len(str(caught.value).splitlines()) <= 3, str(caught.value)
