"""StreamsGroupHeartbeat (88), version 0: members of streams groups (KIP-1071) join, send heartbeats and leave.

- Member epoch 0 joins with the topology of the application, -1 leaves, -2 leaves temporarily (static members). Members
  generate their own ids.
- Answered when the resulting changes are committed: an epoch or a task that a member has received survives a crash.
- The broker creates the application's internal topics. Until they and the source topics exist, the answer has a status
  with the missing topics, and no member has tasks. The status also has the reason why a topic cannot be created.
- A group of another kind is not converted (GROUP_ID_NOT_FOUND), unless it is a classic one without members: the
  application continues from its offsets.
- The topology of a group with members is not changed: another one is STREAMS_INVALID_TOPOLOGY, one with a larger epoch
  STREAMS_INVALID_TOPOLOGY_EPOCH. A member with a smaller epoch is admitted without tasks (status STALE_TOPOLOGY).
- Below feature level 2: UNSUPPORTED_VERSION.
- Permissions: READ on the group; DESCRIBE on each topic of the topology, else TOPIC_AUTHORIZATION_FAILED, whether or
  not it exists. Missing internal topics need CREATE on the cluster or on each of them: otherwise none is created, and
  the status says which may not.

Differences from Kafka 4.2: static members are admitted, and an empty group adopts the topology of the first member that
joins. As there, patterns of source topics are INVALID_REQUEST, and there are no warm-up tasks: task offsets are
ignored.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.coordinator.result import Result
from headrace.groups.streams import StreamsBeat, StreamsHeartbeat
from headrace.groups.streams_endpoints import TopicPartitions
from headrace.groups.streams_records import InternalTopic, Subtopology, TopologyValue
from headrace.groups.streams_tasks import Tasks, TaskSet, restored_tasks, stored_tasks
from headrace.groups.streams_topology import GroupStatus, StatusCode, named_topics
from headrace.kafka.deferred_answers import answer_with
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.forbidden_topics import forbidden_topics
from headrace.kafka.permissions import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC, READ_GROUP, not_authorized
from headrace.model.errors import HeadraceError, InvalidTopology, ProtocolError
from headrace.model.features import STREAMS_LEVEL, needed
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE, to_ms
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.streams_group_heartbeat.v0.request import StreamsGroupHeartbeatRequest, TopicInfo
    from kio.schema.streams_group_heartbeat.v0.request import Subtopology as RequestSubtopology
    from kio.schema.streams_group_heartbeat.v0.request import Topology as RequestTopology
    from kio.schema.streams_group_heartbeat.v0.response import (
        Status,
        StreamsGroupHeartbeatResponse,
        TaskIds,
        TopicPartition,
    )

KEY = 88
_ACCEPTABLE_RECOVERY_LAG = 10_000
_TASK_OFFSET_INTERVAL = timedelta(minutes=1)
"""Kafka's defaults; both settings concern warm-up tasks only."""


@handles(KEY, 0, 0, needs=(READ_GROUP, DESCRIBE_TOPIC, CREATE_CLUSTER, CREATE_TOPIC))
def streams_group_heartbeat(
    ctx: Context, request: "StreamsGroupHeartbeatRequest"
) -> "StreamsGroupHeartbeatResponse | Deferred[StreamsGroupHeartbeatResponse]":
    level = ctx.services.metadata.image.feature_level
    if level < STREAMS_LEVEL:
        return _refused(ctx, ErrorCode.unsupported_version, needed("a streams group", STREAMS_LEVEL, level))
    if "streams" not in ctx.services.settings.group_coordinator_rebalance_protocols:
        message = "group.coordinator.rebalance.protocols has no streams"
        return _refused(ctx, ErrorCode.unsupported_version, message)
    try:
        ctx.require(READ_GROUP, request.group_id)
        beat = _beat(ctx, request)
        _check_topology(ctx, beat.topology)
    except HeadraceError as error:
        return _refused(ctx, error_code(error), error_message(error))
    groups = ctx.services.groups
    return answer_with(
        groups.streams_heartbeat(request.group_id, beat), lambda result: _to_response(ctx, request.group_id, result)
    )


def _beat(ctx: Context, request: "StreamsGroupHeartbeatRequest") -> StreamsHeartbeat:
    endpoint = request.user_endpoint
    return StreamsHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=to_ms(request.rebalance_timeout),
        topology=None if request.topology is None else _topology(request.topology),
        owned=_owned(request),
        process_id=request.process_id,
        endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        tags=None if request.client_tags is None else tuple((tag.key, tag.value) for tag in request.client_tags),
        shuts_down=request.shutdown_application,
        endpoints_epoch=request.endpoint_information_epoch,
        client_id=ctx.header.client_id or "",
        client_host=ctx.peer.host,
        not_creatable=partial(_not_creatable, ctx),
    )


def _check_topology(ctx: Context, topology: TopologyValue | None) -> None:
    if topology is not None:
        for name in sorted(forbidden_topics(ctx, DESCRIBE_TOPIC, named_topics(topology))):
            raise not_authorized(DESCRIBE_TOPIC, name)


def _not_creatable(ctx: Context, names: Sequence[str]) -> Collection[str]:
    return () if ctx.shows(CREATE_CLUSTER) else forbidden_topics(ctx, CREATE_TOPIC, names)


def _owned(request: "StreamsGroupHeartbeatRequest") -> TaskSet | None:
    said = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if all(tasks is None for tasks in said):
        return None
    active, standby, _ = said
    if active is None or standby is None or request.warmup_tasks is None:
        raise ProtocolError("a member says all of its active, standby and warm-up tasks, or nothing of them")
    if request.warmup_tasks:
        raise ProtocolError("there are no warm-up tasks")
    return TaskSet(
        *(restored_tasks((one.subtopology_id, one.partitions) for one in tasks) for tasks in (active, standby))
    )


def _topology(topology: "RequestTopology") -> TopologyValue:
    return TopologyValue(topology.epoch, tuple(_subtopology(one) for one in topology.subtopologies))


def _subtopology(one: "RequestSubtopology") -> Subtopology:
    if one.source_topic_regex:
        raise ProtocolError("patterns of source topics are not supported")
    repartitioned = tuple(map(_internal_topic, one.repartition_source_topics))
    sources = dict(enumerate(one.source_topics))
    internal = {at: topic.name for at, topic in enumerate(repartitioned)}
    try:
        groups = tuple(
            tuple(sorted({sources[at] for at in group.source_topics}))
            + tuple(sorted({internal[at] for at in group.repartition_source_topics}))
            for group in one.copartition_groups
        )
    except KeyError:
        raise InvalidTopology(
            f"the subtopology {one.subtopology_id} has a copartition group with topics that it does not read"
        ) from None
    return Subtopology(
        one.subtopology_id,
        tuple(one.source_topics),
        repartitioned,
        tuple(one.repartition_sink_topics),
        tuple(map(_internal_topic, one.state_changelog_topics)),
        groups,
    )


def _internal_topic(topic: "TopicInfo") -> InternalTopic:
    settings = tuple((config.key, config.value) for config in topic.topic_configs)
    return InternalTopic(topic.name, topic.partitions, topic.replication_factor, settings)


def _to_response(ctx: Context, group_id: str, result: Result[StreamsBeat]) -> "StreamsGroupHeartbeatResponse":
    if result.error is not None:
        return _refused(ctx, error_code(result.error), error_message(result.error))
    beat, schema = result.get(), ctx.schema
    settings = ctx.services.metadata.group_settings(group_id)
    known = beat.endpoints
    return make(
        schema.StreamsGroupHeartbeatResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        member_id=beat.member_id,
        member_epoch=beat.epoch,
        heartbeat_interval=timedelta(milliseconds=settings.streams_heartbeat_interval_ms),
        acceptable_recovery_lag=_ACCEPTABLE_RECOVERY_LAG,
        task_offset_interval=_TASK_OFFSET_INTERVAL,
        status=tuple(_status(ctx, group_id, status) for status in beat.statuses),
        active_tasks=None if beat.tasks is None else _tasks(ctx, beat.tasks.active),
        standby_tasks=None if beat.tasks is None else _tasks(ctx, beat.tasks.standby),
        warmup_tasks=None if beat.tasks is None else (),
        endpoint_information_epoch=beat.endpoints_epoch,
        partitions_by_user_endpoint=None
        if known is None
        else tuple(
            make(
                schema.EndpointToPartitions,
                user_endpoint=make(schema.Endpoint, host=one.host, port=one.port),
                active_partitions=_partitions(ctx, one.active),
                standby_partitions=_partitions(ctx, one.standby),
            )
            for one in known
        ),
    )


def _refused(ctx: Context, error: ErrorCode, message: str | None) -> "StreamsGroupHeartbeatResponse":
    return make(
        ctx.schema.StreamsGroupHeartbeatResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        error_message=message,
        member_id="",
        member_epoch=0,
        heartbeat_interval=timedelta(0),
        acceptable_recovery_lag=0,
        task_offset_interval=timedelta(0),
        status=None,
        active_tasks=None,
        standby_tasks=None,
        warmup_tasks=None,
        endpoint_information_epoch=0,
        partitions_by_user_endpoint=None,
    )


def _status(ctx: Context, group_id: str, status: GroupStatus) -> "Status":
    detail = status.detail
    if status.code is StatusCode.MISSING_INTERNAL_TOPICS:
        problem = ctx.services.groups.internal_topics_problem(group_id)
        detail = detail if problem is None else f"{detail}; they cannot be created: {problem}"
    return make(ctx.schema.Status, status_code=int(status.code), status_detail=detail)


def _tasks(ctx: Context, tasks: Tasks) -> "tuple[TaskIds, ...]":
    return tuple(
        make(ctx.schema.TaskIds, subtopology_id=subtopology, partitions=partitions)
        for subtopology, partitions in stored_tasks(tasks)
    )


def _partitions(ctx: Context, topics: TopicPartitions) -> "tuple[TopicPartition, ...]":
    return tuple(make(ctx.schema.TopicPartition, topic=topic, partitions=partitions) for topic, partitions in topics)
