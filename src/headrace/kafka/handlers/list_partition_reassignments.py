"""ListPartitionReassignments (46), version 0: the reassignments in progress, with the replicas they add and remove.

Null topics stand for all. As in Kafka, topics and partitions that do not exist or are not being reassigned are left out
without an error.

Permissions: DESCRIBE on the cluster, else CLUSTER_AUTHORIZATION_FAILED.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import DESCRIBE_CLUSTER, not_authorized
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage, TopicImage
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.list_partition_reassignments.v0.request import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsTopics,
    )
    from kio.schema.list_partition_reassignments.v0.response import (
        ListPartitionReassignmentsResponse,
        OngoingPartitionReassignment,
        OngoingTopicReassignment,
    )

KEY = 46


@handles(KEY, 0, 0, needs=(DESCRIBE_CLUSTER,))
def list_partition_reassignments(
    ctx: Context, request: "ListPartitionReassignmentsRequest"
) -> "ListPartitionReassignmentsResponse":
    schema = ctx.schema
    if not ctx.allows(DESCRIBE_CLUSTER):
        denied = not_authorized(DESCRIBE_CLUSTER)
        return make(
            schema.ListPartitionReassignmentsResponse,
            throttle_time=NO_THROTTLE,
            error_code=error_code(denied),
            error_message=error_message(denied),
            topics=(),
        )
    topics: list[OngoingTopicReassignment] = []
    for topic, indexes in _asked_for(ctx.services.metadata.image, request.topics):
        moving: tuple[OngoingPartitionReassignment, ...] = tuple(
            make(
                schema.OngoingPartitionReassignment,
                partition_index=index,
                replicas=state.replicas,
                adding_replicas=state.adding,
                removing_replicas=state.removing,
            )
            for index in indexes
            if 0 <= index < len(topic.partitions) and (state := topic.partitions[index]).is_reassigning
        )
        if moving:
            topics.append(make(schema.OngoingTopicReassignment, name=topic.name, partitions=moving))
    return make(
        schema.ListPartitionReassignmentsResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(topics),
    )


def _asked_for(
    image: ClusterImage, wanted: "Iterable[ListPartitionReassignmentsTopics] | None"
) -> Iterator[tuple[TopicImage, Sequence[int]]]:
    if wanted is None:
        for topic in image.topics.values():
            yield topic, range(len(topic.partitions))
        return
    for each in wanted:
        found = image.topics.get(TopicName(each.name))
        if found is not None:
            yield found, each.partition_indexes
