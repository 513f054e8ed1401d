"""Share groups (KIP-932) for tools: describes their members and offsets, and sets start offsets."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.protocol.codec import make
from headrace.protocol.group_offsets import alter_share_offsets
from headrace.wire.errors import Refused, Unsupported, check
from headrace.wire.router import GROUP, LeaderRouter, Partition

_DESCRIBE = 77
_DESCRIBE_OFFSETS, _ALTER_OFFSETS = 90, 91


class ShareMember(NamedTuple):
    member_id: str
    client_id: str
    host: str
    partitions: tuple[Partition, ...]


class ShareGroupOffset(NamedTuple):
    start_offset: int
    """Every record below it is done; -1 if the group has not started on this partition."""
    lag: int
    """How many records from the start offset on are not done; -1 if unknown."""


class ShareGroupInfo(NamedTuple):
    group: str
    state: str
    assignor: str
    members: tuple[ShareMember, ...]
    positions: dict[Partition, ShareGroupOffset]


def describe_share_group(router: LeaderRouter, group: str) -> ShareGroupInfo | None:
    """The members and offsets of a share group; None if it does not exist."""

    def build(schema: ModuleType) -> Any:
        return make(schema.ShareGroupDescribeRequest, group_ids=(group,), include_authorized_operations=False)

    def build_offsets(schema: ModuleType) -> Any:
        return make(
            schema.DescribeShareGroupOffsetsRequest,
            groups=(make(schema.DescribeShareGroupOffsetsRequestGroup, group_id=group, topics=None),),
        )

    def attempt() -> ShareGroupInfo:
        (described,) = router.coordinated(GROUP, group, _DESCRIBE, 1, build, lowest=1).groups
        _check(router, group, "describing", described.error_code, described.error_message)
        (offsets,) = router.coordinated(GROUP, group, _DESCRIBE_OFFSETS, 1, build_offsets).groups
        _check(router, group, "describing the offsets of", offsets.error_code, offsets.error_message)
        positions: dict[Partition, ShareGroupOffset] = {}
        for topic in offsets.topics:
            for part in topic.partitions:
                where = f"describing {topic.topic_name}-{part.partition_index} of"
                _check(router, group, where, part.error_code, part.error_message)
                lag = getattr(part, "lag", -1)
                positions[topic.topic_name, part.partition_index] = ShareGroupOffset(part.start_offset, lag)
        return ShareGroupInfo(
            group, described.group_state, described.assignor_name, tuple(map(_member, described.members)), positions
        )

    try:
        return router.patiently(attempt)
    except Unsupported:
        return None
    except Refused as error:
        if error.code is ErrorCode.group_id_not_found:
            return None
        raise


def _member(member: Any) -> ShareMember:
    partitions = tuple(
        (topic.topic_name, index) for topic in member.assignment.topic_partitions for index in topic.partitions
    )
    return ShareMember(member.member_id, member.client_id, member.client_host, partitions)


def set_share_offsets(router: LeaderRouter, group: str, offsets: Mapping[Partition, int]) -> None:
    """Set the start offsets of a share group without members."""

    def build(schema: ModuleType) -> Any:
        return alter_share_offsets(schema, group, offsets)

    def attempt() -> None:
        answer = router.coordinated(GROUP, group, _ALTER_OFFSETS, 0, build)
        _check(router, group, "setting the offsets of", answer.error_code, answer.error_message)
        for topic in answer.responses:
            for part in topic.partitions:
                where = f"setting the offset of {topic.topic_name}-{part.partition_index} of"
                _check(router, group, where, part.error_code, part.error_message)

    if offsets:
        router.patiently(attempt)


def _check(router: LeaderRouter, group: str, what: str, code: ErrorCode, message: str | None) -> None:
    if code is not ErrorCode.none:
        router.forget_coordinator(GROUP, group)
    check(f"{what} the share group {group}", code, message)
