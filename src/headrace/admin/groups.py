"""Groups of every kind: the list, one with its members and positions; reset and deleted."""

from types import ModuleType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError, check_kafka
from headrace.admin.group_reset import ResetRequest, reset
from headrace.admin.history import HistoryView, history_of
from headrace.admin.kafka_requests import GROUP, coordinated, patiently
from headrace.admin.pages import AT_ONCE, Listing, Page, PageQuery
from headrace.admin.routes import (
    DELETE_GROUP,
    DESCRIBE_GROUP,
    READ_GROUP,
    SHOWN_GROUPS,
    AdminReply,
    AdminRequest,
    route,
)
from headrace.admin.topics import known_offset
from headrace.model.acls import ResourceType
from headrace.monitor.loop_slices import sliced
from headrace.monitor.snapshots import GroupDetail, GroupStat, SharePartitionStat
from headrace.protocol.codec import make

_DELETE_GROUPS = 42
_SHARE = "share"
_SHOWN_TOPICS = 20


class GroupEntry(msgspec.Struct, frozen=True):
    group: str
    type: str
    """classic, consumer, share or streams."""
    state: str
    members: int
    topics: list[str]
    """The first 20 of those with committed offsets."""
    topic_count: int
    lag_messages: int | None
    lag_seconds: float | None
    """How long ago the next message to read was written; 0 when caught up."""
    trend: str
    """rising, falling or steady."""
    coordinator: int
    stalled_s: float | None
    """How long its position has not moved although there is lag."""


class GroupMember(msgspec.Struct, frozen=True):
    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: dict[str, list[int]]
    """Partitions by topic; for a streams group tasks by subtopology."""


class GroupPosition(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    leader: int
    committed: int | None
    """For a share group the offset below which everything is acknowledged."""
    start: int | None
    end: int | None
    lag_messages: int | None
    lag_seconds: float | None
    member: str
    """The id of the member that it is assigned to; empty if none."""
    commit_ms: int | None
    in_flight: int | None
    """For a share group: records that are delivered and not acknowledged."""


class GroupView(msgspec.Struct, frozen=True):
    group: str
    type: str
    state: str
    protocol_type: str
    coordinator: int
    lag_messages: int | None
    lag_seconds: float | None
    trend: str
    last_commit_ms: int | None
    stalled_s: float | None
    members: list[GroupMember]
    partitions: list[GroupPosition]
    history: HistoryView


class GroupQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    type: Literal["", "classic", "consumer", "share", "streams"] = ""
    state: Annotated[str, Meta(max_length=32, description="As Stable or Empty.")] = ""


def group_entry(found: GroupStat) -> GroupEntry:
    return GroupEntry(
        group=found.group,
        type=found.kind,
        state=found.state,
        members=found.members,
        topics=[each.topic for each in found.topics[:_SHOWN_TOPICS]],
        topic_count=len(found.topics),
        lag_messages=found.lag_messages,
        lag_seconds=found.lag_seconds,
        trend=found.trend,
        coordinator=found.coordinator,
        stalled_s=found.stalled_s,
    )


_GROUPS: Listing[GroupStat, GroupEntry] = Listing(
    GroupEntry,
    group_entry,
    name="group",
    values={
        "type": lambda each: each.kind,
        "topics": lambda each: len(each.topics),
        "topic_count": lambda each: len(each.topics),
    },
)


@route("GET", "/groups", needs=SHOWN_GROUPS, query=GroupQuery, answer=Page[GroupEntry])
async def list_groups(request: AdminRequest) -> AdminReply:
    """The groups of the cluster, with their lag."""
    query = request.query(GroupQuery)
    shown = [
        each
        async for each in sliced(await request.services.monitor.groups(), AT_ONCE)
        if query.type in ("", each.kind)
        and query.state.casefold() in ("", each.state.casefold())
        and request.shows(ResourceType.GROUP, each.group)
    ]
    return AdminReply(_GROUPS.page(shown, query))


@route("GET", "/groups/{group:path}", needs=DESCRIBE_GROUP, answer=GroupView)
async def describe_group(request: AdminRequest) -> AdminReply:
    """A group with its members, its position in each partition, and its last hour."""
    name = request.parameters["group"]
    found = await _detail(request, name)
    stat = found.stat
    shares = await _shares(request, name) if stat.kind == _SHARE else {}
    view = GroupView(
        group=name,
        type=stat.kind,
        state=stat.state,
        protocol_type=stat.protocol_type,
        coordinator=stat.coordinator,
        lag_messages=stat.lag_messages,
        lag_seconds=stat.lag_seconds,
        trend=stat.trend,
        last_commit_ms=stat.last_commit_ms,
        stalled_s=stat.stalled_s,
        members=[
            GroupMember(each.member_id, each.instance_id, each.client_id, each.host, each.assignment)
            for each in found.members
        ],
        partitions=[
            GroupPosition(
                topic=each.topic,
                partition=each.partition,
                leader=each.leader,
                committed=known_offset(each.committed),
                start=known_offset(each.start_offset),
                end=known_offset(each.end_offset),
                lag_messages=each.lag_messages,
                lag_seconds=each.lag_seconds,
                member=each.member_id,
                commit_ms=each.commit_ms,
                in_flight=shares[each.topic, each.partition].in_flight
                if (each.topic, each.partition) in shares
                else None,
            )
            for each in found.partitions
            if request.shows(ResourceType.TOPIC, each.topic)
        ],
        history=await history_of(request, "group", name),
    )
    return AdminReply(view)


async def _detail(request: AdminRequest, name: str) -> GroupDetail:
    found = await request.services.monitor.group(name)
    if found is None:
        raise AdminError(404, "unknown_group", f"there is no group {name}")
    return found


async def _shares(request: AdminRequest, name: str) -> dict[tuple[str, int], SharePartitionStat]:
    for group in await request.services.monitor.share_groups():
        if group.group == name:
            return {(each.topic, each.partition): each for each in group.partitions}
    return {}


class OffsetChange(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    before: int | None
    """Null if nothing was committed."""
    after: int


@route(
    "POST",
    "/groups/{group:path}/reset",
    needs=READ_GROUP,
    body=ResetRequest,
    answer=list[OffsetChange],
    is_audited=True,
)
async def reset_group(request: AdminRequest) -> AdminReply:
    """Set the offsets of a group without members; with `dry_run` only show what would change."""
    name, wanted = request.parameters["group"], request.read(ResetRequest)
    detail = await _detail(request, name)
    changes = await reset(request, detail, wanted)
    return AdminReply([OffsetChange(each.topic, each.partition, each.before, each.after) for each in changes])


@route("DELETE", "/groups/{group:path}", needs=DELETE_GROUP, is_audited=False)
async def delete_group(request: AdminRequest) -> AdminReply:
    """Delete a group without members, with its offsets."""
    name = request.parameters["group"]

    def build(schema: ModuleType) -> Any:
        return make(schema.DeleteGroupsRequest, groups_names=(name,))

    async def attempt() -> None:
        (result,) = (await coordinated(request, GROUP, name, _DELETE_GROUPS, 2, build)).results
        check_kafka(result.error_code)

    await patiently(attempt)
    return AdminReply(None, 204)
