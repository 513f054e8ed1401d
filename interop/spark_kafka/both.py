"""One Spark session with both connectors, and topics for them to read."""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from connector import Connector
from pyspark.sql import DataFrame, Row, SparkSession
from report import expect

from headrace.wire import Cluster

JVM, OURS = "kafka", "headrace"
FORMS = (JVM, OURS)
BASE_MS = 1_700_000_000_000
WAIT_S = 180.0

_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.driver.extraJavaOptions": "-Xss4m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.log.level": "OFF",
}


class Written(NamedTuple):
    """A record for a topic."""

    partition: int
    value: bytes | None
    key: bytes | None = None
    time_ms: int = BASE_MS
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Both:
    """Spark with a broker, for reading and writing the same thing in either format."""

    def __init__(self, connector: Connector, bootstrap: str, home: Path) -> None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        builder = SparkSession.builder.master("local[2]").appName("headrace-interop")
        settings = {**_SETTINGS, **connector.settings, "spark.local.dir": str(home / "local")}
        for name, value in {**settings, "spark.sql.warehouse.dir": str(home / "warehouse")}.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.bootstrap = bootstrap
        self.cluster = Cluster(bootstrap)
        self._home = home
        self._numbers = itertools.count(1)

    def close(self) -> None:
        for query in self.spark.streams.active:
            query.stop()
        self.spark.stop()
        self.cluster.close()

    def options(self, given: Mapping[str, object]) -> dict[str, str]:
        """`kafka_isolation_level="x"` is the option kafka.isolation.level."""
        named = {name.replace("_", "."): str(value) for name, value in given.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, **named}

    def topic(self, partitions: int = 2, prefix: str = "topic", **settings: str) -> str:
        name = f"{prefix}-{next(self._numbers)}"
        # The records have times of years ago.
        self.cluster.create_topic(name, partitions=partitions, settings={"retention.ms": "-1", **settings})
        return name

    def checkpoint(self) -> str:
        return str(self._home / f"checkpoint-{next(self._numbers)}")

    # -- records by a client that is neither of the two

    def send(self, topic: str, records: Iterable[Written], **settings: object) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", **settings})
        _produce(producer, topic, records)
        expect(producer.flush(60) == 0, "the records were not all acknowledged in a minute")

    def transaction(self, topic: str, records: Iterable[Written], end: str) -> Producer:
        """`end` is commit, abort or open: an open one is left to the caller."""
        name = f"txn-{next(self._numbers)}"
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name})
        producer.init_transactions(60)
        producer.begin_transaction()
        _produce(producer, topic, records)
        expect(producer.flush(60) == 0, "the records were not all acknowledged in a minute")
        if end == "commit":
            producer.commit_transaction(60)
        elif end == "abort":
            producer.abort_transaction(60)
        return producer

    # -- reading

    def load(self, form: str, **options: object) -> DataFrame:
        return self.spark.read.format(form).options(**self.options(options)).load()

    def load_stream(self, form: str, **options: object) -> DataFrame:
        return self.spark.readStream.format(form).options(**self.options(options)).load()

    def read(self, form: str, **options: object) -> list[tuple[Any, ...]]:
        return comparable(self.load(form, **options).collect())

    def read_same(self, count: int | None = None, **options: object) -> list[tuple[Any, ...]]:
        """What both read, which must be the same, and so many records."""
        jvm, ours = (self.read(form, **options) for form in FORMS)
        expect_same(jvm, ours)
        if count is not None:
            expect(len(jvm) == count, f"{len(jvm)} records instead of {count}")
        return jvm

    def stream(self, form: str, checkpoint: str = "", **options: object) -> list[list[tuple[Any, ...]]]:
        """What a stream reads until it has caught up, by micro-batch."""
        batches: dict[int, list[Row]] = {}
        frame = self.load_stream(form, **options)
        self.run(frame, checkpoint or self.checkpoint(), lambda rows, number: batches.update({number: rows.collect()}))
        return [comparable(batches[number]) for number in sorted(batches)]

    def stream_same(self, count: int, **options: object) -> None:
        jvm, ours = (together(self.stream(form, **options)) for form in FORMS)
        expect_same(jvm, ours)
        expect(len(jvm) == count, f"{len(jvm)} records instead of {count}")

    def run(
        self, frame: DataFrame, checkpoint: str, each: Callable[[DataFrame, int], object], mode: str = "append"
    ) -> None:
        """A query over what is there now, with a function for each micro-batch."""
        writer = frame.writeStream.outputMode(mode).foreachBatch(lambda rows, number: each(rows, number) and None)
        finish(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())

    # -- writing

    def write(self, form: str, frame: DataFrame, **options: object) -> None:
        frame.write.format(form).options(**self.options(options)).mode("append").save()

    def write_stream(self, form: str, frame: DataFrame, **options: object) -> None:
        """Until the stream has caught up."""
        writer = frame.writeStream.format(form).options(**self.options(options))
        finish(writer.option("checkpointLocation", self.checkpoint()).trigger(availableNow=True).start())


def finish(query: Any) -> None:
    try:
        expect(bool(query.awaitTermination(WAIT_S)), f"the query has not caught up in {WAIT_S:.0f} s")
    finally:
        query.stop()


def await_true(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        expect(time.monotonic() < deadline, f"{what}: not so after {WAIT_S:.0f} s")
        time.sleep(0.1)


def comparable(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Rows as tuples, in the order of topics, partitions and offsets."""
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=_order)


def together(batches: Iterable[Sequence[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """The rows of all micro-batches, in order."""
    return sorted(itertools.chain.from_iterable(batches), key=_order)


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list | Row):
        return tuple(_plain(each) for each in value)
    return value


def _order(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(f"{each:020d}" if isinstance(each, int) else str(each) for each in (*row[2:5], *row[:2]))


def expect_same(jvm: Sequence[object], ours: Sequence[object]) -> None:
    if jvm != ours:
        first = next(((a, b) for a, b in itertools.zip_longest(jvm, ours) if a != b), None)
        raise AssertionError(f"{len(jvm)} by Spark's connector, {len(ours)} by ours; the first difference is {first}")


def _produce(producer: Producer, topic: str, records: Iterable[Written]) -> None:
    failures: list[object] = []
    for each in records:
        producer.produce(
            topic,
            each.value,
            each.key,
            each.partition,
            timestamp=each.time_ms,
            headers=list(each.headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        producer.poll(0)
    producer.flush(60)
    expect(not failures, failures[:1])
