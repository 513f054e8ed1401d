"""Streams groups (KIP-1071) for tools: describes their members and the partitions of each."""

from types import ModuleType
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.protocol.codec import make
from headrace.wire.errors import Refused, Unsupported, check
from headrace.wire.router import GROUP, LeaderRouter, Partition

_DESCRIBE = 89


class StreamsMemberInfo(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[Partition, ...]
    """The partitions that its active tasks read."""
    standby_tasks: int


class StreamsGroupInfo(NamedTuple):
    group: str
    state: str
    members: tuple[StreamsMemberInfo, ...]


def describe_streams_group(router: LeaderRouter, group: str) -> StreamsGroupInfo | None:
    """The members of a streams group; None if it does not exist."""

    def build(schema: ModuleType) -> Any:
        return make(schema.StreamsGroupDescribeRequest, group_ids=(group,), include_authorized_operations=False)

    def attempt() -> StreamsGroupInfo:
        (described,) = router.coordinated(GROUP, group, _DESCRIBE, 0, build).groups
        if described.error_code is not ErrorCode.none:
            router.forget_coordinator(GROUP, group)
        check(f"describing the streams group {group}", described.error_code, described.error_message)
        reads = _reads(described.topology)
        return StreamsGroupInfo(
            group, described.group_state, tuple(_member(member, reads) for member in described.members)
        )

    try:
        return router.patiently(attempt)
    except Unsupported:
        return None
    except Refused as error:
        if error.code in (ErrorCode.group_id_not_found, ErrorCode.unsupported_version):
            return None
        raise


def _reads(topology: Any) -> dict[str, tuple[str, ...]]:
    """The topics that each subtopology reads; nothing while topics are missing."""
    if topology is None or topology.subtopologies is None:
        return {}
    return {
        one.subtopology_id: (*one.source_topics, *(topic.name for topic in one.repartition_source_topics))
        for one in topology.subtopologies
    }


def _member(member: Any, reads: dict[str, tuple[str, ...]]) -> StreamsMemberInfo:
    partitions = tuple(
        (topic, index)
        for tasks in member.assignment.active_tasks
        for topic in reads.get(tasks.subtopology_id, ())
        for index in tasks.partitions
    )
    standbys = sum(len(tasks.partitions) for tasks in member.assignment.standby_tasks)
    return StreamsMemberInfo(
        member.member_id, member.instance_id, member.client_id, member.client_host, partitions, standbys
    )
