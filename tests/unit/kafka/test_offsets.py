"""ListOffsets and OffsetForLeaderEpoch: which epoch an offset is of, also where there is no record yet."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i64

from headrace.model.ids import LeaderEpoch, TopicId
from headrace.protocol.codec import make
from headrace.replication.partition import Partition
from headrace.testing.logs import PARTITION, TOPIC_ID, LogBench

from .harness import Harness

LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 2, 23
LATEST, EARLIEST = -1, -2
LEADER_EPOCH = 3


@pytest.fixture
def bench(harness: Harness) -> LogBench:
    """A log that `harness` hosts as the leader of epoch 3."""
    bench = LogBench()
    epoch = LeaderEpoch(LEADER_EPOCH)
    harness.services.partitions.add(
        Partition(*PARTITION, TopicId(TOPIC_ID), bench.log, epoch, appended=lambda log: bench.flush())
    )
    return bench


def offsets(harness: Harness, *times: int) -> list[tuple[ErrorCode, int, int]]:
    """Error, offset and leader epoch for each time."""

    def build(schema: Any) -> Any:
        wanted: Any = tuple(
            make(schema.ListOffsetsPartition, partition_index=0, current_leader_epoch=-1, timestamp=i64(time))
            for time in times
        )
        topic: Any = make(schema.ListOffsetsTopic, name=PARTITION.topic, partitions=wanted)
        return make(schema.ListOffsetsRequest, replica_id=-1, isolation_level=0, topics=(topic,))

    (topic,) = harness.call(LIST_OFFSETS, 9, build).topics
    return [(found.error_code, found.offset, found.leader_epoch) for found in topic.partitions]


def end_of(harness: Harness, epoch: int) -> tuple[int, int]:
    def build(schema: Any) -> Any:
        wanted: Any = make(schema.OffsetForLeaderPartition, partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        topic: Any = make(schema.OffsetForLeaderTopic, topic=PARTITION.topic, partitions=(wanted,))
        return make(schema.OffsetForLeaderEpochRequest, replica_id=-1, topics=(topic,))

    (topic,) = harness.call(OFFSET_FOR_LEADER_EPOCH, 4, build).topics
    (found,) = topic.partitions
    assert found.error_code is ErrorCode.none
    return found.leader_epoch, found.end_offset


def test_an_empty_log_is_of_the_current_epoch(harness: Harness, bench: LogBench) -> None:
    assert offsets(harness, LATEST) == [(ErrorCode.none, 0, LEADER_EPOCH)]
    assert offsets(harness, EARLIEST) == [(ErrorCode.none, 0, LEADER_EPOCH)]
    assert end_of(harness, LEADER_EPOCH) == (LEADER_EPOCH, 0)
    assert end_of(harness, LEADER_EPOCH + 1) == (-1, -1)


def test_a_consumer_at_the_end_is_at_the_end_also_when_the_epoch_has_no_records(
    harness: Harness, bench: LogBench
) -> None:
    bench.append(b"a", b"b", epoch=1)
    bench.flush()
    assert offsets(harness, LATEST) == [(ErrorCode.none, 2, LEADER_EPOCH)]
    assert offsets(harness, EARLIEST) == [(ErrorCode.none, 0, 1)]
    assert end_of(harness, LEADER_EPOCH) == (LEADER_EPOCH, 2)
    assert end_of(harness, 1) == (1, 2)
    partition = harness.services.partitions.get(PARTITION.topic, PARTITION.partition)
    assert partition.diverges_at(LEADER_EPOCH, 2) is None
    assert partition.diverges_at(LEADER_EPOCH, 3) == (LEADER_EPOCH, 2)


def test_a_partition_named_twice_is_refused_once(harness: Harness, bench: LogBench) -> None:
    assert offsets(harness, LATEST, EARLIEST) == [(ErrorCode.invalid_request, -1, -1)]
