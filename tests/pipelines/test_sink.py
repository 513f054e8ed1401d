"""The sink in real Spark queries."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.client.partitioners import by_key
from headrace.wire import Cluster

from .committed import read_committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, object]
DELIVERIES = ["at-least-once", "exactly-once"]


@pytest.fixture
def options(bootstrap: str, request: pytest.FixtureRequest) -> dict[str, str]:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return {"kafka.bootstrap.servers": bootstrap, "sinkId": name}


@pytest.fixture
def read(cluster: Cluster) -> Callable[[str], list[Row]]:
    return lambda topic: [row for rows in read_committed(cluster, topic, headers=True) for row in rows.to_pylist()]


def open_transactions(cluster: Cluster, options: dict[str, str]) -> list[str]:
    """Those of this sink: other tests write to the same broker."""
    return [name for name in cluster.list_transactions(["Ongoing"]) if f"/{options['sinkId']}" in name]


def until_idle(spark: "SparkSession") -> None:
    """Until no task runs any more: those of a job that failed are told to stop, and not waited for."""
    tracker, end = spark.sparkContext._jsc.statusTracker(), time.monotonic() + 120
    while any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()):
        assert time.monotonic() < end, "tasks of a job that failed go on and on"
        time.sleep(0.05)


def save(df: "DataFrame", options: dict[str, str], **more: str) -> None:
    df.write.format("headrace").options(**{**options, **more}).mode("append").save()


@pytest.mark.parametrize(("delivery", "compression"), [("at-least-once", "none"), ("exactly-once", "zstd")])
def test_a_batch(
    spark: "SparkSession",
    cluster: Cluster,
    options: dict[str, str],
    new_topic: Callable[..., str],
    read: Callable[[str], list[Row]],
    delivery: str,
    compression: str,
) -> None:
    topic = new_topic(3, **{"retention.ms": "-1"})
    df = spark.range(0, 2000, numPartitions=3).selectExpr(
        "cast(id as string) as key",
        "if(id % 10 = 0, null, concat('value ', id)) as value",
        "array(struct('n' as key, cast(cast(id as string) as binary) as value)) as headers",
        "timestamp_millis(1700000000000 + id) as timestamp",
    )
    save(df, options, topic=topic, delivery=delivery, compression=compression)
    rows = sorted(read(topic), key=lambda row: int(row["key"]))  # type: ignore[call-overload]
    assert [row["key"] for row in rows] == [b"%d" % number for number in range(2000)]
    assert all(row["partition"] == by_key(row["key"], 3) for row in rows)  # type: ignore[arg-type]
    assert rows[11]["value"] == b"value 11"
    assert rows[20]["value"] is None
    assert rows[7]["headers"] == [{"key": "n", "value": b"7"}]
    assert rows[7]["timestamp"].timestamp() == 1_700_000_000.007  # type: ignore[attr-defined]
    save(df.limit(0), options, topic=topic, delivery=delivery)
    assert len(read(topic)) == 2000


def test_topics_and_partitions_by_row(
    spark: "SparkSession", options: dict[str, str], new_topic: Callable[..., str], read: Callable[[str], list[Row]]
) -> None:
    first, second = new_topic(2), new_topic(4)
    df = spark.range(100).selectExpr(
        f"if(id % 2 = 0, '{first}', '{second}') as topic",
        "cast(id % 2 as int) as partition",
        "cast(id as string) value",
    )
    save(df, options, delivery="exactly-once")
    assert {(row["partition"], int(row["value"]) % 2) for row in read(first)} == {(0, 0)}  # type: ignore[call-overload]
    assert {(row["partition"], int(row["value"]) % 2) for row in read(second)} == {(1, 1)}  # type: ignore[call-overload]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_stream(
    spark: "SparkSession",
    cluster: Cluster,
    options: dict[str, str],
    new_topic: Callable[..., str],
    read: Callable[[str], list[Row]],
    tmp_path: Path,
    delivery: str,
) -> None:
    """Several micro-batches, a restart, and then nothing to do: each row is there once, in order in its partition."""
    topic, folder = new_topic(2), tmp_path / "in"
    folder.mkdir()
    for part in range(4):
        spark.range(part * 500, part * 500 + 500, numPartitions=1).write.parquet(str(folder / str(part)))

    def run() -> None:
        stream = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", 1).parquet(f"{folder}/*")
        query = (
            stream.selectExpr("cast(id % 7 as string) key", "cast(id as string) value")
            .writeStream.format("headrace")
            .options(**{**options, "topic": topic, "delivery": delivery})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)

    run()
    run()
    rows = read(topic)
    assert sorted(int(row["value"]) for row in rows) == list(range(2000))  # type: ignore[call-overload]
    spark.range(2000, 2500).write.parquet(str(folder / "late"))
    run()
    assert sorted(int(row["value"]) for row in read(topic)) == list(range(2500))  # type: ignore[call-overload]
    names = [name for name in cluster.list_transactions() if name.startswith(f"pipeline/{options['sinkId']}/")]
    assert bool(names) == (delivery == "exactly-once")
    assert not open_transactions(cluster, options)


def test_foreach_batch_writes_once_what_is_repeated(
    spark: "SparkSession",
    options: dict[str, str],
    new_topic: Callable[..., str],
    read: Callable[[str], list[Row]],
) -> None:
    from headrace.pipelines.sink.writer import write_batch

    topic = new_topic(2)
    named = {**options, "topic": topic, "delivery": "exactly-once"}
    df = spark.range(100).selectExpr("cast(id as string) value")
    for batch_id in (0, 0, 1, 1, 0):
        write_batch(df, batch_id, "some-query", named)
    assert len(read(topic)) == 200
    write_batch(df, 0, "another-query", named)
    assert len(read(topic)) == 300


def test_a_task_that_fails_leaves_nothing(
    spark: "SparkSession",
    cluster: Cluster,
    options: dict[str, str],
    new_topic: Callable[..., str],
    read: Callable[[str], list[Row]],
) -> None:
    """One of the tasks fails after others have staged their rows; the job after it is whole, and ends what is left of
    tasks that still ran when the first one was given up."""
    topic = new_topic(1)
    bad = spark.range(0, 4000, numPartitions=4).selectExpr(
        "if(id = 3999, raise_error('no'), cast(id as string)) as value"
    )
    with pytest.raises(Exception, match="no"):
        save(bad, options, topic=topic, delivery="exactly-once")
    until_idle(spark)
    save(spark.range(10).selectExpr("cast(id as string) value"), options, topic=topic, delivery="exactly-once")
    assert len(read(topic)) == 10
    assert not open_transactions(cluster, options)


@pytest.fixture
def sentence() -> Callable[[Callable[[], None]], str]:
    from headrace.pipelines.spark_errors import explain_error

    def told(action: Callable[[], None]) -> str:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            action()
        return explain_error(caught.value)

    return told


@pytest.mark.parametrize(
    ("columns", "more", "words"),
    [
        (["cast(id as string) value"], {"topic": "no-such-topic"}, "the topic no-such-topic does not exist: create it"),
        (["cast(null as string) topic", "'v' value"], {}, "the column topic is null in some rows"),
        (["id as value"], {"topic": "t"}, "the column value is of type bigint: cast it to string or binary"),
        (
            ["'v' value"],
            {"topic": "t", "delivery": "once"},
            "the option delivery is one of at-least-once, exactly-once",
        ),
        (["'v' value"], {"topic": "t", "transactionTimeout": "2h", "delivery": "exactly-once"}, "transactionTimeout"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    spark: "SparkSession",
    options: dict[str, str],
    new_topic: Callable[..., str],
    sentence: Callable[[Callable[[], None]], str],
    columns: list[str],
    more: dict[str, str],
    words: str,
) -> None:
    if more.get("topic") == "t":
        more = {**more, "topic": new_topic(1)}
    told = sentence(lambda: save(spark.range(1).selectExpr(*columns), options, **more))
    assert words in told
    assert "\n" not in told


def test_a_record_that_is_too_large(
    spark: "SparkSession",
    options: dict[str, str],
    new_topic: Callable[..., str],
    sentence: Callable[[Callable[[], None]], str],
) -> None:
    topic = new_topic(1, **{"max.message.bytes": "2000"})
    df = spark.range(1).selectExpr("repeat('x', 5000) value")
    assert "max.message.bytes" in sentence(lambda: save(df, options, topic=topic))


def test_a_topic_cannot_be_overwritten(
    spark: "SparkSession",
    options: dict[str, str],
    new_topic: Callable[..., str],
    sentence: Callable[[Callable[[], None]], str],
) -> None:
    topic = new_topic(1)
    df = spark.range(1).selectExpr("'v' value")
    told = sentence(lambda: df.write.format("headrace").options(**options, topic=topic).mode("overwrite").save())
    assert "use mode append" in told
