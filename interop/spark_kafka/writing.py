"""Batches and streams of Spark's Kafka sink, beside those of the format headrace. What they wrote is read by both."""

from typing import Any

from both import FORMS, JVM, OURS, Both, expect_same
from pyspark.sql import DataFrame
from reading import PARTITIONS, records
from report import Report, expect

_HEADERS = "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary)))"
_COUNT = 500


def _numbers(both: Both) -> DataFrame:
    return both.spark.range(0, _COUNT, 1, 2)


def _written(both: Both, topic: str, **options: object) -> list[tuple[Any, ...]]:
    """Key, value, partition and headers of all records, without the offsets: tasks write at the same time."""
    rows = both.read_same(subscribe=topic, includeHeaders="true", **options)
    return sorted(((row[0], row[1], row[3], row[7]) for row in rows), key=str)


def _same(both: Both, count: int, topics: dict[str, str], **options: object) -> list[tuple[Any, ...]]:
    jvm, ours = (_written(both, topics[form], **options) for form in FORMS)
    expect_same(jvm, ours)
    expect(len(jvm) == count, f"{len(jvm)} records instead of {count}")
    return jvm


def _by_both(both: Both, frame: DataFrame, **options: object) -> dict[str, str]:
    topics = {form: both.topic(PARTITIONS, "written") for form in FORMS}
    for form in FORMS:
        both.write(form, frame, topic=topics[form], **options)
    return topics


def check_batch_writes(report: Report, both: Both) -> None:
    numbers = _numbers(both)
    with report.check("write: keys go to the same partitions, values and headers the same"):
        frame = numbers.selectExpr(
            "concat('key ', id % 50) as key", "concat('value ', id) as value", f"{_HEADERS} as headers"
        )
        rows = _same(both, _COUNT, _by_both(both, frame))
        expect(len({row[2] for row in rows}) == PARTITIONS, "not every partition has records")
    with report.check("write: null keys, null and empty values"):
        frame = numbers.selectExpr(
            "if(id % 3 = 0, null, cast(id as string)) as key", "if(id % 7 = 0, null, if(id % 7 = 1, '', 'x')) as value"
        )
        topics = _by_both(both, frame)
        # Where rows without a key go is up to a sink.
        jvm, ours = (sorted((row[:2] for row in _written(both, topics[form])), key=str) for form in FORMS)
        expect_same(jvm, ours)
        expect(len(jvm) == _COUNT, f"{len(jvm)} records")
    with report.check("write: a column for the partition"):
        frame = numbers.selectExpr("'k' as key", "cast(id as string) as value", "cast(id % 3 as int) as partition")
        rows = _same(both, _COUNT, _by_both(both, frame))
        expect(all(int(row[1]) % 3 == row[2] for row in rows), "a record in another partition")
    with report.check("write: a column for the topic"):
        for form in FORMS:
            names = [both.topic(1, "routed") for _ in range(2)]
            both.write(form, numbers.selectExpr("cast(id as string) as value", _either("id", names)))
            for number, name in enumerate(names):
                rows = _written(both, name)
                expect({int(row[1]) for row in rows} == set(range(number, _COUNT, 2)), f"{form}: {rows[:3]}")
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        with report.check(f"write: {codec}"):
            frame = numbers.selectExpr("cast(id as string) as key", "repeat('x', 300) as value")
            topics = {form: both.topic(PARTITIONS, codec) for form in FORMS}
            both.write(JVM, frame, topic=topics[JVM], kafka_compression_type=codec)
            both.write(OURS, frame, topic=topics[OURS], compression=codec)
            _same(both, _COUNT, topics)


def _either(column: str, names: list[str]) -> str:
    return f"if({column} % 2 = 0, '{names[0]}', '{names[1]}') as topic"


def check_stream_writes(report: Report, both: Both) -> None:
    source = both.topic(PARTITIONS, "source")
    both.send(source, records())
    count = len(records())
    reading = {"subscribe": source, "startingOffsets": "earliest", "includeHeaders": "true"}
    columns = ("key", "value", "headers", "partition")
    with report.check("stream: copied with keys, headers and partitions, by each source into each sink"):
        written = []
        for source_form in FORMS:
            for sink_form in FORMS:
                target = both.topic(PARTITIONS, "copy")
                frame = both.load_stream(source_form, maxOffsetsPerTrigger=250, **reading).select(*columns)
                both.write_stream(sink_form, frame, topic=target)
                written.append(_written(both, target))
        for each in written:
            expect_same(written[0], each)
        expect(len(written[0]) == count, f"{len(written[0])} records instead of {count}")
    with report.check("stream: copied exactly once by ours, read committed by Spark's"):
        target = both.topic(PARTITIONS, "copy")
        frame = both.load_stream(JVM, maxOffsetsPerTrigger=250, **reading).select(*columns)
        both.write_stream(OURS, frame, topic=target, delivery="exactly-once", sinkId=target)
        rows = _written(both, target, kafka_isolation_level="read_committed")
        expect_same(_written(both, source), rows)
    with report.check("stream: a column for the topic"):
        for form in FORMS:
            names = [both.topic(1, "routed") for _ in range(2)]
            frame = both.load_stream(form, **reading).selectExpr("value", _either("offset", names))
            both.write_stream(form, frame)
            sizes = [len(_written(both, name)) for name in names]
            expect(sizes == [count // 2, count // 2], f"{form}: {sizes}")
    with report.check("stream: counts by key in update mode"):
        answers = [_counted(both, form, reading) for form in FORMS]
        expect(answers[0] == answers[1], answers)
        expect(sum(answers[0].values()) == count, answers[0])


def _counted(both: Both, form: str, reading: dict[str, str]) -> dict[bytes | None, int]:
    """The last count of each key, as the sink of the same format has it."""
    target = both.topic(1, "counts")
    counts = both.load_stream(form, maxOffsetsPerTrigger=250, **reading).groupBy("key").count()
    frame = counts.selectExpr("key", "cast(count as string) as value")
    both.run(frame, both.checkpoint(), lambda rows, _: both.write(form, rows, topic=target), mode="update")
    return {row[0]: int(row[1]) for row in both.read_same(subscribe=target)}
