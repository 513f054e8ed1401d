"""The readers that Spark drives, driven by the test: everything of them that does not need a Spark to be seen."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from headrace.model.errors import HeadraceError
from headrace.pipelines.source import reader
from headrace.pipelines.source.datasource import HeadraceDataSource
from headrace.pipelines.source.offsets import from_json
from headrace.pipelines.source.options import OptionError
from headrace.pipelines.source.positions import SourceError
from headrace.pipelines.source.reader import DataLoss, StreamReader
from headrace.records.builder import build_batch
from headrace.records.columns import decode
from headrace.records.reader import Record
from headrace.testing import Broker
from headrace.wire import EARLIEST, BrokerUnreachable, Cluster

Write = Callable[..., int]
NewTopic = Callable[..., str]
T0_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What errors set in the processes of Spark is not to stay in this one."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


@pytest.fixture(autouse=True, scope="module")
def connections() -> Iterator[None]:
    """A worker of Spark keeps its connections until it ends; the process of the tests lets go of them."""
    yield
    for cluster in reader._clusters.values():
        cluster.close()
    reader._clusters.clear()


class Reading:
    """The data source as Spark makes it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def source(self, **options: Any) -> HeadraceDataSource:
        given = {"kafka.bootstrap.servers": self._bootstrap, **options}
        return HeadraceDataSource(CaseInsensitiveDict({name: str(value) for name, value in given.items()}))

    def batch(self, **options: Any) -> list[str]:
        made = self.source(**options)
        reader = made.reader(made.schema())
        batches: list[Any] = [batch for partition in reader.partitions() for batch in reader.read(partition)]
        return sorted(value.decode() for batch in batches for value in batch.column("value").to_pylist())

    def tasks(self, **options: Any) -> int:
        made = self.source(**options)
        return len(made.reader(made.schema()).partitions())

    def stream(self, **options: Any) -> "Stream":
        made = self.source(**options)
        reader = made.streamReader(made.schema())
        assert isinstance(reader, StreamReader)
        return Stream(reader)


class Stream:
    """Micro-batches, one after another."""

    def __init__(self, reader: StreamReader, at: dict[str, Any] | None = None) -> None:
        self.reader = reader
        self.at = reader.initialOffset() if at is None else at

    def next(self, limit: ReadLimit | None = None) -> list[str]:
        """What the next micro-batch has; nothing if there is none."""
        end = self.reader.latestOffset(self.at, limit or self.reader.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(self.at):
            return []
        tasks = self.reader.partitions(self.at, end)
        batches = [batch for task in tasks for batch in self.reader.read(task)]
        self.at = end
        return sorted(value.decode() for batch in batches for value in batch.column("value").to_pylist())


@pytest.fixture
def reading(bootstrap: str) -> Reading:
    return Reading(bootstrap)


def test_ranges_by_offset(reading: Reading, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic(2)
    write(topic, b"a0", b"a1", b"a2", b"a3")
    write(topic, b"b0", b"b1", partition=1)
    start = json.dumps({topic: {"0": 1, "1": -2}})
    end = json.dumps({topic: {"0": 3, "1": -1}})
    assert reading.batch(subscribe=topic, startingOffsets=start, endingOffsets=end) == ["a1", "a2", "b0", "b1"]
    assert reading.batch(assign=json.dumps({topic: [1]})) == ["b0", "b1"]
    with pytest.raises(OptionError, match=f"lacks {topic}-1"):
        reading.batch(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 1}}))
    with pytest.raises(OptionError, match=f"names {topic}-7, which is not read"):
        reading.batch(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 1, "1": 0, "7": 1}}))
    late = json.dumps({topic: {"0": 9, "1": 0}})
    with pytest.raises(SourceError, match="the read ends at 4"):
        reading.batch(subscribe=topic, startingOffsets=late)
    with pytest.raises(SourceError, match="up to offset 9: it ends at 4"):
        reading.batch(subscribe=topic, endingOffsets=late)
    with pytest.raises(SourceError, match="has no partition 5"):
        reading.batch(assign=json.dumps({topic: [5]}))


def test_ranges_by_time(reading: Reading, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    for minute in range(4):
        write(topic, f"m{minute}".encode(), time_ms=T0_MS + minute * 60_000)
    start, end = str(T0_MS + 60_000), str(T0_MS + 180_000)
    assert reading.batch(subscribe=topic, startingTimestamp=start, endingTimestamp=end) == ["m1", "m2"]
    by_partition = json.dumps({topic: {"0": T0_MS + 120_000}})
    assert reading.batch(subscribe=topic, startingOffsetsByTimestamp=by_partition) == ["m2", "m3"]
    assert reading.batch(subscribe=topic, endingOffsetsByTimestamp=by_partition) == ["m0", "m1"]
    assert reading.batch(subscribe=topic, startingTimestamp=end, endingTimestamp=start) == []
    future = str(T0_MS + 10**9)
    with pytest.raises(SourceError, match=f"{topic}-0 has no record at or after the time of startingTimestamp"):
        reading.batch(subscribe=topic, startingTimestamp=future)
    latest = {"startingTimestamp": future, "startingOffsetsByTimestampStrategy": "latest"}
    assert reading.batch(subscribe=topic, **latest) == []
    assert reading.batch(subscribe=topic, endingTimestamp=future) == ["m0", "m1", "m2", "m3"]
    stream = reading.stream(subscribe=topic, startingTimestamp=start)
    assert stream.next() == ["m1", "m2", "m3"]


def test_patterns_and_several_topics(reading: Reading, new_topic: NewTopic, write: Write) -> None:
    first, second, other = new_topic(prefix="shop-a"), new_topic(prefix="shop-b"), new_topic(prefix="other")
    for topic in (first, second, other):
        write(topic, topic.encode())
    assert reading.batch(subscribePattern="shop-[ab]-.*") == sorted([first, second])
    assert reading.batch(subscribe=f"{first}, {other}") == sorted([first, other])
    assert reading.batch(subscribePattern="nothing-like-this") == []


def test_ranges_are_split(reading: Reading, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    for _ in range(10):
        write(topic, *[b"x" * 300] * 10)
    assert reading.tasks(subscribe=topic) == 1
    assert reading.tasks(subscribe=topic, minPartitions=7) == 7
    assert reading.tasks(subscribe=topic, maxRecordsPerPartition=30) == 4
    assert len(reading.batch(subscribe=topic, minPartitions=7)) == 100
    assert len(reading.batch(subscribe=topic, **{"kafka.fetch.max.bytes": 4_000})) == 100


@pytest.mark.parametrize("codec", range(5))
def test_arrow_batches_are_copies(codec: int) -> None:
    """The source gives the bytes of a fetch to the next one while Spark still has the columns."""
    records = [
        Record(0, T0_MS, b"key-%d" % number, b"value-%d" % number, (("h", b"%d" % number),)) for number in range(50)
    ]
    buffer = bytearray(build_batch(records, codec=codec))
    (batch,) = decode(memoryview(buffer), topic="t", partition=0, headers=True)
    before = batch.to_pylist()
    buffer[:] = b"\xff" * len(buffer)
    assert batch.to_pylist() == before


def transact(cluster: Cluster, topic: str, name: str, value: bytes, committed: bool | None) -> None:
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


def test_transactions(reading: Reading, cluster: Cluster, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    write(topic, b"plain")
    transact(cluster, topic, "one", b"committed", True)
    transact(cluster, topic, "two", b"aborted", False)
    transact(cluster, topic, "three", b"open", None)
    write(topic, b"behind")
    assert reading.batch(subscribe=topic) == ["committed", "plain"]
    everything = ["aborted", "behind", "committed", "open", "plain"]
    assert reading.batch(subscribe=topic, isolation="read_uncommitted") == everything
    assert reading.batch(subscribe=topic, **{"kafka.isolation.level": "READ_UNCOMMITTED"}) == everything
    stream = reading.stream(subscribe=topic, startingOffsets="earliest")
    assert stream.next() == ["committed", "plain"]
    assert stream.next() == []


def test_a_marker_alone_is_no_loss(reading: Reading, cluster: Cluster, new_topic: NewTopic) -> None:
    """A micro-batch may hold nothing but the marker of a transaction, or the records of an aborted one."""
    topic = new_topic()
    transact(cluster, topic, "one", b"committed", True)
    stream = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=1)
    assert [stream.next(), stream.next(), stream.next()] == [["committed"], [], []]
    assert from_json(stream.at) == {(topic, 0): 2}
    transact(cluster, topic, "two", b"aborted", False)
    assert stream.next() == []
    assert from_json(stream.at) == {(topic, 0): 3}


def test_compaction_is_no_loss(reading: Reading, cluster: Cluster, write: Write, new_topic: NewTopic) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
    topic = new_topic(**settings)
    for round_ in range(20):
        write(topic, *[(b"k%d" % key, b"%d-%d" % (round_, key) * 20) for key in range(3)])
    end = cluster.list_offsets([(topic, 0)])[topic, 0].offset
    deadline_s = time.monotonic() + 200
    while len(rows := reading.batch(subscribe=topic)) > end / 2:
        assert time.monotonic() < deadline_s, f"{len(rows)} of {end} records are left: the topic is not compacted"
        time.sleep(0.05)
    assert cluster.list_offsets({(topic, 0): EARLIEST})[topic, 0].offset == 0
    newest = {f"19-{key}" * 20 for key in range(3)}
    # The broker goes on compacting: each read may find less, and always the newest.
    by_many = reading.batch(subscribe=topic, minPartitions=end)
    assert newest <= set(by_many) <= set(rows), "a task may find nothing in its range"
    stream = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=7)
    found: list[str] = []
    while from_json(stream.at) != {(topic, 0): end}:
        found += stream.next()
    assert newest <= set(found) <= set(by_many)


def test_lost_offsets(reading: Reading, cluster: Cluster, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    write(topic, *[b"%d" % number for number in range(10)])
    cluster.delete_records({(topic, 0): 4})
    start = json.dumps({topic: {"0": 1}})
    with pytest.raises(DataLoss, match=f"offsets 1 to 3 of {topic}-0 no longer exist"):
        reading.batch(subscribe=topic, startingOffsets=start)
    rest = [str(number) for number in range(4, 10)]
    assert reading.batch(subscribe=topic, startingOffsets=start, failOnDataLoss="FALSE") == rest
    assert reading.batch(subscribe=topic) == rest, "what is gone before anybody asked is no loss"


def test_offsets_that_go_while_they_are_read(
    reading: Reading, cluster: Cluster, new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic()
    write(topic, *[b"%d" % number for number in range(10)])
    for fails in (True, False):
        made = reading.source(subscribe=topic, failOnDataLoss=fails)
        reader = made.reader(made.schema())
        (task,) = reader.partitions()
        cluster.delete_records({(topic, 0): 3 if fails else 5})
        if fails:
            with pytest.raises(DataLoss, match="offsets 0 to 2"):
                list(reader.read(task))
        else:
            batches: Iterator[Any] = reader.read(task)
            assert sum(batch.num_rows for batch in batches) == 5


def test_limits(reading: Reading, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic(2)
    write(topic, *[b"a%d" % number for number in range(6)])
    write(topic, *[b"b%d" % number for number in range(4)], partition=1)
    stream = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert stream.reader.getDefaultReadLimit() == ReadMaxRows(4)
    assert [len(stream.next()) for _ in range(4)] == [4, 4, 2, 0]
    stream = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert len(stream.next(ReadAllAvailable())) == 10, "Trigger.Once takes everything"
    assert from_json(stream.reader.reportLatestOffset() or {}) == {(topic, 0): 6, (topic, 1): 4}


def test_bytes_limit_a_micro_batch(reading: Reading, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    for number in range(8):
        write(topic, str(number).encode() * 1000)
    stream = reading.stream(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="3k")
    assert stream.reader.getDefaultReadLimit() == ReadMaxBytes(3072)
    sizes = []
    while batch := stream.next():
        sizes.append(len(batch))
    assert sum(sizes) == 8
    assert max(sizes) <= 3
    assert len(sizes) <= 5


def test_too_little_is_waited_for(reading: Reading, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    write(topic, b"first")
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 3}
    stream = reading.stream(**options, maxTriggerDelay="1h")
    assert stream.reader.getDefaultReadLimit() == ReadMinRows(3)
    assert stream.next() == ["first"]
    write(topic, b"x", b"y")
    assert stream.next() == []
    write(topic, b"z")
    assert stream.next() == ["x", "y", "z"]
    write(topic, b"last")
    assert stream.next() == []
    hasty = reading.stream(**options, maxTriggerDelay="1ms")
    assert len(hasty.next()) == 5
    write(topic, b"more")
    assert hasty.next() == ["more"], "the delay is over"
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.next() == ["last", "more"], "nothing more will come"


def test_available_now_stops_at_what_was_there(reading: Reading, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    write(topic, b"a", b"b")
    stream = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=1)
    stream.reader.prepareForTriggerAvailableNow()
    write(topic, b"later")
    assert [stream.next(), stream.next(), stream.next()] == [["a"], ["b"], []]


def test_new_topics_and_partitions_are_read_from_their_start(
    reading: Reading, cluster: Cluster, new_topic: NewTopic, write: Write
) -> None:
    prefix = new_topic(prefix="family")
    stream = reading.stream(subscribePattern=f"{prefix}.*")
    assert stream.next() == []
    child = new_topic(prefix=prefix)
    write(child, b"child")
    cluster.add_partitions(prefix, 2)
    write(prefix, b"grown", partition=1)
    assert stream.next() == ["child", "grown"]
    again = Stream(stream.reader, at={prefix: {"0": 0}})
    cluster.delete_records({(child, 0): 1})
    write(child, b"second")
    assert again.next() == ["grown", "second"], "what went before it was first seen is no loss"


def test_deleted_topics(reading: Reading, cluster: Cluster, new_topic: NewTopic, write: Write) -> None:
    prefix = new_topic(prefix="doomed")
    other = new_topic(prefix=prefix)
    write(prefix, b"a")
    write(other, *[b"b"] * 3)
    options = {"subscribePattern": f"{prefix}.*", "startingOffsets": "earliest"}
    strict = reading.stream(**options)
    strict.next()
    cluster.delete_topic(other)
    write(prefix, b"c")
    with pytest.raises(DataLoss, match=f"{other} was deleted"):
        strict.next()
    lenient = reading.stream(**options, failOnDataLoss="false")
    lenient.at = strict.at
    assert lenient.next() == ["c"]
    cluster.create_topic(other, partitions=1)
    write(other, b"d")
    assert lenient.next() == ["d"], "a topic of the same name is a new one"
    # One that was made anew behind the stream's back.
    with pytest.raises(
        DataLoss, match=f"{other}-0 ends at offset 1 although it was read up to 3: the topic was recreated"
    ):
        strict.next()
    lenient.at = strict.at
    assert lenient.next() == ["c", "d"]


def test_a_batch_is_planned_again_after_a_restart(reading: Reading, new_topic: NewTopic, write: Write) -> None:
    """Spark asks for the same offsets again: a new reader gives the same records."""
    topic = new_topic()
    write(topic, b"a", b"b", b"c")
    reader = reading.stream(subscribe=topic).reader
    tasks = reader.partitions({topic: {"0": 1}}, {topic: {"0": 3}})
    rows = [value for task in tasks for batch in reader.read(task) for value in batch.column("value").to_pylist()]
    assert rows == [b"b", b"c"]
    assert reader.partitions({topic: {"0": 1}}, {topic: {"0": 1}}) == []


def test_the_first_batch_is_the_same_after_a_restart(reading: Reading, new_topic: NewTopic, write: Write) -> None:
    """Spark asks where a stream starts as often as it likes, and after a restart again, when "latest" is elsewhere."""
    topic = new_topic()
    write(topic, b"before")
    reader = reading.stream(subscribe=topic, startingOffsets="latest").reader
    start = reader.initialOffset()
    write(topic, b"a", b"b")
    end = reader.latestOffset(start, ReadAllAvailable())
    write(topic, b"c")
    assert reader.initialOffset() == start
    again = reading.stream(subscribe=topic, startingOffsets="latest").reader
    tasks = again.partitions(again.initialOffset(), end)
    rows = [value for task in tasks for batch in again.read(task) for value in batch.column("value").to_pylist()]
    assert rows == [b"a", b"b"]
    assert Stream(again, at=end).next() == ["c"]
    at_end = {topic: {"0": 4}}
    assert again.latestOffset(at_end, ReadAllAvailable()) == at_end


def test_a_restart_of_the_broker_is_waited_out() -> None:
    with Broker(settings={"log.retention.ms": -1}) as broker, Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("t", partitions=1)
        cluster.produce({("t", 0): build_batch([Record(0, T0_MS, None, b"a")])})
        stream = Reading(broker.bootstrap).stream(subscribe="t", startingOffsets="earliest")
        assert stream.next() == ["a"]
        broker.restart()
        cluster.produce({("t", 0): build_batch([Record(0, T0_MS, None, b"b")])})
        assert stream.next() == ["b"]


def test_a_group_shows_how_far_the_stream_is(
    reading: Reading, cluster: Cluster, new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic()
    write(topic, b"a", b"b")
    group = f"mirror-{topic}"
    stream = reading.stream(subscribe=topic, startingOffsets="earliest", commitGroup=group)
    stream.next()
    stream.next()
    assert cluster.committed_offsets(group) == {(topic, 0): 2}


def test_mistakes_are_told_when_spark_asks(bootstrap: str) -> None:
    """Not in `streamReader()`: Spark 4.3 puts an error of its own in the place of one that comes from there."""
    made = Reading("127.0.0.1:1").source(subscribe="t", **{"kafka.default.api.timeout.ms": 100})
    reader = made.streamReader(made.schema())
    with pytest.raises(BrokerUnreachable, match="no broker answers at"):
        reader.initialOffset()
    ended = Reading(bootstrap).source(subscribe="t", endingOffsets="latest")
    with pytest.raises(OptionError, match="endingOffsets is for batch reads"):
        ended.streamReader(ended.schema()).initialOffset()
    with pytest.raises(HeadraceError, match="the topic no-such-topic does not exist"):
        Reading(bootstrap).stream(subscribe="no-such-topic")
