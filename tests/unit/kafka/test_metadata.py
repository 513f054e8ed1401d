import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from headrace.monitor import loop_slices
from headrace.protocol.codec import make

from .harness import CLIENT_SEES, Harness, broker

METADATA, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 3, 60, 75
NOT_ASKED = -(2**31)


def asking(*names: str | UUID, **fields: Any) -> Callable[[Any], Any]:
    def build(schema: Any) -> Any:
        topics: Any = tuple(
            make(
                schema.MetadataRequestTopic,
                name=None if isinstance(name, UUID) else name,
                topic_id=name if isinstance(name, UUID) else None,
            )
            for name in names
        )
        values = {
            "topics": topics,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
            "include_cluster_authorized_operations": False,
        }
        return make(schema.MetadataRequest, **{**values, **fields})

    return build


def ask(harness: Harness, version: int, *names: str | UUID, **fields: Any) -> Any:
    return harness.call(METADATA, version, asking(*names, **fields))


@pytest.mark.parametrize("version", range(14))
def test_a_topic_by_name_in_every_version(harness: Harness, version: int) -> None:
    topic_id = harness.create("orders", 3)
    answer = ask(harness, version, "orders", "none")
    (node,) = answer.brokers
    assert (node.node_id, node.host, node.port) == (0, CLIENT_SEES.host, CLIENT_SEES.port)
    orders, none = answer.topics
    assert (orders.name, orders.error_code) == ("orders", ErrorCode.none)
    assert [partition.partition_index for partition in orders.partitions] == [0, 1, 2]
    assert {(partition.leader_id, partition.replica_nodes, partition.isr_nodes) for partition in orders.partitions} == {
        (0, (0,), (0,))
    }
    if version < 4:  # Without the flag, the client allows creation.
        assert len(none.partitions) == 4
    else:
        assert (none.error_code, none.partitions) == (ErrorCode.unknown_topic_or_partition, ())
    if version >= 1:
        assert answer.controller_id == 0
        assert not orders.is_internal
    if version >= 2:
        assert answer.cluster_id == harness.metadata.image.cluster_id
        assert len(answer.cluster_id) == 22
    if version >= 7:
        assert orders.partitions[0].leader_epoch == 0
    if version >= 8:
        assert orders.topic_authorized_operations == NOT_ASKED
    if version >= 10:
        assert orders.topic_id == topic_id


@pytest.mark.parametrize("version", range(14))
def test_all_topics_and_no_topics(harness: Harness, version: int) -> None:
    harness.create("a")
    harness.create("b")
    everything = ask(harness, version) if version == 0 else ask(harness, version, topics=None)
    assert [topic.name for topic in everything.topics] == ["a", "b"]
    if version > 0:
        nothing = ask(harness, version)
        assert nothing.topics == ()
        assert len(nothing.brokers) == 1


@pytest.mark.parametrize("version", range(14))
def test_auto_creation_is_in_the_same_answer(harness: Harness, version: int) -> None:
    answer = ask(harness, version, "new", "new", "b@d", "__consumer_offsets", allow_auto_topic_creation=True)
    assert {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics} == {
        "new": (ErrorCode.none, 4),
        "b@d": (ErrorCode.invalid_topic_exception, 0),
        "__consumer_offsets": (ErrorCode.unknown_topic_or_partition, 0),
    }
    assert list(harness.metadata.image.topics) == ["new"]


def test_auto_creation_switched_off_or_impossible(tmp_path: Path) -> None:
    with broker(tmp_path, auto_create_topics_enable="false") as harness:
        (topic,) = ask(harness, 12, "new", allow_auto_topic_creation=True).topics
        assert topic.error_code is ErrorCode.unknown_topic_or_partition
    with broker(tmp_path, default_replication_factor="3") as harness:
        (topic,) = ask(harness, 12, "new", allow_auto_topic_creation=True).topics
        assert topic.error_code is ErrorCode.invalid_replication_factor


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(harness: Harness, version: int) -> None:
    topic_id = harness.create("a")
    unknown = UUID(int=5)
    found, lost = ask(harness, version, topic_id, unknown, allow_auto_topic_creation=True).topics
    assert (found.name, found.topic_id, found.error_code) == ("a", topic_id, ErrorCode.none)
    assert (lost.name, lost.topic_id, lost.error_code) == (None, unknown, ErrorCode.unknown_topic_id)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_before_version_12(harness: Harness, version: int) -> None:
    (topic,) = ask(harness, version, harness.create("a")).topics
    assert topic.error_code is ErrorCode.invalid_request


def test_authorized_operations_when_asked_for(harness: Harness) -> None:
    harness.create("a")
    answer = ask(harness, 9, "a", include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    # As Apache Kafka without an authorizer answers.
    assert answer.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert answer.cluster_authorized_operations == 0b1_1111_1010_0000
    assert ask(harness, 9, "a").cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(harness: Harness, version: int) -> None:
    def build(schema: Any) -> Any:
        return make(
            schema.DescribeClusterRequest,
            include_cluster_authorized_operations=True,
            endpoint_type=1,
            include_fenced_brokers=True,
        )

    answer = harness.call(DESCRIBE_CLUSTER, version, build)
    assert answer.error_code is ErrorCode.none
    assert answer.cluster_id == harness.metadata.image.cluster_id
    assert [(node.broker_id, node.host, node.port) for node in answer.brokers] == [(0, "192.168.1.5", 9092)]
    assert answer.cluster_authorized_operations == 0b1_1111_1010_0000


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, ErrorCode.mismatched_endpoint_type), (9, ErrorCode.unsupported_endpoint_type)],
)
def test_describe_cluster_knows_only_brokers(harness: Harness, endpoint_type: int, error: ErrorCode) -> None:
    def build(schema: Any) -> Any:
        return make(
            schema.DescribeClusterRequest,
            include_cluster_authorized_operations=False,
            endpoint_type=endpoint_type,
            include_fenced_brokers=False,
        )

    answer = harness.call(DESCRIBE_CLUSTER, 2, build)
    assert (answer.error_code, answer.brokers) == (error, ())


def pages(harness: Harness, limit: int, *names: str, cursor: tuple[str, int] | None = None) -> Any:
    def build(schema: Any) -> Any:
        return schema.DescribeTopicPartitionsRequest(
            topics=tuple(schema.TopicRequest(name=name) for name in names),
            response_partition_limit=limit,
            cursor=None if cursor is None else schema.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )

    return harness.call(DESCRIBE_TOPIC_PARTITIONS, 0, build)


def test_partitions_come_in_pages(harness: Harness) -> None:
    harness.create("b", 5)
    harness.create("a", 2)
    harness.create("c", 1)
    seen: list[tuple[str, int]] = []
    cursor, count = None, 0
    while count == 0 or cursor is not None:
        page = pages(harness, 3, cursor=cursor)
        got = [(topic.name, part.partition_index) for topic in page.topics for part in topic.partitions]
        assert 0 < len(got) <= 3
        seen += got
        cursor = None if page.next_cursor is None else (page.next_cursor.topic_name, page.next_cursor.partition_index)
        count += 1
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("b", 3), ("b", 4), ("c", 0)]
    assert count == 3


def test_pages_of_named_and_unknown_topics(harness: Harness) -> None:
    topic_id = harness.create("a", 2)
    answer = pages(harness, 100, "zzz", "a", "b@d")
    assert [(topic.name, topic.error_code, topic.topic_id) for topic in answer.topics] == [
        ("a", ErrorCode.none, topic_id),
        ("b@d", ErrorCode.invalid_topic_exception, None),
        ("zzz", ErrorCode.unknown_topic_or_partition, None),
    ]
    assert answer.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert answer.next_cursor is None


def test_a_cursor_at_a_topic_that_is_gone_goes_on(harness: Harness) -> None:
    harness.create("a")
    harness.create("c")
    assert [topic.name for topic in pages(harness, 10, cursor=("b", 3)).topics] == ["c"]


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0), ("z", 0)])
def test_a_cursor_that_cannot_be(harness: Harness, cursor: tuple[str, int]) -> None:
    harness.create("a")
    answer = pages(harness, 10, "a", "c", cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", ErrorCode.invalid_request),
        ("c", ErrorCode.invalid_request),
    ]


def test_a_limit_that_makes_no_sense_gives_one_partition(harness: Harness) -> None:
    harness.create("a", 3)
    page = pages(harness, -5)
    assert len(page.topics[0].partitions) == 1
    assert page.next_cursor.partition_index == 1


@pytest.mark.parametrize("names", [(), ("large", "small")])
def test_a_large_answer_leaves_turns_to_other_requests(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """Thousands of partitions in one turn of the event loop would hold up every other request."""
    monkeypatch.setattr(loop_slices, "SLICE_S", 0.0)
    harness.create("large", 600)
    harness.create("small", 2)
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(count)

    async def answered() -> Any:
        count()
        wanted = {"topics": None} if not names else {}
        return await harness.ask(*harness.received(METADATA, 12, asking(*names, **wanted)))

    answer = harness.run(answered())
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("large", 600), ("small", 2)]
    assert turns > len(answer.topics)
