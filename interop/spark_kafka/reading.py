"""Batches and streams of Spark's Kafka source, beside those of the format headrace."""

import json

from both import BASE_MS, FORMS, JVM, OURS, Both, Written, await_true, comparable, expect_same, together
from report import Report, expect

PARTITIONS = 3
EACH = 200
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def records(first: int = 0, count: int = EACH) -> list[Written]:
    """A record a second in each partition; some without a key, a value or headers, some empty."""
    return [
        Written(
            partition,
            None if number % 17 == 3 else b"" if number % 17 == 4 else b"value %d of %d" % (number, partition),
            None if number % 5 == 0 else b"key %d" % (number % 7),
            BASE_MS + 1000 * number,
            (("n", b"%d" % number), ("none", None), ("n", b"")) if number % 3 == 0 else (),
        )
        for partition in range(PARTITIONS)
        for number in range(first, first + count)
    ]


def check_batches(report: Report, both: Both) -> None:
    topic = both.topic(PARTITIONS, "orders")
    share = EACH // len(_CODECS)
    for number, codec in enumerate(_CODECS):
        both.send(topic, records(number * share, share), **{"compression.type": codec})
    with report.check("batch: the columns and their types"):
        jvm, ours = (both.load(form, subscribe=topic, includeHeaders="true").schema for form in FORMS)
        expect([(f.name, f.dataType) for f in jvm] == [(f.name, f.dataType) for f in ours], f"{jvm}\n{ours}")
    with report.check("batch: everything, in every codec"):
        rows = both.read_same(PARTITIONS * EACH, subscribe=topic)
        expected = {(each.partition, each.time_ms): (each.key, each.value) for each in records()}
        for key, value, _, partition, offset, *_ in rows:
            expect(expected[partition, BASE_MS + 1000 * offset] == (key, value), (partition, offset, key, value))
    with report.check("batch: headers"):
        rows = both.read_same(PARTITIONS * EACH, subscribe=topic, includeHeaders="true")
        headers = {row[4]: row[7] for row in rows if row[3] == 0}
        expect(headers[3] == (("n", b"3"), ("none", None), ("n", b"")), headers[3])
    with report.check("batch: by offsets"):
        start, end = {"0": 50, "1": -2, "2": 199}, {"0": 60, "1": 7, "2": -1}
        both.read_same(
            18, subscribe=topic, startingOffsets=json.dumps({topic: start}), endingOffsets=json.dumps({topic: end})
        )
    with report.check("batch: from a time to a time"):
        both.read_same(
            PARTITIONS * 40, subscribe=topic, startingTimestamp=BASE_MS + 9_500, endingTimestamp=BASE_MS + 50_000
        )
    with report.check("batch: from a time of each partition"):
        times = {topic: {"0": BASE_MS + 199_000, "1": BASE_MS + 190_000, "2": BASE_MS}}
        both.read_same(1 + 10 + EACH, subscribe=topic, startingOffsetsByTimestamp=json.dumps(times))
    with report.check("batch: from a time that no record has, to the latest"):
        both.read_same(
            0, subscribe=topic, startingTimestamp=BASE_MS + 10**9, startingOffsetsByTimestampStrategy="latest"
        )
    with report.check("batch: from a time that no record has, refused"):
        for form in FORMS:
            try:
                both.read(form, subscribe=topic, startingTimestamp=BASE_MS + 10**9)
            except Exception:
                continue
            raise AssertionError(f"{form} has read something")
    with report.check("batch: some partitions (assign)"):
        both.read_same(2 * EACH, assign=json.dumps({topic: [0, 2]}))
    with report.check("batch: minPartitions"):
        tasks = [both.load(form, subscribe=topic, minPartitions=8).rdd.getNumPartitions() for form in FORMS]
        expect(min(tasks) >= 8, f"{tasks} tasks")
        both.read_same(PARTITIONS * EACH, subscribe=topic, minPartitions=8)
    with report.check("batch: topics by a pattern"):
        for name in ("pattern-a", "pattern-b", "other"):
            both.send(both.topic(1, name), [Written(0, name.encode())])
        rows = both.read_same(2, subscribePattern="pattern-[ab]-.*")
        expect({row[1] for row in rows} == {b"pattern-a", b"pattern-b"}, rows)
    with report.check("batch: two topics by name"):
        another = both.topic(1)
        both.send(another, [Written(0, b"x")])
        both.read_same(PARTITIONS * EACH + 1, subscribe=f"{topic},{another}")
    with report.check("batch: the broker's time (LogAppendTime)"):
        stamped = both.topic(1, **{"message.timestamp.type": "LogAppendTime"})
        both.send(stamped, [Written(0, b"x")] * 10)
        rows = both.read_same(10, subscribe=stamped)
        expect({row[6] for row in rows} == {1}, rows[0])
    with report.check("batch: after DeleteRecords"):
        cut = both.topic(1)
        both.send(cut, [Written(0, b"%d" % number) for number in range(20)])
        both.cluster.delete_records({(cut, 0): 12})
        both.read_same(8, subscribe=cut)


def check_transactions(report: Report, both: Both) -> None:
    topic = both.topic(2, "ledger")
    both.send(topic, [Written(number % 2, b"plain %d" % number) for number in range(10)])
    for number, end in enumerate(["abort", "commit", "abort", "commit"]):
        both.transaction(topic, [Written(at % 2, b"%s %d" % (end.encode(), number)) for at in range(40)], end)
    both.send(topic, [Written(number % 2, b"plain %d" % number) for number in range(10)])
    committed = {"subscribe": topic, "kafka_isolation_level": "read_committed"}
    with report.check("transactions: a batch without what was aborted"):
        rows = both.read_same(100, **committed)
        expect(not [row for row in rows if row[1].startswith(b"abort")], "records that were aborted")
    with report.check("transactions: a batch with it (read_uncommitted)"):
        both.read_same(180, subscribe=topic, kafka_isolation_level="read_uncommitted")
    with report.check("transactions: a batch in many tasks"):
        both.read_same(100, minPartitions=9, **committed)
    with report.check("transactions: a stream in micro-batches"):
        both.stream_same(100, startingOffsets="earliest", maxOffsetsPerTrigger=50, **committed)
    with report.check("transactions: nothing from the first open one on"):
        producer = both.transaction(topic, [Written(0, b"open")], "open")
        both.send(topic, [Written(0, b"behind"), Written(1, b"beside")])
        both.read_same(101, **committed)
        producer.commit_transaction(60)
        both.read_same(103, **committed)


def check_streams(report: Report, both: Both) -> None:
    topic = both.topic(PARTITIONS, "events")
    both.send(topic, records())
    whole = {"subscribe": topic, "startingOffsets": "earliest"}
    with report.check("stream: what is there, with headers (availableNow)"):
        both.stream_same(PARTITIONS * EACH, includeHeaders="true", **whole)
    with report.check("stream: maxOffsetsPerTrigger"):
        for form in FORMS:
            sizes = [len(batch) for batch in both.stream(form, maxOffsetsPerTrigger=150, **whole)]
            expect(max(sizes) <= 150 and sum(sizes) == PARTITIONS * EACH, f"{form}: micro-batches of {sizes}")
    with report.check("stream: minPartitions"):
        both.stream_same(PARTITIONS * EACH, minPartitions=8, **whole)
    with report.check("stream: by offsets"):
        start = {topic: {"0": 150, "1": -1, "2": -2}}
        both.stream_same(50 + EACH, subscribe=topic, startingOffsets=json.dumps(start))
    with report.check("stream: from a time"):
        both.stream_same(PARTITIONS * 10, subscribe=topic, startingTimestamp=BASE_MS + 190_000)
    with report.check("stream: topics by a pattern"):
        for name in ("many-a", "many-b"):
            both.send(both.topic(1, name), [Written(0, name.encode())])
        both.stream_same(2, subscribePattern="many-[ab]-.*", startingOffsets="earliest")
    with report.check("stream: goes on from its checkpoint"):
        places = {form: both.checkpoint() for form in FORMS}
        for form in FORMS:
            both.stream(form, places[form], **whole)
        both.send(topic, records(EACH, 10))
        jvm, ours = (together(both.stream(form, places[form], **whole)) for form in FORMS)
        expect_same(jvm, ours)
        expect(len(jvm) == PARTITIONS * 10, f"{len(jvm)} records")
    with report.check("stream: from the latest, while records come"):
        expect_same(*(_live(both, form) for form in (JVM, OURS)))


def _live(both: Both, form: str) -> list[tuple[object, ...]]:
    """The values that a running query sees of what is written before and after it has begun."""
    topic = both.topic(2, "live")
    both.send(topic, [Written(0, b"before")])
    seen: list[tuple[object, ...]] = []
    frame = both.load_stream(form, subscribe=topic, startingOffsets="latest")
    writer = frame.writeStream.foreachBatch(lambda rows, _: seen.extend(comparable(rows.collect())))
    query = writer.option("checkpointLocation", both.checkpoint()).trigger(processingTime="200 milliseconds").start()
    try:
        await_true(lambda: query.lastProgress is not None or not query.isActive, "the query has begun")
        for turn in range(3):
            both.send(topic, [Written(number % 2, b"%d of %d" % (number, turn)) for number in range(20)])
            wanted = 20 * (turn + 1)
            await_true(lambda wanted=wanted: len(seen) >= wanted or not query.isActive, f"{wanted} records were read")
    finally:
        query.stop()
    expect(len(seen) == 60, f"{form}: {len(seen)} records, {query.exception()}")
    return sorted((row[1], row[3], row[4]) for row in seen)
