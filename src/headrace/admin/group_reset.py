"""Sets the offsets of a group that has no members: of some topics or partitions, or of all that it has.

The offsets are written by the group's coordinator, and checked against the first offset and the end of each partition
at its leader. A share group's start offsets are set instead.
"""

import re
from types import ModuleType
from typing import Annotated, Any

import msgspec
from kio.schema.errors import ErrorCode
from msgspec import Meta

from headrace.admin.errors import AdminError, check_kafka
from headrace.admin.kafka_requests import (
    EARLIEST,
    GROUP,
    LATEST,
    Partition,
    coordinated,
    list_offsets,
    patiently,
    topic_image,
)
from headrace.admin.messages import parse_time
from headrace.admin.routes import AdminRequest
from headrace.groups.offset_reset import Bounds, OffsetMove, ResetTarget, new_offset
from headrace.model.ids import by_topic
from headrace.monitor.snapshots import GroupDetail
from headrace.protocol.codec import make
from headrace.protocol.group_offsets import alter_share_offsets, offset_commit

MAX_PARTITIONS = 10_000
_OFFSET_COMMIT, _OFFSET_FETCH = 8, 9
_DESCRIBE_SHARE_OFFSETS, _ALTER_SHARE_OFFSETS = 90, 91
_SHARE = "share"


class ResetRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    to: Annotated[str, Meta(max_length=64, description="earliest, latest, offset:N, time:ISO 8601 or shift:±N.")]
    topics: Annotated[list[str], Meta(max_length=1_000)] | None = None
    """All partitions of these; without topics and partitions, all that the group has offsets of."""
    partitions: Annotated[list[tuple[str, int]], Meta(max_length=MAX_PARTITIONS)] | None = None
    dry_run: bool = False


async def reset(request: AdminRequest, group: GroupDetail, wanted: ResetRequest) -> list[OffsetMove]:
    """The changes, which are made unless it is a dry run. Refused if the group has members."""
    target = _target(wanted.to)
    partitions = _partitions(request, group, wanted)
    if not partitions:
        raise AdminError(409, "no_offsets", "the group has no offsets: say which topics to reset")
    name, is_share = group.stat.group, group.stat.kind == _SHARE
    before = await patiently(lambda: _committed(request, name, partitions, is_share=is_share))
    first = await list_offsets(request, dict.fromkeys(partitions, EARLIEST))
    end = await list_offsets(request, dict.fromkeys(partitions, LATEST))
    at_time = {}
    if target.to_time_ms is not None:
        at_time = await list_offsets(request, dict.fromkeys(partitions, target.to_time_ms))
    moves = []
    for each in partitions:
        found = at_time.get(each)
        time_offset = None if found is None or found.offset < 0 else found.offset
        bounds = Bounds(first[each].offset, end[each].offset, time_offset)
        moves.append(OffsetMove(*each, before.get(each), new_offset(target, bounds, before.get(each))))
    if not wanted.dry_run:
        if group.stat.members:
            raise AdminError(409, "non_empty_group", f"{name} has {group.stat.members} members: stop them first")
        await patiently(lambda: _write(request, name, moves, is_share=is_share))
    return moves


def _target(text: str) -> ResetTarget:
    if text == "earliest":
        return ResetTarget(to_earliest=True)
    if text == "latest":
        return ResetTarget(to_latest=True)
    if (offset := re.fullmatch(r"offset:(\d{1,18})", text)) is not None:
        return ResetTarget(to_offset=int(offset[1]))
    if (shift := re.fullmatch(r"shift:([+-]?\d{1,18})", text)) is not None:
        return ResetTarget(shift_by=int(shift[1]))
    time_ms = parse_time(text.removeprefix("time:")) if text.startswith("time:") else None
    if time_ms is None:
        raise AdminError(
            400, "invalid_request", "to is earliest, latest, offset:N, shift:-100 or time:2026-11-17T20:00:00Z"
        )
    return ResetTarget(to_time_ms=time_ms)


def _partitions(request: AdminRequest, group: GroupDetail, wanted: ResetRequest) -> list[Partition]:
    found: set[Partition] = set()
    for topic in wanted.topics or ():
        found |= {(topic, index) for index in range(len(topic_image(request, topic).partitions))}
    for topic, index in wanted.partitions or ():
        if not 0 <= index < len(topic_image(request, topic).partitions):
            raise AdminError(404, "unknown_partition", f"{topic} has no partition {index}")
        found.add((topic, index))
    if wanted.topics is None and wanted.partitions is None:
        found = {(each.topic, each.partition) for each in group.partitions}
    if len(found) > MAX_PARTITIONS:
        raise AdminError(400, "invalid_request", f"{len(found)} partitions are more than {MAX_PARTITIONS}: choose some")
    return sorted(found)


async def _committed(
    request: AdminRequest, name: str, partitions: list[Partition], *, is_share: bool
) -> dict[Partition, int]:
    return await (_share_offsets if is_share else _offsets)(request, name, partitions)


async def _offsets(request: AdminRequest, name: str, partitions: list[Partition]) -> dict[Partition, int]:
    def build(schema: ModuleType) -> Any:
        topics: tuple[Any, ...] = tuple(
            make(schema.OffsetFetchRequestTopic, name=topic, partition_indexes=tuple(indexes))
            for topic, indexes in by_topic(partitions).items()
        )
        return make(schema.OffsetFetchRequest, group_id=name, topics=topics)

    answer = await coordinated(request, GROUP, name, _OFFSET_FETCH, 7, build)
    check_kafka(answer.error_code)
    found = {}
    for topic in answer.topics:
        for part in topic.partitions:
            check_kafka(part.error_code)
            if part.committed_offset >= 0:
                found[str(topic.name), int(part.partition_index)] = int(part.committed_offset)
    return found


async def _share_offsets(request: AdminRequest, name: str, partitions: list[Partition]) -> dict[Partition, int]:
    def build(schema: ModuleType) -> Any:
        topics: tuple[Any, ...] = tuple(
            make(schema.DescribeShareGroupOffsetsRequestTopic, topic_name=topic, partitions=tuple(indexes))
            for topic, indexes in by_topic(partitions).items()
        )
        group: Any = make(schema.DescribeShareGroupOffsetsRequestGroup, group_id=name, topics=topics)
        return make(schema.DescribeShareGroupOffsetsRequest, groups=(group,))

    (group,) = (await coordinated(request, GROUP, name, _DESCRIBE_SHARE_OFFSETS, 1, build)).groups
    check_kafka(group.error_code, group.error_message)
    found = {}
    for topic in group.topics:
        for part in topic.partitions:
            if part.error_code is ErrorCode.none and part.start_offset >= 0:
                found[str(topic.topic_name), int(part.partition_index)] = int(part.start_offset)
    return found


async def _write(request: AdminRequest, name: str, moves: list[OffsetMove], *, is_share: bool) -> None:
    await (_alter_share if is_share else _commit)(
        request, name, {(each.topic, each.partition): each.after for each in moves}
    )


async def _commit(request: AdminRequest, name: str, offsets: dict[Partition, int]) -> None:
    answer = await coordinated(
        request, GROUP, name, _OFFSET_COMMIT, 7, lambda schema: offset_commit(schema, name, offsets)
    )
    for topic in answer.topics:
        for part in topic.partitions:
            check_kafka(part.error_code)


async def _alter_share(request: AdminRequest, name: str, offsets: dict[Partition, int]) -> None:
    answer = await coordinated(
        request, GROUP, name, _ALTER_SHARE_OFFSETS, 0, lambda schema: alter_share_offsets(schema, name, offsets)
    )
    check_kafka(answer.error_code, answer.error_message)
    for topic in answer.responses:
        for part in topic.partitions:
            check_kafka(part.error_code, part.error_message)
