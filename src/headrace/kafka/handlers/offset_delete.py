"""OffsetDelete (47), version 0: delete a group's offsets in partitions that it no longer reads.

A topic that a member of the group subscribes to is GROUP_SUBSCRIBED_TO_TOPIC; a group with members that are not
consumers is NON_EMPTY_GROUP, as its subscriptions are unknown.

Permissions: DELETE on the group, READ on each topic; the partitions of a topic without it are
TOPIC_AUTHORIZATION_FAILED, whether or not it exists.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.coordinator.result import Result
from headrace.groups.machine import Refused
from headrace.kafka.deferred_answers import answer_with
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.forbidden_topics import forbidden_topics
from headrace.kafka.permissions import DELETE_GROUP, READ_TOPIC, not_authorized
from headrace.kafka.topic_keys import TopicKeys
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest, OffsetDeleteRequestTopic
    from kio.schema.offset_delete.v0.response import OffsetDeleteResponse

KEY = 47


@handles(KEY, 0, 0, needs=(DELETE_GROUP, READ_TOPIC))
def offset_delete(
    ctx: Context, request: "OffsetDeleteRequest"
) -> "OffsetDeleteResponse | Deferred[OffsetDeleteResponse]":
    if not ctx.allows(DELETE_GROUP, request.group_id):
        return _refused(ctx, not_authorized(DELETE_GROUP, request.group_id))
    keys = TopicKeys(ctx.services.metadata.image)
    forbidden = forbidden_topics(ctx, READ_TOPIC, (topic.name for topic in request.topics))
    places = [
        (topic.name, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
        if topic.name not in forbidden and keys.problem(topic, one.partition_index) is None
    ]

    def answer(result: Result[Refused]) -> "OffsetDeleteResponse":
        if result.error is not None:
            return _refused(ctx, result.error)
        refused = result.get()

        def outcome(topic: "OffsetDeleteRequestTopic", index: int) -> ErrorCode:
            if topic.name in forbidden:
                return ErrorCode.topic_authorization_failed
            problem = keys.problem(topic, index) or refused.get((topic.name, index))
            return ErrorCode.none if problem is None else error_code(problem)

        return make(
            ctx.schema.OffsetDeleteResponse,
            error_code=ErrorCode.none,
            throttle_time=NO_THROTTLE,
            topics=tuple(
                make(
                    ctx.schema.OffsetDeleteResponseTopic,
                    name=topic.name,
                    partitions=tuple(
                        make(
                            ctx.schema.OffsetDeleteResponsePartition,
                            partition_index=one.partition_index,
                            error_code=outcome(topic, one.partition_index),
                        )
                        for one in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    return answer_with(ctx.services.groups.delete_offsets(request.group_id, places), answer)


def _refused(ctx: Context, error: HeadraceError) -> "OffsetDeleteResponse":
    return make(ctx.schema.OffsetDeleteResponse, error_code=error_code(error), throttle_time=NO_THROTTLE, topics=())
