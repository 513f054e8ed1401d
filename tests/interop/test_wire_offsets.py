"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, Metadata and DescribeTopicPartitions to the letter."""

import uuid
from collections.abc import Callable

import pytest

from . import batches, raw_client
from .batches import Record
from .subject import Subject

Error = raw_client.Error
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
FIRST_MS = batches.now_ms() - 500_000


@pytest.fixture
def log(connection: raw_client.Connection, topic: str) -> str:
    """Offsets 0 to 2 at +0, +5 and +1 s in one batch, 3 to 5 at +2, +3 and +4 s in the next."""
    for seconds in ((0, 5, 1), (2, 3, 4)):
        some = [Record(b"v", timestamp_ms=FIRST_MS + second * 1000) for second in seconds]
        assert raw_client.produce(connection, topic, batches.batch(some)).error_code == Error.none
    return topic


def test_the_ends(connection: raw_client.Connection, log: str) -> None:
    for version in range(1, 11):
        assert raw_client.offset_at(connection, log, EARLIEST, version=version).offset == 0
        assert raw_client.offset_at(connection, log, LATEST, version=version).offset == 6


def test_the_record_with_the_largest_time(connection: raw_client.Connection, log: str) -> None:
    found = raw_client.offset_at(connection, log, MAX_TIMESTAMP, version=7)
    assert (found.offset, found.timestamp) == (1, FIRST_MS + 5000)


def test_local_and_tiered(connection: raw_client.Connection, log: str) -> None:
    assert raw_client.offset_at(connection, log, EARLIEST_LOCAL, version=8).offset == 0
    found = raw_client.offset_at(connection, log, LATEST_TIERED, version=9)
    assert (found.error_code, found.offset) == (Error.none, -1)


def test_a_special_time_needs_a_version_that_knows_it(connection: raw_client.Connection, log: str) -> None:
    for timestamp, version in ((MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8)):
        assert raw_client.offset_at(connection, log, timestamp, version=version).error_code == Error.unsupported_version


@pytest.mark.parametrize(
    ("after_ms", "offset", "found_at_ms"),
    [(-1000, 0, 0), (0, 0, 0), (1, 1, 5000), (1000, 1, 5000), (4500, 1, 5000), (5000, 1, 5000), (5001, -1, None)],
)
def test_by_time_is_the_first_record_not_before_it(
    after_ms: int, offset: int, found_at_ms: int | None, connection: raw_client.Connection, log: str
) -> None:
    found = raw_client.offset_at(connection, log, FIRST_MS + after_ms)
    assert (found.error_code, found.offset) == (Error.none, offset)
    assert found.timestamp == (-1 if found_at_ms is None else FIRST_MS + found_at_ms)


@pytest.mark.parametrize("codec", range(5))
def test_by_time_looks_into_compressed_batches(codec: int, connection: raw_client.Connection, topic: str) -> None:
    some = [Record(b"v", timestamp_ms=FIRST_MS + at * 1000) for at in range(10)]
    assert raw_client.produce(connection, topic, batches.batch(some, codec=codec)).error_code == Error.none
    assert raw_client.offset_at(connection, topic, FIRST_MS + 6500).offset == 7


def test_an_empty_log(connection: raw_client.Connection, topic: str) -> None:
    assert raw_client.offset_at(connection, topic, EARLIEST).offset == 0
    assert raw_client.offset_at(connection, topic, LATEST).offset == 0
    for timestamp in (MAX_TIMESTAMP, FIRST_MS):
        found = raw_client.offset_at(connection, topic, timestamp)
        assert (found.error_code, found.offset, found.timestamp) == (Error.none, -1, -1)


def test_where_there_is_nothing(connection: raw_client.Connection, topic: str) -> None:
    assert raw_client.offset_at(connection, topic, LATEST, partition=5).error_code == Error.unknown_topic_or_partition
    assert (
        raw_client.offset_at(connection, "there-is-no-such-topic", LATEST).error_code
        == Error.unknown_topic_or_partition
    )


def test_list_offsets_compares_leader_epochs(connection: raw_client.Connection, log: str) -> None:
    epoch = raw_client.offset_at(connection, log, LATEST).leader_epoch
    assert raw_client.offset_at(connection, log, LATEST, current_leader_epoch=epoch).error_code == Error.none
    later = raw_client.offset_at(connection, log, LATEST, current_leader_epoch=epoch + 1)
    assert later.error_code == Error.unknown_leader_epoch


def end_of_epoch(
    connection: raw_client.Connection, topic: str, epoch: int, current: int = -1, partition: int = 0
) -> tuple[Error, int, int]:
    one = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
    answer = connection.call(
        raw_client.OFFSET_FOR_LEADER_EPOCH, 3, replica_id=-1, topics=[{"topic": topic, "partitions": [one]}]
    )
    found = answer.topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def test_the_end_of_a_leader_epoch(connection: raw_client.Connection, log: str) -> None:
    epoch = raw_client.offset_at(connection, log, LATEST).leader_epoch
    assert end_of_epoch(connection, log, epoch) == (Error.none, epoch, 6)
    assert end_of_epoch(connection, log, epoch + 5) == (Error.none, -1, -1)
    assert end_of_epoch(connection, log, epoch, current=epoch) == (Error.none, epoch, 6)
    assert end_of_epoch(connection, log, epoch, current=epoch + 1)[0] == Error.unknown_leader_epoch
    assert end_of_epoch(connection, log, epoch, partition=9)[0] == Error.unknown_topic_or_partition


def delete_to(connection: raw_client.Connection, topic: str, offset: int, partition: int = 0) -> tuple[Error, int]:
    one = {"partition_index": partition, "offset": offset}
    answer = connection.call(
        raw_client.DELETE_RECORDS, 2, topics=[{"name": topic, "partitions": [one]}], timeout=10_000
    )
    found = answer.topics[0].partitions[0]
    return found.error_code, found.low_watermark


def test_delete_records(connection: raw_client.Connection, log: str) -> None:
    assert delete_to(connection, log, 2) == (Error.none, 2)
    assert raw_client.offset_at(connection, log, EARLIEST).offset == 2
    assert raw_client.fetch(connection, log, 1).error_code == Error.offset_out_of_range
    found = raw_client.fetch(connection, log, 2)
    assert (found.error_code, found.log_start_offset) == (Error.none, 2)
    assert delete_to(connection, log, 1) == (Error.none, 2)
    assert delete_to(connection, log, 7)[0] == Error.offset_out_of_range
    assert delete_to(connection, log, -2)[0] == Error.offset_out_of_range
    assert delete_to(connection, log, 0, partition=4)[0] == Error.unknown_topic_or_partition
    assert delete_to(connection, log, -1) == (Error.none, 6)
    assert raw_client.produce(connection, log, batches.batch([b"next"])).base_offset == 6


def test_delete_records_right_after_acks_1(connection: raw_client.Connection, topic: str) -> None:
    for count in range(1, 6):
        assert raw_client.produce(connection, topic, batches.batch([b"x"]), acks=1).error_code == Error.none
        assert delete_to(connection, topic, count) == (Error.none, count)
    assert raw_client.produce(connection, topic, batches.batch([b"x"]), acks=1).error_code == Error.none
    assert delete_to(connection, topic, -1) == (Error.none, 6)


# Metadata


def test_metadata_of_everything_and_of_nothing(connection: raw_client.Connection, topic: str) -> None:
    assert topic in {one.name for one in connection.call(raw_client.METADATA, 0, topics=[]).topics}
    for version in (1, 8, 9, 12, 13):
        assert topic in {one.name for one in connection.call(raw_client.METADATA, version, topics=None).topics}, version
        answer = connection.call(raw_client.METADATA, version, topics=[])
        assert not answer.topics
        assert len(answer.brokers) == 1


def test_metadata_by_id(connection: raw_client.Connection, topic: str) -> None:
    topic_id = raw_client.wait_topic(connection, topic, 1)
    (found,) = connection.call(raw_client.METADATA, 12, topics=[{"topic_id": topic_id, "name": None}]).topics
    assert (found.error_code, found.name, found.topic_id) == (Error.none, topic, topic_id)
    (unknown,) = connection.call(raw_client.METADATA, 12, topics=[{"topic_id": uuid.uuid4(), "name": None}]).topics
    assert unknown.error_code == Error.unknown_topic_id


def test_metadata_says_where_the_broker_is(broker: Subject, connection: raw_client.Connection) -> None:
    answer = connection.call(raw_client.METADATA, 9, topics=[])
    (node,) = answer.brokers
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert answer.controller_id == node.node_id
    assert answer.cluster_id


@pytest.mark.parametrize("name", ["no/slash", "..", "x" * 250, ""])
def test_a_bad_name_is_not_created(name: str, connection: raw_client.Connection) -> None:
    (found,) = connection.call(raw_client.METADATA, 9, topics=[{"name": name}], allow_auto_topic_creation=True).topics
    assert found.error_code == Error.invalid_topic_exception


def test_describe_topic_partitions_page_by_page(
    broker: Subject, connection: raw_client.Connection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=5)
    raw_client.wait_topic(connection, topic, 5)
    seen: list[int] = []
    cursor: dict[str, object] | None = None
    for _ in range(3):
        answer = connection.call(
            raw_client.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": topic}], response_partition_limit=2, cursor=cursor
        )
        (found,) = answer.topics
        assert found.error_code == Error.none
        seen += [one.partition_index for one in found.partitions]
        if answer.next_cursor is None:
            break
        cursor = {"topic_name": answer.next_cursor.topic_name, "partition_index": answer.next_cursor.partition_index}
    assert seen == [0, 1, 2, 3, 4]
    assert answer.next_cursor is None


def test_describe_log_dirs_counts_bytes(connection: raw_client.Connection, log: str) -> None:
    answer = connection.call(raw_client.DESCRIBE_LOG_DIRS, 4, topics=[{"topic": log, "partitions": [0]}])
    (folder,) = answer.results
    assert folder.error_code == Error.none
    (found,) = folder.topics
    assert found.name == log
    stored = raw_client.fetch(connection, log).records
    assert found.partitions[0].partition_size == len(stored)
    assert folder.total_bytes > 0
