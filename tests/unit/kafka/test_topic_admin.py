"""CreateTopics, DeleteTopics and CreatePartitions, in every version."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from headrace.config.kafka_only import RETIRED
from headrace.config.topic import TOPIC_SETTINGS
from headrace.kafka.dispatch import APIS
from headrace.model.ids import TopicName
from headrace.protocol.codec import make

from .harness import Harness, broker

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
MINUTE = timedelta(minutes=1)


def test_the_versions_that_are_served() -> None:
    ranges = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
    expected = {
        3: (0, 13), 10: (0, 6), 19: (2, 7), 20: (1, 6), 22: (0, 6), 32: (1, 4), 33: (0, 2), 35: (1, 5), 37: (0, 3),
        44: (0, 1), 60: (0, 2), 75: (0, 0),
    }  # fmt: skip
    assert {key: ranges[key] for key in expected} == expected


def topic(
    name: str,
    partitions: int = -1,
    replicas: int = -1,
    assignment: dict[int, tuple[int, ...]] | None = None,
    **settings: str | None,
) -> Any:
    def build(schema: Any) -> Any:
        return schema.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=tuple(
                schema.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in (assignment or {}).items()
            ),
            configs=tuple(
                schema.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()
            ),
        )

    return build


def create(harness: Harness, version: int, *topics: Any, validate_only: bool = False) -> Any:
    def build(schema: Any) -> Any:
        return make(
            schema.CreateTopicsRequest,
            topics=tuple(build_topic(schema) for build_topic in topics),
            timeout=MINUTE,
            validate_only=validate_only,
        )

    return harness.call(CREATE_TOPICS, version, build).topics


@pytest.mark.parametrize("version", range(2, 8))
def test_create_in_every_version(harness: Harness, version: int) -> None:
    created, defaulted, refused = create(
        harness, version, topic("a", 3, 1, retention_ms="60000"), topic("b"), topic("c", 2, 3)
    )
    assert (created.name, created.error_code, created.error_message) == ("a", ErrorCode.none, None)
    assert refused.error_code is ErrorCode.invalid_replication_factor
    assert "the cluster has 1 broker" in refused.error_message
    image = harness.metadata.image
    assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {"a": 3, "b": 4}
    assert image.topics[TopicName("a")].settings == {"retention.ms": "60000"}
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (3, 1)
        assert (defaulted.num_partitions, defaulted.replication_factor) == (4, 1)
        configs = {config.name: config for config in created.configs}
        assert set(configs) == set(TOPIC_SETTINGS) - RETIRED
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("60000", 1)
        assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("delete", 5)
    if version >= 7:
        assert created.topic_id == image.topics[TopicName("a")].topic_id
        assert refused.topic_id is None


def test_validate_only_creates_nothing(harness: Harness) -> None:
    good, bad = create(harness, 7, topic("a", 3), topic("a b"), validate_only=True)
    assert (good.error_code, good.num_partitions, good.topic_id) == (ErrorCode.none, 3, None)
    assert bad.error_code is ErrorCode.invalid_topic_exception
    assert harness.metadata.image.topics == {}


def test_manual_assignment(harness: Harness) -> None:
    good, both, unknown, gap = create(
        harness,
        7,
        topic("good", assignment={1: (0,), 0: (0,)}),
        topic("both", partitions=1, assignment={0: (0,)}),
        topic("unknown", assignment={0: (9,)}),
        topic("gap", assignment={1: (0,)}),
    )
    assert (good.error_code, good.num_partitions) == (ErrorCode.none, 2)
    assert both.error_code is ErrorCode.invalid_request
    assert unknown.error_code is ErrorCode.invalid_replica_assignment
    assert gap.error_code is ErrorCode.invalid_replica_assignment


def test_a_manual_assignment_that_names_a_partition_twice(harness: Harness) -> None:
    def build(schema: Any) -> Any:
        entry = schema.CreatableReplicaAssignment(partition_index=0, broker_ids=(0,))
        return schema.CreatableTopic(
            name="a", num_partitions=-1, replication_factor=-1, assignments=(entry, entry), configs=()
        )

    (result,) = create(harness, 7, build)
    assert result.error_code is ErrorCode.invalid_replica_assignment
    assert "more than once" in result.error_message


def test_a_name_that_appears_twice_is_refused_once(harness: Harness) -> None:
    twice, once = create(harness, 7, topic("twice"), topic("once"), topic("twice"))
    assert (twice.name, twice.error_code) == ("twice", ErrorCode.invalid_request)
    assert once.error_code is ErrorCode.none
    assert list(harness.metadata.image.topics) == ["once"]


@pytest.mark.parametrize(
    ("wanted", "error", "reason"),
    [
        (topic("there"), ErrorCode.topic_already_exists, "exists already"),
        (topic("the.re"), ErrorCode.none, None),
        (topic("x", 0), ErrorCode.invalid_partitions, "at least 1 partition"),
        (topic("x", -7), ErrorCode.invalid_partitions, "at least 1 partition"),
        (topic("x", 1, 0), ErrorCode.invalid_replication_factor, "not possible"),
        (topic("x", 2**31 - 1), ErrorCode.policy_violation, "max.partitions.per.topic"),
        (topic("x", retention_ms="soon"), ErrorCode.invalid_config, "is not a whole number"),
        (topic("x", retention_mss="1"), ErrorCode.invalid_config, "did you mean retention.ms?"),
        (topic("x", retention_ms=None), ErrorCode.invalid_config, "has no value"),
    ],
)
def test_reasons(harness: Harness, wanted: Any, error: ErrorCode, reason: str | None) -> None:
    harness.create("there")
    (result,) = create(harness, 7, wanted)
    assert result.error_code is error
    assert reason is None or reason in result.error_message


def delete(harness: Harness, version: int, *names: str | UUID | tuple[str, UUID]) -> Any:
    def entry(schema: Any, named: Any) -> Any:
        name, topic_id = named if isinstance(named, tuple) else (named, None)
        if isinstance(name, UUID):
            name, topic_id = None, name
        return schema.DeleteTopicState(name=name or None, topic_id=topic_id)

    def build(schema: Any) -> Any:
        if version >= 6:
            return schema.DeleteTopicsRequest(topics=tuple(entry(schema, named) for named in names), timeout=MINUTE)
        return make(schema.DeleteTopicsRequest, topic_names=names, timeout=MINUTE)

    return harness.call(DELETE_TOPICS, version, build).responses


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_by_name_in_every_version(harness: Harness, version: int) -> None:
    topic_id = harness.create("a")
    harness.create("b")
    deleted, unknown = delete(harness, version, "a", "none")
    assert (deleted.name, deleted.error_code) == ("a", ErrorCode.none)
    assert (unknown.name, unknown.error_code) == ("none", ErrorCode.unknown_topic_or_partition)
    assert list(harness.metadata.image.topics) == ["b"]
    assert list(harness.metadata.image.deleted) == [topic_id]
    if version >= 5:
        assert unknown.error_message == "the topic none does not exist"
    if version >= 6:
        assert deleted.topic_id == topic_id


def test_delete_by_id(harness: Harness) -> None:
    topic_id = harness.create("a")
    deleted, unknown = delete(harness, 6, topic_id, UUID(int=9))
    assert (deleted.name, deleted.topic_id, deleted.error_code) == ("a", topic_id, ErrorCode.none)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, UUID(int=9), ErrorCode.unknown_topic_id)
    assert harness.metadata.image.topics == {}


def test_ambiguous_deletions_are_refused(harness: Harness) -> None:
    topic_id = harness.create("a")
    results = delete(harness, 6, "a", topic_id, ("b", UUID(int=9)), "", "c", "c")
    assert [result.error_code for result in results] == [ErrorCode.invalid_request] * 5
    assert list(harness.metadata.image.topics) == ["a"]


@pytest.mark.parametrize(("version", "error"), [(2, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)])
def test_deletion_switched_off(tmp_path: Path, version: int, error: ErrorCode) -> None:
    with broker(tmp_path, delete_topic_enable="false") as harness:
        harness.create("a")
        assert delete(harness, version, "a")[0].error_code is error
        assert list(harness.metadata.image.topics) == ["a"]


def grow(harness: Harness, version: int, *wanted: tuple[str, int, Any], validate_only: bool = False) -> Any:
    def build(schema: Any) -> Any:
        return schema.CreatePartitionsRequest(
            topics=tuple(
                schema.CreatePartitionsTopic(
                    name=name,
                    count=count,
                    assignments=None
                    if assignment is None
                    else tuple(schema.CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignment),
                )
                for name, count, assignment in wanted
            ),
            timeout=MINUTE,
            validate_only=validate_only,
        )

    return harness.call(CREATE_PARTITIONS, version, build).results


@pytest.mark.parametrize("version", range(4))
def test_more_partitions_in_every_version(harness: Harness, version: int) -> None:
    for name in "abcd":
        harness.create(name, 2)
    results = grow(
        harness,
        version,
        ("a", 5, None),
        ("b", 3, [(0,)]),
        ("c", 2, None),
        ("d", 4, [(0,)]),
        ("none", 4, None),
        ("e", 1, None),
        ("e", 2, None),
    )
    assert [(result.name, result.error_code) for result in results] == [
        ("a", ErrorCode.none),
        ("b", ErrorCode.none),
        ("c", ErrorCode.invalid_partitions),
        ("d", ErrorCode.invalid_replica_assignment),
        ("none", ErrorCode.unknown_topic_or_partition),
        ("e", ErrorCode.invalid_request),
    ]
    assert results[2].error_message == "the topic c has 2 partitions already: 2 is not an increase"
    counts = {name: len(topic.partitions) for name, topic in harness.metadata.image.topics.items()}
    assert counts == {"a": 5, "b": 3, "c": 2, "d": 2}


def test_validating_an_increase(harness: Harness) -> None:
    harness.create("a", 2)
    assert grow(harness, 3, ("a", 5, None), validate_only=True)[0].error_code is ErrorCode.none
    assert len(harness.metadata.image.topics[TopicName("a")].partitions) == 2
