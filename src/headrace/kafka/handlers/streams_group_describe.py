"""StreamsGroupDescribe (89), version 0: state, epochs, topology and members of streams groups (KIP-1071).

- A group that does not exist, or is of another kind, is GROUP_ID_NOT_FOUND.
- The subtopologies are null while source topics are missing, or partition counts of topics do not match.
- Below feature level 2: UNSUPPORTED_VERSION.
- Permissions: DESCRIBE on each group, and on each topic of its topology; else the group is GROUP_AUTHORIZATION_FAILED
  or TOPIC_AUTHORIZATION_FAILED, and nothing of it is described.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.groups.streams import StreamsGroup
from headrace.groups.streams_member import StreamsMember
from headrace.groups.streams_records import InternalTopic, Subtopology, TopologyValue
from headrace.groups.streams_tasks import Tasks, TaskSet, stored_tasks
from headrace.groups.streams_topology import Configured, named_topics
from headrace.kafka import authorized_operations
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.forbidden_topics import check_described
from headrace.kafka.permissions import DESCRIBE_GROUP, DESCRIBE_TOPIC
from headrace.model.errors import HeadraceError
from headrace.model.features import STREAMS_LEVEL, needed
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
    from kio.schema.streams_group_describe.v0.response import (
        Assignment,
        DescribedGroup,
        Member,
        StreamsGroupDescribeResponse,
        TaskIds,
        TopicInfo,
        Topology,
    )
    from kio.schema.streams_group_describe.v0.response import Subtopology as DescribedSubtopology

KEY = 89


@handles(KEY, 0, 0, needs=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
def streams_group_describe(ctx: Context, request: "StreamsGroupDescribeRequest") -> "StreamsGroupDescribeResponse":
    return make(
        ctx.schema.StreamsGroupDescribeResponse,
        throttle_time=NO_THROTTLE,
        groups=tuple(
            _group(ctx, group_id, asked=request.include_authorized_operations) for group_id in request.group_ids
        ),
    )


def _group(ctx: Context, group_id: str, *, asked: bool) -> "DescribedGroup":
    fields = _fields(ctx, group_id)
    is_denied = fields["error_code"] in (ErrorCode.group_authorization_failed, ErrorCode.topic_authorization_failed)
    operations = authorized_operations.on_group(ctx, group_id, asked and not is_denied)
    return make(ctx.schema.DescribedGroup, group_id=group_id, authorized_operations=operations, **fields)


def _fields(ctx: Context, group_id: str) -> dict[str, object]:
    level = ctx.services.metadata.image.feature_level
    if level < STREAMS_LEVEL:
        return _not_described(ErrorCode.unsupported_version, needed("a streams group", STREAMS_LEVEL, level))
    try:
        ctx.require(DESCRIBE_GROUP, group_id)
        group = ctx.services.groups.streams(group_id)
        if group.topology is not None:
            check_described(ctx, named_topics(group.topology))
    except HeadraceError as error:
        return _not_described(error_code(error), error_message(error))
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_state": group.state_name,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "topology": _topology(ctx, group),
        "members": tuple(_member(ctx, member, group.target_of(member.member_id)) for member in group.members),
    }


def _not_described(error: ErrorCode, message: str | None) -> dict[str, object]:
    return {
        "error_code": error,
        "error_message": message,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "topology": None,
        "members": (),
    }


def _topology(ctx: Context, group: StreamsGroup) -> "Topology | None":
    topology = group.topology
    if topology is None:
        return None
    configured = group.configured(topology, ctx.services.metadata.image)
    return make(ctx.schema.Topology, epoch=topology.epoch, subtopologies=_subtopologies(ctx, topology, configured))


def _subtopologies(
    ctx: Context, topology: TopologyValue, configured: Configured
) -> "tuple[DescribedSubtopology, ...] | None":
    if not configured.task_counts:
        return None
    return tuple(_subtopology(ctx, one, configured) for one in topology.subtopologies)


def _subtopology(ctx: Context, one: Subtopology, configured: Configured) -> "DescribedSubtopology":
    return make(
        ctx.schema.Subtopology,
        subtopology_id=one.subtopology_id,
        source_topics=one.source_topics,
        repartition_sink_topics=one.repartition_sink_topics,
        state_changelog_topics=tuple(_internal_topic(ctx, topic, configured) for topic in one.changelog_topics),
        repartition_source_topics=tuple(
            _internal_topic(ctx, topic, configured) for topic in one.repartition_source_topics
        ),
    )


def _internal_topic(ctx: Context, topic: InternalTopic, configured: Configured) -> "TopicInfo":
    return make(
        ctx.schema.TopicInfo,
        name=topic.name,
        partitions=configured.counts[topic.name],
        replication_factor=topic.replication_factor,
        topic_configs=tuple(make(ctx.schema.KeyValue, key=key, value=value) for key, value in topic.settings),
    )


def _member(ctx: Context, member: StreamsMember, target: TaskSet) -> "Member":
    about, schema = member.about, ctx.schema
    endpoint = about.endpoint
    return make(
        schema.Member,
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=about.instance_id,
        rack_id=about.rack_id,
        client_id=about.client_id,
        client_host=about.client_host,
        topology_epoch=about.topology_epoch,
        process_id=about.process_id,
        user_endpoint=None if endpoint is None else make(schema.Endpoint, host=endpoint[0], port=endpoint[1]),
        client_tags=tuple(make(schema.KeyValue, key=key, value=value) for key, value in about.tags),
        task_offsets=(),
        task_end_offsets=(),
        assignment=_assignment(ctx, member.assigned),
        target_assignment=_assignment(ctx, target),
        is_classic=False,
    )


def _assignment(ctx: Context, tasks: TaskSet) -> "Assignment":
    return make(
        ctx.schema.Assignment,
        active_tasks=_task_ids(ctx, tasks.active),
        standby_tasks=_task_ids(ctx, tasks.standby),
        warmup_tasks=(),
    )


def _task_ids(ctx: Context, tasks: Tasks) -> "tuple[TaskIds, ...]":
    return tuple(
        make(ctx.schema.TaskIds, subtopology_id=subtopology, partitions=partitions)
        for subtopology, partitions in stored_tasks(tasks)
    )
