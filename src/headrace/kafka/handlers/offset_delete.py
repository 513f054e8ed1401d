"""OffsetDelete (47), version 0: delete a group's offsets in partitions that it no longer reads.

A topic that a member of the group subscribes to is GROUP_SUBSCRIBED_TO_TOPIC; a group with members that are not
consumers is NON_EMPTY_GROUP, as its subscriptions are unknown.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.coordinator.result import Result
from headrace.groups.machine import Refused
from headrace.kafka.deferred_answers import answer_with
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import DELETE_GROUP, READ_TOPIC
from headrace.kafka.topic_keys import TopicKeys
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
    keys = TopicKeys(ctx.services.metadata.image)
    places = [
        (topic.name, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
        if keys.problem(topic, one.partition_index) is None
    ]

    def answer(result: Result[Refused]) -> "OffsetDeleteResponse":
        refused = {} if result.error is not None else result.get()

        def outcome(topic: "OffsetDeleteRequestTopic", index: int) -> ErrorCode:
            problem = keys.problem(topic, index) or refused.get((topic.name, index))
            return ErrorCode.none if problem is None else error_code(problem)

        return make(
            ctx.schema.OffsetDeleteResponse,
            error_code=ErrorCode.none if result.error is None else error_code(result.error),
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
                if result.error is None
            ),
        )

    return answer_with(ctx.services.groups.delete_offsets(request.group_id, places), answer)
