"""ConsumerGroupHeartbeat (68), versions 0-1: members of consumer groups (KIP-848) join, send heartbeats and leave.

- Member epoch 0 joins, -1 leaves, -2 leaves temporarily (static members). From v1 on members generate their own ids, in
  v0 the broker assigns one; v1 also adds subscriptions by pattern.
- Answered when the resulting changes are committed: an epoch or an assignment that a member has received survives a
  crash.
- A group of the classic protocol becomes a consumer group when a member joins with this API, and its members stay in it
  (KIP-848, "online migration"). If it has members and `group.consumer.migration.policy` forbids that, or they are not
  consumers, the member is refused with GROUP_ID_NOT_FOUND.
- Permissions: READ on the group; DESCRIBE on each topic that a subscription names, else TOPIC_AUTHORIZATION_FAILED,
  whether or not it exists, and the subscription does not change. A pattern matches only topics with DESCRIBE: of each
  member its own, as of its last heartbeat. (Kafka applies those of the member whose heartbeat resolves the pattern.)
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.coordinator.result import Result
from headrace.groups.assignors import Assignment
from headrace.groups.consumer import Heartbeat
from headrace.groups.consumer_records import restored
from headrace.groups.group import JOIN, Beat
from headrace.groups.targets import TopicFilter
from headrace.kafka.deferred_answers import answer_with
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.group_answers import check_member, heartbeat_answer, heartbeat_refused
from headrace.kafka.permissions import DESCRIBE_TOPIC, READ_GROUP
from headrace.model.errors import NotAuthorized
from headrace.protocol.units import to_ms
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest, TopicPartitions
    from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse

KEY = 68


@handles(KEY, 0, 1, needs=(READ_GROUP, DESCRIBE_TOPIC))
def consumer_group_heartbeat(
    ctx: Context, request: "ConsumerGroupHeartbeatRequest"
) -> "ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]":
    response: type[ConsumerGroupHeartbeatResponse] = ctx.schema.ConsumerGroupHeartbeatResponse
    if "consumer" not in ctx.services.settings.group_coordinator_rebalance_protocols:
        return heartbeat_refused(
            response, ErrorCode.unsupported_version, "group.coordinator.rebalance.protocols has no consumer"
        )
    try:
        check_member(ctx, request.group_id, request.subscribed_topic_names)
    except NotAuthorized as error:
        return heartbeat_refused(response, error_code(error), error_message(error))
    member_id = request.member_id
    if not member_id and ctx.version == 0 and request.member_epoch == JOIN:
        member_id = ctx.services.groups.new_member_id("consumer")
    beat = Heartbeat(
        member_id=member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=to_ms(request.rebalance_timeout),
        topics=request.subscribed_topic_names,
        pattern=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        client_id=ctx.header.client_id or "",
        client_host=ctx.peer.host,
        topic_filter=_topic_filter(ctx),
    )

    def to_response(result: Result[Beat]) -> "ConsumerGroupHeartbeatResponse":
        settings = ctx.services.metadata.group_settings(request.group_id)
        return heartbeat_answer(ctx, response, result, settings.consumer_heartbeat_interval_ms)

    return answer_with(ctx.services.groups.consumer_heartbeat(request.group_id, beat), to_response)


def _topic_filter(ctx: Context) -> TopicFilter | None:
    """Return the filter of topics that the client may describe; None while authorization is off."""
    authorizer, (principal, host, *_) = ctx.services.security.authorizer, ctx.peer.subject
    if authorizer is None:
        return None
    operation, kind = DESCRIBE_TOPIC
    return TopicFilter(
        authorizer, (principal, host), lambda name: authorizer.allows(principal, host, operation, kind, name)
    )


def _owned(topics: "tuple[TopicPartitions, ...] | None") -> Assignment | None:
    if topics is None:
        return None
    return restored((topic.topic_id, topic.partitions) for topic in topics if topic.topic_id is not None)
