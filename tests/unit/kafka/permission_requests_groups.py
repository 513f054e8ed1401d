"""Requests about groups, offsets and transactions, with the permissions that each needs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.kafka import permissions as needs
from headrace.kafka.dispatch import APIS
from headrace.kafka.permissions import Need
from headrace.model.acls import CLUSTER_NAME, ResourceType

from .guarded_broker import ADMIN, GuardedBroker

TOPIC = "orders"
DENIALS = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


@dataclass(frozen=True)
class GuardedNames:
    """What a request is about: each has its own group and transactional id."""

    name: str
    topic_id: UUID

    def named(self, need: Need) -> str:
        names = {ResourceType.TOPIC: TOPIC, ResourceType.CLUSTER: CLUSTER_NAME}
        return names.get(need.kind, self.name)


Fields = Callable[[GuardedNames, int], Mapping[str, Any]]
"""The fields of a request of a version."""


@dataclass(frozen=True)
class GuardedRequest:
    key: int
    needs: tuple[Need, ...]
    """All of them."""
    fields: Fields
    since: int = 0
    until: int = 99
    prepare: Callable[[GuardedBroker, GuardedNames], None] = field(default=lambda _broker, _place: None)

    def versions(self) -> range:
        api = APIS[self.key]
        return range(max(self.since, api.min_version), min(self.until, api.max_version) + 1)


def codes(answer: Any) -> set[ErrorCode]:
    """All error codes of an answer."""
    return set(_codes(answer))


def _codes(value: Any) -> Iterator[ErrorCode]:
    if isinstance(value, ErrorCode):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _codes(each)
    elif is_dataclass(value):
        for each in fields(value):
            inner = getattr(value, each.name)
            if each.name == "acknowledge_error_code":
                yield ErrorCode(inner)
            else:
                yield from _codes(inner)


# -- preparations, by a super user


def offset_committed(broker: GuardedBroker, names: GuardedNames) -> None:
    answer = broker.call(ADMIN, 8, 9, **offset_commit(names, 9))
    assert codes(answer) == {ErrorCode.none}


def consumer_joined(broker: GuardedBroker, names: GuardedNames) -> None:
    assert codes(broker.call(ADMIN, 68, 1, **consumer_heartbeat(names, 1))) == {ErrorCode.none}


def share_joined(broker: GuardedBroker, names: GuardedNames) -> None:
    assert codes(broker.call(ADMIN, 76, 1, **share_heartbeat(names, 1))) == {ErrorCode.none}


def share_offsets_set(broker: GuardedBroker, names: GuardedNames) -> None:
    assert codes(broker.call(ADMIN, 91, 0, **alter_share_offsets(names, 0))) == {ErrorCode.none}


def share_session_begun(broker: GuardedBroker, names: GuardedNames) -> None:
    assert codes(broker.call(ADMIN, 78, 1, **share_fetch(names, 1))) <= {ErrorCode.none}


def streams_joined(broker: GuardedBroker, names: GuardedNames) -> None:
    assert codes(broker.call(ADMIN, 88, 0, **streams_heartbeat(names, 0))) == {ErrorCode.none}


# -- fields


def offset_commit(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    topic = {"name": TOPIC, "topic_id": names.topic_id, "partitions": [partition]}
    return {
        "group_id": names.name, "generation_id_or_member_epoch": -1, "member_id": "", "retention_time": -1,
        "topics": [topic],
    }  # fmt: skip


def offset_fetch(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    topics = [{"name": TOPIC, "topic_id": names.topic_id, "partition_indexes": [0]}]
    group = {"group_id": names.name, "member_id": None, "member_epoch": -1, "topics": topics}
    return {**group, "groups": [group], "require_stable": False}


def offset_delete(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    return {"group_id": names.name, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}


def coordinator(key_type: int) -> Fields:
    return lambda names, _version: {"key": names.name, "key_type": key_type, "coordinator_keys": [names.name]}


def share_coordinator(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    return {"key_type": 2, "coordinator_keys": [f"{names.name}:AAAAAAAAAAAAAAAAAAAAAQ:0"]}


def join(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    protocols = [{"name": "range", "metadata": b"\0\1\0\0\0\0\xff\xff\xff\xff"}]
    return {
        "group_id": names.name, "session_timeout": 10_000, "rebalance_timeout": 10_000, "member_id": "",
        "protocol_type": "consumer", "protocols": protocols,
    }  # fmt: skip


def member(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    return {
        "group_id": names.name, "generation_id": 1, "member_id": "m", "protocol_type": "consumer",
        "protocol_name": "range", "members": [{"member_id": "m"}],
    }  # fmt: skip


def named_groups(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    return {"groups": [names.name], "group_ids": [names.name], "groups_names": [names.name]}


def init_producer(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    return {
        "transactional_id": names.name, "transaction_timeout": 10_000, "producer_id": -1, "producer_epoch": -1,
    }  # fmt: skip


def init_idempotent(names: GuardedNames, version: int) -> Mapping[str, Any]:
    return {**init_producer(names, version), "transactional_id": None}


def init_two_phase(names: GuardedNames, version: int) -> Mapping[str, Any]:
    return {**init_producer(names, version), "enable2_pc": True}


def add_partitions(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    topics = [{"name": TOPIC, "partitions": [0]}]
    one = {"transactional_id": names.name, "producer_id": 1, "producer_epoch": 0, "topics": topics}
    return {**{f"v3_and_below_{name}": value for name, value in one.items()}, "transactions": [one]}


def in_transaction(names: GuardedNames, version: int) -> Mapping[str, Any]:
    ids = {"transactional_id": names.name, "producer_id": 1, "producer_epoch": 0, "committed": False}
    return {**offset_commit(names, version), "generation_id": -1, **ids}


def described_transactions(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    return {"transactional_ids": [names.name]}


def consumer_heartbeat(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    return {
        "group_id": names.name, "member_id": MEMBER, "member_epoch": 0, "rebalance_timeout": 10_000,
        "subscribed_topic_names": [TOPIC], "topic_partitions": [],
    }  # fmt: skip


def share_heartbeat(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    return {"group_id": names.name, "member_id": MEMBER, "member_epoch": 0, "subscribed_topic_names": [TOPIC]}


def share_fetch(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    partition = {"partition_index": 0, "acknowledgement_batches": []}
    return {
        "group_id": names.name, "member_id": MEMBER, "share_session_epoch": 0, "max_wait": 0, "min_bytes": 1,
        "max_bytes": 1 << 20, "max_records": 10, "batch_size": 10,
        "topics": [{"topic_id": names.topic_id, "partitions": [partition]}],
    }  # fmt: skip


def share_acknowledge(names: GuardedNames, version: int) -> Mapping[str, Any]:
    batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
    partition = {"partition_index": 0, "acknowledgement_batches": batches}
    topics = [{"topic_id": names.topic_id, "partitions": [partition]}]
    return {**share_fetch(names, version), "share_session_epoch": 1, "topics": topics}


def streams_heartbeat(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    changelog = {"name": f"{names.name}-changelog", "partitions": 0, "replication_factor": 0, "topic_configs": []}
    subtopology = {
        "subtopology_id": "0", "source_topics": [TOPIC], "source_topic_regex": [], "repartition_sink_topics": [],
        "repartition_source_topics": [], "state_changelog_topics": [changelog] if names.name.startswith("app") else [],
        "copartition_groups": [],
    }  # fmt: skip
    return {
        "group_id": names.name, "member_id": MEMBER, "member_epoch": 0, "rebalance_timeout": 10_000,
        "process_id": "p", "topology": {"epoch": 0, "subtopologies": [subtopology]},
        "active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "client_tags": [],
    }  # fmt: skip


def share_offsets(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    return {"groups": [{"group_id": names.name, "topics": [{"topic_name": TOPIC, "partitions": [0]}]}]}


def alter_share_offsets(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    partitions = [{"partition_index": 0, "start_offset": 0}]
    return {"group_id": names.name, "topics": [{"topic_name": TOPIC, "partitions": partitions}]}


def delete_share_offsets(names: GuardedNames, _version: int) -> Mapping[str, Any]:
    return {"group_id": names.name, "topics": [{"topic_name": TOPIC}]}


REQUESTS = (
    GuardedRequest(8, (needs.READ_GROUP, needs.READ_TOPIC), offset_commit),
    GuardedRequest(9, (needs.DESCRIBE_GROUP, needs.DESCRIBE_TOPIC), offset_fetch),
    GuardedRequest(10, (needs.DESCRIBE_GROUP,), coordinator(0)),
    GuardedRequest(10, (needs.DESCRIBE_TRANSACTIONAL_ID,), coordinator(1), since=1),
    GuardedRequest(10, (needs.CLUSTER_ACTION,), share_coordinator, since=6),
    GuardedRequest(11, (needs.READ_GROUP,), join),
    GuardedRequest(12, (needs.READ_GROUP,), member),
    GuardedRequest(13, (needs.READ_GROUP,), member),
    GuardedRequest(14, (needs.READ_GROUP,), member),
    GuardedRequest(15, (needs.DESCRIBE_GROUP,), named_groups),
    GuardedRequest(22, (needs.WRITE_TRANSACTIONAL_ID,), init_producer),
    GuardedRequest(22, (needs.IDEMPOTENT_WRITE,), init_idempotent),
    GuardedRequest(22, (needs.WRITE_TRANSACTIONAL_ID, needs.TWO_PHASE_COMMIT), init_two_phase, since=6),
    GuardedRequest(24, (needs.WRITE_TRANSACTIONAL_ID, needs.WRITE_TOPIC), add_partitions, until=3),
    GuardedRequest(24, (needs.CLUSTER_ACTION,), add_partitions, since=4),
    GuardedRequest(25, (needs.WRITE_TRANSACTIONAL_ID, needs.READ_GROUP), in_transaction),
    GuardedRequest(26, (needs.WRITE_TRANSACTIONAL_ID,), in_transaction),
    GuardedRequest(28, (needs.WRITE_TRANSACTIONAL_ID, needs.READ_GROUP, needs.READ_TOPIC), in_transaction),
    GuardedRequest(42, (needs.DELETE_GROUP,), named_groups),
    GuardedRequest(47, (needs.DELETE_GROUP, needs.READ_TOPIC), offset_delete, prepare=offset_committed),
    GuardedRequest(65, (needs.DESCRIBE_TRANSACTIONAL_ID,), described_transactions),
    GuardedRequest(68, (needs.READ_GROUP, needs.DESCRIBE_TOPIC), consumer_heartbeat),
    GuardedRequest(69, (needs.DESCRIBE_GROUP, needs.DESCRIBE_TOPIC), named_groups, prepare=consumer_joined),
    GuardedRequest(76, (needs.READ_GROUP, needs.DESCRIBE_TOPIC), share_heartbeat),
    GuardedRequest(77, (needs.DESCRIBE_GROUP, needs.DESCRIBE_TOPIC), named_groups, prepare=share_joined),
    GuardedRequest(78, (needs.READ_GROUP, needs.READ_TOPIC), share_fetch),
    GuardedRequest(79, (needs.READ_GROUP, needs.READ_TOPIC), share_acknowledge, prepare=share_session_begun),
    GuardedRequest(88, (needs.READ_GROUP, needs.DESCRIBE_TOPIC), streams_heartbeat),
    GuardedRequest(89, (needs.DESCRIBE_GROUP, needs.DESCRIBE_TOPIC), named_groups, prepare=streams_joined),
    GuardedRequest(90, (needs.DESCRIBE_GROUP, needs.DESCRIBE_TOPIC), share_offsets, prepare=share_offsets_set),
    GuardedRequest(91, (needs.READ_GROUP, needs.READ_TOPIC), alter_share_offsets),
    GuardedRequest(92, (needs.DELETE_GROUP, needs.READ_TOPIC), delete_share_offsets, prepare=share_offsets_set),
)

TESTED_ALONE: Mapping[int, tuple[Need, ...]] = {
    16: (needs.DESCRIBE_CLUSTER, needs.DESCRIBE_GROUP),
    22: (needs.WRITE_TOPIC,),
    65: (needs.DESCRIBE_TOPIC,),
    66: (needs.DESCRIBE_TRANSACTIONAL_ID,),
    88: (needs.CREATE_CLUSTER, needs.CREATE_TOPIC),
}
"""Permissions without which there is no error: alternatives, and those that decide how much an answer shows."""

APIS_OF_GROUPS = frozenset(request.key for request in REQUESTS) | TESTED_ALONE.keys()
"""The APIs about groups, offsets and transactions."""
