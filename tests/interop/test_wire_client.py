"""The blocking client of `headrace.wire`, with Headrace and with Apache Kafka (see `subject.py`)."""

import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from headrace.model.ids import ProducerIdAndEpoch
from headrace.wire import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    Cluster,
    OffsetGone,
    ProducerFenced,
    Timeouts,
    TopicNotFound,
    TransactionLost,
    Unsupported,
)
from headrace.wire.produce import Transactions

from . import batches
from .batches import Record
from .subject import IS_HEADRACE, Subject

PATIENT = Timeouts(connect_s=10, request_s=30, patience_s=45)
TRANSACTIONAL = 0x10


@pytest.fixture
def cluster(broker: Subject) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap, timeouts=PATIENT) as cluster:
        yield cluster


def transactional(producer: ProducerIdAndEpoch, *values: bytes, sequence: int = 0) -> bytes:
    return batches.batch(
        values,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )


def committed_values(cluster: Cluster, topic: str, partition: int = 0) -> list[bytes | None]:
    """What a reader sees that knows nothing of aborted transactions: enough where none or all were."""
    found = cluster.fetch(topic, partition, 0, isolation=READ_COMMITTED)
    aborted = {one.producer_id for one in found.aborted}
    return [
        record.value
        for batch in batches.parse(bytes(found.records))
        if not batch.attributes & 0x20 and batch.producer_id not in aborted
        for record in batch.records
    ]


def test_what_is_written_is_read(cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    written = {(topic, 0): batches.batch([b"a", b"b"]), (topic, 1): batches.batch([b"c"])}
    assert cluster.produce(written) == {(topic, 0): 0, (topic, 1): 0}
    assert cluster.produce({(topic, 0): batches.batch([b"d"])}) == {(topic, 0): 2}
    found = cluster.fetch(topic, 0, 1)
    assert batches.values(bytes(found.records)) == [b"a", b"b", b"d"]
    assert (found.high_watermark, found.log_start_offset) == (3, 0)


def test_topics_are_made_once_and_looked_up(cluster: Cluster) -> None:
    name = f"made-{uuid4().hex[:8]}"
    assert cluster.metadata([name]) == {}
    assert cluster.create_topic(name, partitions=3, settings={"cleanup.policy": "compact"})
    assert not cluster.create_topic(name, partitions=3)
    found = cluster.metadata([name])[name]
    assert [part.partition for part in found.partitions] == [0, 1, 2]
    assert name in cluster.metadata()
    assert cluster.topic_settings(name)["cleanup.policy"] == "compact"
    cluster.set_topic_settings(name, {"cleanup.policy": "delete"})
    cluster.add_partitions(name, 4)
    assert cluster.delete_topic(name)
    assert not cluster.delete_topic(name)


def test_offsets_by_time(cluster: Cluster, topic: str) -> None:
    where = (topic, 0)
    for when in (1000, 2000, 3000):
        cluster.produce({where: batches.batch([Record(b"x", timestamp_ms=when)])})
    assert cluster.list_offsets([where])[where].offset == 3
    assert cluster.list_offsets({where: EARLIEST})[where].offset == 0
    assert cluster.list_offsets({where: LATEST})[where].offset == 3
    found = cluster.list_offsets({where: 1500})[where]
    assert (found.offset, found.timestamp_ms) == (1, 2000)
    assert cluster.list_offsets({where: 3001})[where].offset == -1


def test_what_is_not_there_is_said_in_a_sentence(broker: Subject, topic: str) -> None:
    with Cluster(broker.bootstrap, timeouts=Timeouts(patience_s=0.2)) as cluster:
        with pytest.raises(OffsetGone, match=f"fetching {topic}-0 from offset 7 failed"):
            cluster.fetch(topic, 0, 7)
        with pytest.raises(TopicNotFound, match="no-such-topic-0"):
            cluster.fetch("no-such-topic", 0, 0)
        with pytest.raises(TopicNotFound, match=f"{topic}-9"):
            cluster.list_offsets([(topic, 9)])


def test_removed_records_leave_the_log_shorter(cluster: Cluster, topic: str) -> None:
    cluster.produce({(topic, 0): batches.batch([b"a", b"b", b"c"])})
    cluster.delete_records({(topic, 0): 2})
    assert cluster.list_offsets({(topic, 0): EARLIEST})[topic, 0].offset == 2
    with pytest.raises(OffsetGone):
        cluster.fetch(topic, 0, 0)


def test_offsets_are_committed_for_a_group_without_members(cluster: Cluster, topic: str) -> None:
    group = f"mirror-{uuid4().hex[:8]}"
    assert cluster.committed_offsets(group) == {}
    cluster.produce({(topic, 0): batches.batch([b"a", b"b"])})
    cluster.commit_offsets(group, {(topic, 0): 2})
    assert cluster.committed_offsets(group) == {(topic, 0): 2}


def test_idempotent_batches_are_written_once(cluster: Cluster, topic: str) -> None:
    producer = cluster.init_producer_id()
    batch = batches.batch([b"a"], producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=0)
    assert cluster.produce({(topic, 0): batch}) == {(topic, 0): 0}
    assert cluster.produce({(topic, 0): batch}) == {(topic, 0): 0}
    assert cluster.list_offsets([(topic, 0)])[topic, 0].offset == 1


@pytest.mark.parametrize("version", ["v2", "v1"])
def test_another_process_ends_the_transaction(
    cluster: Cluster, new_topic: Callable[..., str], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version == "v1":
        monkeypatch.setattr("headrace.wire.produce.is_version_2", lambda connection: False)
    topic, name = new_topic(2), f"txn-{uuid4().hex[:8]}"
    producer = cluster.init_producer_id(name)
    cluster.produce(
        {(topic, 0): transactional(producer, b"a"), (topic, 1): transactional(producer, b"b")}, transactional_id=name
    )
    cluster.produce({(topic, 0): transactional(producer, b"c", sequence=1)}, transactional_id=name)
    assert committed_values(cluster, topic) == []
    with pickle.loads(pickle.dumps(cluster)) as driver:
        after = driver.end_txn(name, producer, committed=True)
        assert driver.end_txn(name, producer, committed=True) == after, "a retry gets the same answer"
        with pytest.raises(TransactionLost):
            driver.end_txn(name, producer, committed=False)
        assert committed_values(driver, topic) == [b"a", b"c"]
    assert (after.epoch > producer.epoch) == (version == "v2")


def test_a_new_instance_aborts_and_fences_the_one_before(cluster: Cluster, topic: str) -> None:
    name = f"txn-{uuid4().hex[:8]}"
    before = cluster.init_producer_id(name)
    cluster.produce({(topic, 0): transactional(before, b"never")}, transactional_id=name)
    after = cluster.init_producer_id(name)
    with pytest.raises(ProducerFenced):
        cluster.end_txn(name, before, committed=True)
    with pytest.raises(ProducerFenced):
        cluster.produce({(topic, 0): transactional(before, b"late", sequence=1)}, transactional_id=name)
    cluster.produce({(topic, 0): transactional(after, b"yes")}, transactional_id=name)
    cluster.end_txn(name, after, committed=False)
    assert committed_values(cluster, topic) == []


def followed(cluster: Cluster, topic: str, start: int, end: int, **how: Any) -> list[int]:
    """Offsets of what `follow` gives within the range."""
    pieces = cluster.follow(topic, 0, start, end, **how)
    offsets = [
        record.offset for piece in pieces for batch in batches.parse(bytes(piece.records)) for record in batch.records
    ]
    return [offset for offset in offsets if start <= offset < end]


def test_a_range_is_followed_in_pieces(cluster: Cluster, topic: str) -> None:
    for _ in range(10):
        cluster.produce({(topic, 0): batches.batch([b"x" * 1000] * 10)})
    assert followed(cluster, topic, 0, 100) == list(range(100))
    assert followed(cluster, topic, 15, 78, max_bytes=25_000) == list(range(15, 78))
    assert followed(cluster, topic, 40, 40) == []
    half_read = cluster.follow(topic, 0, 0, 100, max_bytes=1000)
    next(half_read)
    cluster.produce({(topic, 0): batches.batch([b"y"])})
    assert followed(cluster, topic, 0, 101) == list(range(101))
    half_read.close()
    assert followed(cluster, topic, 0, 101) == list(range(101))


def test_a_range_with_a_marker_at_its_end(cluster: Cluster, topic: str) -> None:
    name = f"txn-{uuid4().hex[:8]}"
    producer = cluster.init_producer_id(name)
    cluster.produce({(topic, 0): transactional(producer, b"a")}, transactional_id=name)
    cluster.end_txn(name, producer, committed=True)
    end = cluster.list_offsets([(topic, 0)], isolation=READ_COMMITTED)[topic, 0].offset
    assert end == 2
    assert followed(cluster, topic, 0, end, isolation=READ_COMMITTED)[0] == 0


def test_a_range_that_is_not_there(broker: Subject, topic: str) -> None:
    with Cluster(broker.bootstrap, timeouts=Timeouts(patience_s=0.2)) as cluster:
        cluster.produce({(topic, 0): batches.batch([b"a"] * 10)})
        with pytest.raises(OffsetGone, match=f"{topic}-0 ends at offset 10, before the offset 12"):
            followed(cluster, topic, 0, 12)
        cluster.delete_records({(topic, 0): 5})
        with pytest.raises(OffsetGone, match="from offset 2 failed"):
            followed(cluster, topic, 2, 8)


def test_an_open_transaction_is_taken_over(cluster: Cluster, topic: str) -> None:
    name = f"txn-{uuid4().hex[:8]}"
    began = cluster.init_producer_id(name, two_phase=True)
    cluster.produce({(topic, 0): transactional(began, b"kept")}, transactional_id=name)
    try:
        resumed = cluster.resume_txn(name)
    except Unsupported:
        pytest.skip("the broker has no two-phase commit")
    assert resumed.ongoing == began
    with pytest.raises(ProducerFenced):
        cluster.end_txn(name, began, committed=True)
    cluster.end_txn(name, resumed.producer, committed=True)
    assert committed_values(cluster, topic) == [b"kept"]


def test_a_fork_makes_connections_of_its_own(cluster: Cluster, topic: str) -> None:
    cluster.produce({(topic, 0): batches.batch([b"a"])})
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if batches.values(bytes(cluster.fetch(topic, 0, 0).records)) == [b"a"] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cluster.produce({(topic, 0): batches.batch([b"b"])}) == {(topic, 0): 1}


def test_a_restart_of_the_broker_is_waited_out(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker()
    with Cluster(broker.bootstrap, timeouts=PATIENT) as cluster:
        cluster.create_topic("t", partitions=1)
        cluster.produce({("t", 0): batches.batch([b"a"])})
        broker.terminate()
        broker.start()
        cluster.produce({("t", 0): batches.batch([b"b"])})
        assert cluster.list_offsets([("t", 0)])["t", 0].offset == 2


def test_partitions_are_remembered_for_one_transaction() -> None:
    transactions = Transactions()
    producer = ProducerIdAndEpoch(1, 0)
    transactions.added("a", producer).add(("t", 0))
    transactions.added("b", producer).add(("t", 1))
    transactions.forget("a")
    assert transactions.added("a", producer) == set()
    assert transactions.added("b", producer) == {("t", 1)}


def test_transactions_can_be_looked_at_and_taken_over(cluster: Cluster, topic: str) -> None:
    name = f"looked-at-{uuid4().hex[:8]}"
    assert cluster.describe_transaction(name) is None
    producer = cluster.init_producer_id(name)
    idle = cluster.describe_transaction(name)
    assert idle is not None
    assert (idle.state, idle.producer, idle.started_ms) == ("Empty", producer, -1)
    cluster.produce({(topic, 0): transactional(producer, b"v")}, transactional_id=name)
    assert name in cluster.list_transactions(["Ongoing"])
    if not IS_HEADRACE:
        return
    resumed = cluster.resume_txn(name, claimed=producer)
    assert resumed.ongoing == producer
    assert cluster.resume_txn(name, claimed=producer) == resumed, "the answer may be lost and asked for again"
    with pytest.raises(ProducerFenced):
        cluster.init_producer_id(name, claimed=producer)
    cluster.end_txn(name, resumed.producer, committed=True)
    assert name not in cluster.list_transactions(["Ongoing"])
    assert name in cluster.list_transactions()
