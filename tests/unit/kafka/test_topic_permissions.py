"""What a client sees of topics that it may not use, and when a revoked permission counts."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from headrace.config.broker import broker_settings
from headrace.kafka import permissions as p
from headrace.kafka.authorized_operations import NOT_ASKED
from headrace.kafka.dispatch import Context
from headrace.kafka.handlers.fetch import fetch
from headrace.model.acls import Acl, AclOperation, Permission
from headrace.model.errors import ProtocolError
from headrace.model.image import SecurityImage
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.runtime.deferred import Deferred
from headrace.transactions.add_partitions import PartitionAdder
from tests.entities import build

from .secured import TOPIC, Secured, allow, secured_broker

DENIED = ErrorCode.topic_authorization_failed
UNKNOWN_ID = UUID(int=12345)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Secured]:
    with secured_broker(tmp_path) as scene:
        yield scene


# -- Produce


def produce(
    scene: Secured, version: int, *topics: str | UUID, transactional_id: str | None = None, acks: int = 1
) -> Any:
    data = [
        {
            "name": topic,
            "topic_id": topic,
            "partition_data": [{"index": 0, "records": scene.batch()}],
        }
        for topic in topics
    ]
    answer = scene.call(0, version, acks=acks, timeout=1000, transactional_id=transactional_id, topic_data=data)
    return [part for topic in answer.responses for part in topic.partition_responses]


def test_a_denied_topic_does_not_hold_up_the_others_of_a_request(scene: Secured) -> None:
    other = scene.host("bills", scene.harness.create("bills"))
    scene.permit(allow(p.WRITE_TOPIC))
    denied, written, missing = produce(scene, 12, "bills", TOPIC, "none")
    assert [part.error_code for part in (denied, written, missing)] == [DENIED, ErrorCode.none, DENIED]
    assert (other.log.end_offset, scene.partition.log.end_offset) == (1, 2)


def test_a_topic_id_that_is_denied_is_answered_without_the_name(scene: Secured) -> None:
    denied, unknown = produce(scene, 13, scene.topic_id, UNKNOWN_ID)
    assert (denied.error_code, unknown.error_code) == (DENIED, ErrorCode.unknown_topic_id)
    assert TOPIC not in denied.error_message


def test_a_denied_batch_joins_no_transaction(scene: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[Any] = []

    async def join(*args: Any, **_: Any) -> dict[Any, Any]:
        joined.append(args[1:])
        return {}

    batch = build_batch(
        [Record(0, scene.clock.wall_ms(), None, b"paid")],
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    monkeypatch.setattr(PartitionAdder, "join", join)
    monkeypatch.setattr(Secured, "batch", lambda _: batch)
    for missing, granted in (
        (ErrorCode.transactional_id_authorization_failed, ()),
        (ErrorCode.transactional_id_authorization_failed, (allow(p.WRITE_TOPIC),)),
        (DENIED, (allow(p.WRITE_TRANSACTIONAL_ID),)),
    ):
        scene.permit(*granted)
        (part,) = produce(scene, 12, TOPIC, transactional_id="payments")
        assert part.error_code is missing
    assert joined == []
    scene.permit(allow(p.WRITE_TRANSACTIONAL_ID), allow(p.WRITE_TOPIC))
    produce(scene, 12, TOPIC, transactional_id="payments")
    assert joined == [("payments", (5, 0), [(TOPIC, 0)])]


def test_a_denied_producer_without_acks_loses_its_connection(scene: Secured) -> None:
    with pytest.raises(ProtocolError, match="WRITE on the topic orders"):
        produce(scene, 12, TOPIC, acks=0)


# -- Fetch


def fetch_fields(scene: Secured, version: int, **session: int) -> dict[str, Any]:
    partition = {"partition": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1, "last_fetched_epoch": -1}
    return {
        "replica_id": -1,
        "replica_state": {"replica_id": -1, "replica_epoch": -1},
        "max_bytes": 1000,
        "topics": [{"topic": TOPIC, "topic_id": scene.topic_id, "partitions": [partition]}],
        "session_epoch": -1,
        **session,
    }


@pytest.mark.parametrize("version", [11, 17])
def test_a_session_stops_when_its_permission_is_revoked_and_goes_on_when_it_is_back(
    scene: Secured, version: int
) -> None:
    scene.permit(allow(p.READ_TOPIC))
    begun = scene.call(1, version, **fetch_fields(scene, version, session_epoch=0))
    assert begun.responses[0].partitions[0].records

    def go_on(epoch: int) -> Any:
        return scene.call(
            1,
            version,
            **fetch_fields(scene, version, session_id=begun.session_id, session_epoch=epoch) | {"topics": []},
        )

    assert go_on(1).responses[0].partitions[0].records
    scene.permit()
    for epoch in (2, 3):
        (partition,) = go_on(epoch).responses[0].partitions
        assert partition.error_code is DENIED
        assert not partition.records
        assert (partition.high_watermark, partition.log_start_offset) == (-1, -1)
    scene.permit(allow(p.READ_TOPIC))
    assert go_on(4).responses[0].partitions[0].records


@pytest.mark.parametrize("is_revoked", [False, True])
def test_a_fetch_that_waits_does_not_deliver_what_was_revoked_meanwhile(scene: Secured, is_revoked: bool) -> None:
    scene.permit(allow(p.READ_TOPIC))
    fields = fetch_fields(scene, 11) | {"min_bytes": 1_000_000, "max_bytes": 2_000_000, "max_wait": 60_000}
    header, request = scene.harness.received(1, 11, lambda _: build(load_request_schema(1, 11), fields))

    async def run() -> bytes:
        waiting = fetch(Context(header, scene.harness.peer, scene.services), request)
        assert isinstance(waiting, Deferred)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting.then(answered.set_result)
        if is_revoked:
            scene.permit()
        waiting.hurry()
        return b"".join((await answered).buffers)

    assert (b"value" in scene.harness.run(run())) is not is_revoked


def test_an_unknown_topic_id_is_no_denial(scene: Secured) -> None:
    fields = fetch_fields(scene, 17)
    fields["topics"][0]["topic_id"] = UNKNOWN_ID
    answer = scene.call(1, 17, **fields)
    assert answer.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_id
    assert scene.denials == []


def test_a_partition_of_a_topic_that_was_just_deleted_is_not_delivered_by_its_id(scene: Secured) -> None:
    """The image no longer has the topic's name, so its permissions cannot be checked; the log is still there."""
    scene.permit(allow(p.READ_TOPIC), allow(p.WRITE_TOPIC))
    scene.harness.run(scene.harness.metadata.delete_topic(TOPIC))
    (partition,) = scene.call(1, 17, **fetch_fields(scene, 17)).responses[0].partitions
    assert partition.error_code is ErrorCode.unknown_topic_id
    (written,) = produce(scene, 13, scene.topic_id)
    assert written.error_code is ErrorCode.unknown_topic_id


def test_a_revoked_fetch_is_told_to_the_audit_log_once(scene: Secured) -> None:
    scene.call(1, 17, **fetch_fields(scene, 17))
    (denial,) = scene.denials
    assert (denial.action, denial.subject.principal, str(denial.resource)) == ("Fetch", "User:alice", "topic orders")
    assert (denial.operation, denial.client_id) == (AclOperation.READ, "test")


# -- Metadata


def topics(scene: Secured, version: int, wanted: Any, **fields: Any) -> list[tuple[Any, ...]]:
    answer = scene.call(3, version, topics=wanted, **fields)
    return [(topic.error_code, topic.name, getattr(topic, "topic_id", None)) for topic in answer.topics]


@pytest.mark.parametrize("version", range(14))
def test_a_denied_topic_looks_the_same_whether_it_exists_or_not(scene: Secured, version: int) -> None:
    for creates in (False, True):
        named = topics(scene, version, [{"name": TOPIC}, {"name": "none"}], allow_auto_topic_creation=creates)
        assert named == [(DENIED, TOPIC, None), (DENIED, "none", None)]
    assert topics(scene, version, None if version else []) == []
    assert "none" not in scene.harness.metadata.image.topics


@pytest.mark.parametrize("version", [12, 13])
def test_a_denied_topic_id_is_answered_without_its_name(scene: Secured, version: int) -> None:
    wanted = [{"name": None, "topic_id": topic_id} for topic_id in (scene.topic_id, UNKNOWN_ID)]
    assert topics(scene, version, wanted) == [
        (DENIED, None, scene.topic_id),
        (ErrorCode.unknown_topic_id, None, UNKNOWN_ID),
    ]


def test_all_topics_are_those_that_a_client_may_describe(scene: Secured) -> None:
    scene.harness.create("bills")
    scene.permit(allow(p.READ_TOPIC))  # READ implies DESCRIBE.
    assert topics(scene, 12, None) == [(ErrorCode.none, TOPIC, scene.topic_id)]
    assert scene.denials == []
    described = scene.call(75, 0, topics=[], cursor=None, response_partition_limit=10)
    assert [topic.name for topic in described.topics] == [TOPIC]


def test_the_pages_of_topics_leave_out_what_is_denied(scene: Secured) -> None:
    for name in ("a", "z"):
        scene.harness.create(name)
    scene.permit(*(allow(p.DESCRIBE_TOPIC, name) for name in ("a", "z")))
    wanted = [{"name": name} for name in ("none", "a", TOPIC, "z")]
    page = scene.call(75, 0, topics=wanted, cursor=None, response_partition_limit=1)
    assert [(topic.name, topic.error_code) for topic in page.topics] == [
        ("a", ErrorCode.none),
        ("none", DENIED),
        (TOPIC, DENIED),
    ]
    assert page.next_cursor.topic_name == "z"


def test_what_a_client_may_create_is_created(scene: Secured) -> None:
    scene.permit(*(allow(p.DESCRIBE_TOPIC, name) for name in "ab"), allow(p.CREATE_TOPIC, "a"))
    created, denied = topics(scene, 12, [{"name": "a"}, {"name": "b"}], allow_auto_topic_creation=True)
    assert (created[0], denied) == (ErrorCode.none, (DENIED, "b", None))
    assert "b" not in scene.harness.metadata.image.topics


def bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


def test_authorized_operations_are_those_of_the_acls(scene: Secured) -> None:
    deny = replace(allow(p.ALTER_TOPIC), permission=Permission.DENY)
    everything = replace(allow(p.READ_TOPIC), operation=AclOperation.ALL)
    scene.permit(allow(p.READ_TOPIC), allow(p.ALTER_TOPIC_CONFIGS))
    assert _operations(scene) == bits(
        AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS
    )
    scene.permit(everything, deny)
    assert _operations(scene) == bits(
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.ALTER_CONFIGS,
        AclOperation.DESCRIBE_CONFIGS,
    )
    assert _operations(scene, asked=False) == NOT_ASKED
    scene.services.security.update(SecurityImage(), broker_settings({}))
    assert _operations(scene) == bits(*AclOperation) - bits(
        AclOperation.ALL,
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.CREATE_TOKENS,
        AclOperation.DESCRIBE_TOKENS,
        AclOperation.TWO_PHASE_COMMIT,
    )


def _operations(scene: Secured, *, asked: bool = True) -> int:
    (topic,) = scene.call(3, 12, topics=[{"name": TOPIC}], include_topic_authorized_operations=asked).topics
    return int(topic.topic_authorized_operations)


def test_operations_on_the_cluster_need_its_description(scene: Secured) -> None:
    def shown(key: int, version: int) -> int:
        answer = scene.call(key, version, topics=[], endpoint_type=1, include_cluster_authorized_operations=True)
        return int(answer.cluster_authorized_operations)

    scene.permit(allow(p.CREATE_CLUSTER))
    assert (shown(3, 10), shown(60, 1)) == (0, 0)
    scene.permit(allow(p.CREATE_CLUSTER), allow(p.DESCRIBE_CLUSTER))
    assert shown(3, 10) == shown(60, 1) == bits(AclOperation.CREATE, AclOperation.DESCRIBE)


# -- Administration


def test_settings_of_a_new_topic_are_shown_to_those_who_may_see_them(scene: Secured) -> None:
    def created(name: str) -> Any:
        topic = {"name": name, "num_partitions": 2, "replication_factor": 1}
        (result,) = scene.call(19, 7, topics=[topic]).topics
        assert result.error_code is ErrorCode.none
        return result

    scene.permit(allow(p.CREATE_CLUSTER), allow(p.DESCRIBE_TOPIC_CONFIGS, "open"))
    shown, hidden = created("open"), created("closed")
    assert (shown.num_partitions, shown.topic_config_error_code) == (2, 0)
    assert shown.configs
    assert (hidden.num_partitions, hidden.topic_config_error_code) == (-1, DENIED.value)
    assert not hidden.configs
    assert hidden.topic_id is not None


def deleted(scene: Secured, *wanted: dict[str, Any]) -> list[tuple[Any, ...]]:
    answer = scene.call(20, 6, topics=wanted)
    return [(one.error_code, one.name, one.topic_id) for one in answer.responses]


def test_a_topic_that_may_not_be_deleted_shows_only_what_may_be_seen(scene: Secured) -> None:
    by_id, unknown_id = {"name": None, "topic_id": scene.topic_id}, {"name": None, "topic_id": UNKNOWN_ID}
    unknown = (ErrorCode.unknown_topic_id, None, UNKNOWN_ID)
    assert deleted(scene, {"name": TOPIC}, {"name": "none"}, unknown_id) == [
        (DENIED, TOPIC, None),
        (DENIED, "none", None),
        unknown,
    ]
    assert deleted(scene, by_id) == [(DENIED, None, scene.topic_id)]
    # That the name and the id are of the same topic is not shown either.
    assert deleted(scene, by_id, {"name": TOPIC}) == [(DENIED, None, scene.topic_id), (DENIED, TOPIC, None)]
    scene.permit(allow(p.DESCRIBE_TOPIC), allow(p.DESCRIBE_TOPIC, "none"))
    assert deleted(scene, by_id, {"name": "none"}) == [
        (DENIED, TOPIC, scene.topic_id),
        (ErrorCode.unknown_topic_or_partition, "none", None),
    ]
    assert deleted(scene, {"name": TOPIC}) == [(DENIED, TOPIC, None)]
    assert TOPIC in scene.harness.metadata.image.topics


@pytest.mark.parametrize("key", [33, 44])
def test_access_settings_are_not_for_those_who_change_other_settings(scene: Secured, key: int) -> None:
    """Not even by leaving them out, where a request replaces all settings."""

    def alter(acls: tuple[Acl, ...], *configs: tuple[str, str | None, int]) -> ErrorCode:
        scene.permit(*acls)
        rows = [{"name": name, "value": value, "config_operation": how} for name, value, how in configs]
        resource = {"resource_type": 4, "resource_name": "", "configs": rows}
        (result,) = scene.call(key, 0 if key == 33 else 1, resources=[resource]).responses
        code: ErrorCode = result.error_code
        return code

    operator, admin = (allow(p.ALTER_CLUSTER_CONFIGS),), (allow(p.ALTER_CLUSTER_CONFIGS), allow(p.ALTER_CLUSTER))
    on, other = ("authorization.enable", "true", 0), ("auto.leader.rebalance.enable", "false", 0)
    assert alter(operator, on) is ErrorCode.cluster_authorization_failed
    assert alter(admin, on) is ErrorCode.none
    off = () if key == 33 else (("authorization.enable", None, 1),)
    assert alter(operator, *off) is ErrorCode.cluster_authorization_failed
    assert alter(operator, ("authorization.enable", "false", 0)) is ErrorCode.cluster_authorization_failed
    assert alter(operator, on, other) is ErrorCode.none
    assert alter(admin, *off) is ErrorCode.none


@pytest.mark.parametrize(
    ("kind", "name", "keys", "expected"),
    [
        (4, "0", ["http.listeners"], ErrorCode.none),
        (4, "0", ["http.listeners", "log.dirs"], ErrorCode.cluster_authorization_failed),
        (4, "0", ["log.dirs"], ErrorCode.cluster_authorization_failed),
        (4, "0", [], ErrorCode.cluster_authorization_failed),
        (4, "0", None, ErrorCode.cluster_authorization_failed),
        (4, "", ["http.listeners"], ErrorCode.cluster_authorization_failed),
        (8, "0", ["http.listeners"], ErrorCode.cluster_authorization_failed),
        (2, TOPIC, ["http.listeners"], DENIED),
    ],
)
def test_everyone_may_ask_a_broker_where_it_serves_queues_and_for_nothing_else(
    scene: Secured, kind: int, name: str, keys: list[str] | None, expected: ErrorCode
) -> None:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (result,) = scene.call(32, 4, resources=[resource]).results
    assert result.error_code is expected
    assert [entry.name for entry in result.configs] == (["http.listeners"] if expected is ErrorCode.none else [])


def test_security_that_is_off_asks_for_nothing(scene: Secured) -> None:
    scene.services.security.update(SecurityImage(), broker_settings({}))
    assert [part.error_code for part in produce(scene, 12, TOPIC)] == [ErrorCode.none]
    assert scene.call(1, 17, **fetch_fields(scene, 17)).responses[0].partitions[0].records
    assert scene.call(29, 3, resource_type_filter=1).error_code is ErrorCode.security_disabled
