"""Topics read in batches by a real Spark from a real broker."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.explaining import explain_error
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.wire import Cluster

Write = Callable[..., int]
NewTopic = Callable[..., str]
T0_MS = 1_700_000_000_000


@pytest.fixture
def load(spark: SparkSession, bootstrap: str) -> Callable[..., DataFrame]:
    def load(schema: str = "", **options: Any) -> DataFrame:
        reader = spark.read.format("headrace").option("kafka.bootstrap.servers", bootstrap)
        for name, value in options.items():
            reader = reader.option(name, value)
        return (reader.schema(schema) if schema else reader).load()

    return load


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def failure(frame: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        frame()
    return explain_error(caught.value)


def test_every_column(load: Callable[..., DataFrame], new_topic: NewTopic, write: Write) -> None:
    topic = new_topic(2)
    write(topic, (b"k", b"v"), headers=[("trace", b"1"), ("empty", None)])
    write(topic, (None, None), partition=1, time_ms=T0_MS + 5)
    rows = load(subscribe=topic, includeHeaders="true").orderBy("partition").collect()
    assert [list(row.asDict()) for row in rows] == [
        ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    ] * 2
    first, second = (row.asDict(recursive=True) for row in rows)
    assert (bytes(first["key"]), bytes(first["value"]), first["topic"], first["partition"]) == (b"k", b"v", topic, 0)
    assert (first["offset"], first["timestampType"]) == (0, 0)
    assert first["timestamp"].replace(tzinfo=None) == datetime.fromtimestamp(T0_MS / 1000, UTC).replace(tzinfo=None)
    assert [(one["key"], one["value"]) for one in first["headers"]] == [("trace", bytearray(b"1")), ("empty", None)]
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


def test_columns_of_a_users_choice(load: Callable[..., DataFrame], new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    write(topic, (b"k", b"v"))
    assert load("offset LONG, value BINARY", subscribe=topic).first().asDict() == {"offset": 0, "value": b"v"}
    assert load(subscribe=topic, COLUMNS="value, offset").columns == ["value", "offset"]
    assert "of type bigint, not string" in failure(lambda: load("offset STRING", subscribe=topic).collect())
    assert "has a column 'price'" in failure(lambda: load("price DOUBLE", subscribe=topic).collect())


def test_ranges_by_offset(load: Callable[..., DataFrame], new_topic: NewTopic, write: Write) -> None:
    topic = new_topic(2)
    write(topic, b"a0", b"a1", b"a2", b"a3")
    write(topic, b"b0", b"b1", partition=1)
    start = json.dumps({topic: {"0": 1, "1": -2}})
    end = json.dumps({topic: {"0": 3, "1": -1}})
    assert values(load(subscribe=topic, startingOffsets=start, endingOffsets=end)) == ["a1", "a2", "b0", "b1"]
    assert values(load(assign=json.dumps({topic: [1]}))) == ["b0", "b1"]
    assert "says nothing of" in failure(
        lambda: load(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 1}})).collect()
    )
    late = json.dumps({topic: {"0": 9, "1": 0}})
    assert "past its end at 4" in failure(lambda: load(subscribe=topic, startingOffsets=late).collect())
    assert "it ends at 4" in failure(lambda: load(subscribe=topic, endingOffsets=late).collect())


def test_ranges_by_time(load: Callable[..., DataFrame], new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    for minute in range(4):
        write(topic, f"m{minute}".encode(), time_ms=T0_MS + minute * 60_000)
    start, end = str(T0_MS + 60_000), str(T0_MS + 180_000)
    assert values(load(subscribe=topic, startingTimestamp=start, endingTimestamp=end)) == ["m1", "m2"]
    by_partition = json.dumps({topic: {"0": T0_MS + 120_000}})
    assert values(load(subscribe=topic, startingOffsetsByTimestamp=by_partition)) == ["m2", "m3"]
    assert values(load(subscribe=topic, endingOffsetsByTimestamp=by_partition)) == ["m0", "m1"]
    future = str(T0_MS + 10**9)
    assert "no record at or after the time" in failure(
        lambda: load(subscribe=topic, startingTimestamp=future).collect()
    )
    assert values(load(subscribe=topic, startingTimestamp=future, startingOffsetsByTimestampStrategy="latest")) == []
    assert values(load(subscribe=topic, endingTimestamp=future)) == ["m0", "m1", "m2", "m3"]


def test_patterns_and_several_topics(load: Callable[..., DataFrame], new_topic: NewTopic, write: Write) -> None:
    first, second, other = new_topic(prefix="shop-a"), new_topic(prefix="shop-b"), new_topic(prefix="other")
    for topic in (first, second, other):
        write(topic, topic.encode())
    assert values(load(subscribePattern="shop-[ab]-.*")) == sorted([first, second])
    assert values(load(subscribe=f"{first}, {other}")) == sorted([first, other])
    assert values(load(subscribePattern="nothing-like-this")) == []


def test_ranges_are_split(load: Callable[..., DataFrame], new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    for _ in range(10):
        write(topic, *[b"x"] * 10)
    frame = load(subscribe=topic, minPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == 100
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(100))
    assert load(subscribe=topic, maxRecordsPerPartition=30).rdd.getNumPartitions() == 4


def test_small_fetches_read_everything(load: Callable[..., DataFrame], new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    for _ in range(30):
        write(topic, *[b"x" * 300] * 10)
    offsets = load(subscribe=topic, **{"kafka.fetch.max.bytes": 10_000}).select("offset").collect()
    assert [row.offset for row in offsets] == list(range(300))


def test_compaction_is_no_loss(load: Callable[..., DataFrame], cluster: Cluster, new_topic: NewTopic) -> None:
    """Gaps in the offsets, as compaction leaves them, are read over."""
    topic = new_topic()
    cluster.produce({(topic, 0): build_batch([Record(0, T0_MS, b"a", b"1"), Record(0, T0_MS, b"b", b"2")])})
    producer = cluster.init_producer_id(f"gap-{topic}")
    for sequence in range(3):
        batch = build_batch(
            [Record(0, T0_MS, None, b"t")],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        cluster.produce({(topic, 0): batch}, transactional_id=f"gap-{topic}")
    cluster.end_txn(f"gap-{topic}", producer, committed=True)
    assert values(load(subscribe=topic)) == ["1", "2", "t", "t", "t"]


def test_lost_offsets_are_named(
    load: Callable[..., DataFrame], cluster: Cluster, new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic()
    write(topic, *[b"%d" % number for number in range(10)])
    cluster.delete_records({(topic, 0): 4})
    start = json.dumps({topic: {"0": 1}})
    sentence = failure(lambda: load(subscribe=topic, startingOffsets=start).collect())
    assert f"offsets 1 to 3 of {topic}-0 are not there any more" in sentence
    assert "failOnDataLoss=false" in sentence
    rest = load(subscribe=topic, startingOffsets=start, failOnDataLoss="false")
    assert values(rest) == [str(number) for number in range(4, 10)]
    planned = load(subscribe=topic)
    assert planned.rdd.getNumPartitions() == 1
    cluster.delete_records({(topic, 0): 6})
    assert f"offsets 4 to 5 of {topic}-0" in failure(planned.collect)
    assert values(load(subscribe=topic)) == [str(number) for number in range(6, 10)], "from the earliest there is"


def test_transactions(load: Callable[..., DataFrame], cluster: Cluster, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()

    def transact(name: str, value: bytes, committed: bool | None) -> None:
        producer = cluster.init_producer_id(f"{name}-{topic}")
        batch = build_batch(
            [Record(0, T0_MS, None, value)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        cluster.produce({(topic, 0): batch}, transactional_id=f"{name}-{topic}")
        if committed is not None:
            cluster.end_txn(f"{name}-{topic}", producer, committed=committed)

    write(topic, b"plain")
    transact("one", b"committed", True)
    transact("two", b"aborted", False)
    transact("three", b"open", None)
    write(topic, b"behind")
    assert values(load(subscribe=topic)) == ["committed", "plain"]
    assert values(load(subscribe=topic, isolation="read_uncommitted")) == [
        "aborted", "behind", "committed", "open", "plain",
    ]  # fmt: skip


def test_mistakes_are_told_in_a_sentence(spark: SparkSession, load: Callable[..., DataFrame], bootstrap: str) -> None:
    assert failure(lambda: load(subscribe="no-such-topic").collect()) == (
        f"the topic no-such-topic does not exist at {bootstrap}: create it first, or check the name"
    )
    assert failure(lambda: load(subscribe="t", startingOfsets="earliest")) == (
        "there is no option startingofsets for reading; did you mean startingOffsets?"
    )
    assert "one of subscribe, subscribePattern and assign" in failure(load)
    unreachable = spark.read.format("headrace").option("kafka.bootstrap.servers", "127.0.0.1:1")
    unreachable = unreachable.option("kafka.default.api.timeout.ms", "100").option("subscribe", "t")
    assert failure(lambda: unreachable.load().collect()) == "no broker answers at 127.0.0.1:1: connection refused"
