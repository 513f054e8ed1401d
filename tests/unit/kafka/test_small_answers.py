"""FindCoordinator, InitProducerId and DescribeLogDirs, in every version."""

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.model.ids import TopicName
from headrace.protocol.codec import make

from .harness import CLIENT_SEES, Harness, hosted

FIND_COORDINATOR, INIT_PRODUCER_ID, DESCRIBE_LOG_DIRS = 10, 22, 35


def find(harness: Harness, version: int, key_type: int, *keys: str) -> Any:
    def build(schema: Any) -> Any:
        return make(schema.FindCoordinatorRequest, key=keys[0], coordinator_keys=keys, key_type=key_type)

    return harness.call(FIND_COORDINATOR, version, build)


@pytest.mark.parametrize("version", range(7))
def test_this_broker_coordinates_groups(harness: Harness, version: int) -> None:
    answer = find(harness, version, 0, "g1", "g2")
    results = answer.coordinators if version >= 4 else [answer]
    assert len(results) == (2 if version >= 4 else 1)
    for result in results:
        assert result.error_code is ErrorCode.none
        assert (result.node_id, result.host, result.port) == (0, CLIENT_SEES.host, CLIENT_SEES.port)
    if version >= 4:
        assert [result.key for result in results] == ["g1", "g2"]
    assert len(harness.metadata.image.topics[TopicName("__consumer_offsets")].partitions) == 50


@pytest.mark.parametrize("version", range(1, 7))
def test_this_broker_coordinates_transactions(harness: Harness, version: int) -> None:
    answer = find(harness, version, 1, "t1")
    result = answer.coordinators[0] if version >= 4 else answer
    assert result.error_code is ErrorCode.none
    assert (result.node_id, result.host, result.port) == (0, CLIENT_SEES.host, CLIENT_SEES.port)
    assert len(harness.metadata.image.topics[TopicName("__transaction_state")].partitions) == 50


@pytest.mark.parametrize(
    ("version", "key_type", "error"),
    [
        (1, 1, ErrorCode.none),
        (1, 2, ErrorCode.invalid_request),
        (5, 2, ErrorCode.invalid_request),
        (6, 2, ErrorCode.coordinator_not_available),
        (6, 3, ErrorCode.invalid_request),
        (6, -1, ErrorCode.invalid_request),
    ],
)
def test_kinds_of_coordinators(harness: Harness, version: int, key_type: int, error: ErrorCode) -> None:
    answer = find(harness, version, key_type, "k")
    assert (answer.coordinators[0] if version >= 4 else answer).error_code is error


def init(harness: Harness, version: int, transactional_id: str | None = None, **fields: Any) -> Any:
    def build(schema: Any) -> Any:
        return make(
            schema.InitProducerIdRequest,
            transactional_id=transactional_id,
            transaction_timeout=timedelta(minutes=1),
            **fields,
        )

    return harness.call(INIT_PRODUCER_ID, version, build)


@pytest.mark.parametrize("version", range(7))
def test_each_producer_gets_an_id_of_its_own(harness: Harness, version: int) -> None:
    first, second = init(harness, version), init(harness, version)
    assert (first.error_code, first.producer_epoch) == (ErrorCode.none, 0)
    assert first.producer_id != second.producer_id
    refused = init(harness, version, "txn")
    assert (refused.error_code, refused.producer_id) == (ErrorCode.coordinator_not_available, -1)
    assert init(harness, version, "").error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("version", range(3, 7))
def test_a_producer_that_names_its_id_gets_a_new_one(harness: Harness, version: int) -> None:
    first = init(harness, version)
    second = init(harness, version, producer_id=first.producer_id, producer_epoch=0)
    assert (second.error_code, second.producer_epoch) == (ErrorCode.none, 0)
    assert second.producer_id != first.producer_id
    assert init(harness, version, producer_id=4).error_code is ErrorCode.invalid_request
    assert init(harness, version, producer_epoch=4).error_code is ErrorCode.invalid_request


def log_dirs(harness: Harness, version: int, topics: dict[str, tuple[int, ...]] | None) -> Any:
    def build(schema: Any) -> Any:
        return schema.DescribeLogDirsRequest(
            topics=None
            if topics is None
            else tuple(
                schema.DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()
            )
        )

    return harness.call(DESCRIBE_LOG_DIRS, version, build)


def sizes(answer: Any) -> dict[tuple[str, int], int]:
    (result,) = answer.results
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_sizes_of_partitions_and_of_the_volume(harness: Harness, tmp_path: Path, version: int) -> None:
    for partition in (hosted("a", 0, 10), hosted("a", 1, 20), hosted("b", 0, 30)):
        harness.services.partitions.add(partition)
    everything = log_dirs(harness, version, None)
    assert sizes(everything) == {("a", 0): 10, ("a", 1): 20, ("b", 0): 30}
    some = log_dirs(harness, version, {"a": (1, 1, 7), "none": (0,)})
    assert sizes(some) == {("a", 1): 20}
    (result,) = everything.results
    assert (result.error_code, result.log_dir) == (ErrorCode.none, str(tmp_path))
    if version >= 4:
        assert result.total_bytes == shutil.disk_usage(tmp_path).total
        assert 0 < result.usable_bytes <= result.total_bytes


def test_a_directory_that_cannot_be_asked(harness: Harness, tmp_path: Path) -> None:
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    (result,) = log_dirs(harness, 5, None).results
    assert (result.error_code, result.total_bytes) == (ErrorCode.kafka_storage_error, -1)
