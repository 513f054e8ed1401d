"""DescribeTopicPartitions (75), version 0: partitions of topics, in pages.

- Topics are sorted by name; no topics in the request means all of them.
- A page ends after `response_partition_limit` partitions, at most 2,000; `next_cursor` is the start of the next one.
  A cursor at a deleted topic continues with the one after it.
- An unknown topic is UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION if its name is invalid.
- A cursor at a negative partition, or at a topic that was not requested, is INVALID_REQUEST.

Permissions: DESCRIBE on each topic. Named ones without it are TOPIC_AUTHORIZATION_FAILED, after all others and whether
they exist or not; when all are requested they are left out.

Eligible leader replicas (KIP-966) are not tracked: the lists are empty.
"""

from types import ModuleType
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka import authorized_operations, views
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import DESCRIBE_TOPIC
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
    from kio.schema.describe_topic_partitions.v0.response import (
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
    )

KEY = 75
MAX_PARTITIONS_PER_PAGE = 2_000


@handles(KEY, 0, 0, needs=(DESCRIBE_TOPIC,))
def describe_topic_partitions(
    ctx: Context, request: "DescribeTopicPartitionsRequest"
) -> "DescribeTopicPartitionsResponse":
    schema, image = ctx.schema, ctx.services.metadata.image
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    names = sorted(asked or image.topics)
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    if cursor is not None:
        if cursor.partition_index < 0 or (asked and cursor.topic_name not in asked):
            refused = tuple(_failed(schema, name, ErrorCode.invalid_request) for name in names)
            return make(schema.DescribeTopicPartitionsResponse, throttle_time=NO_THROTTLE, topics=refused)
        names = [name for name in names if name >= cursor.topic_name]
    if asked:
        forbidden = [name for name in names if not ctx.allows(DESCRIBE_TOPIC, name)]
        denied = [_failed(schema, name, ErrorCode.topic_authorization_failed) for name in forbidden]
        names = [name for name in names if name not in forbidden]
    else:
        names = [name for name in names if ctx.shows(DESCRIBE_TOPIC, name)]
    room = max(1, min(request.response_partition_limit, MAX_PARTITIONS_PER_PAGE))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor = None
    for name in names:
        topic = image.topics.get(TopicName(name))
        if topic is None:
            topics.append(_failed(schema, name, views.why_unknown(name)))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if room == 0:
            next_cursor = schema.Cursor(topic_name=name, partition_index=first)
            break
        last = min(len(topic.partitions), first + room)
        topics.append(
            make(
                schema.DescribeTopicPartitionsResponseTopic,
                error_code=ErrorCode.none,
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=tuple(_partition(schema, image, name, index) for index in range(first, last)),
                topic_authorized_operations=authorized_operations.on_topic(ctx, name, True),
            )
        )
        if last < len(topic.partitions):
            next_cursor = schema.Cursor(topic_name=name, partition_index=last)
            break
        room -= max(0, last - first)
    return make(
        schema.DescribeTopicPartitionsResponse,
        throttle_time=NO_THROTTLE,
        topics=(*topics, *denied),
        next_cursor=next_cursor,
    )


def _partition(
    schema: ModuleType, image: ClusterImage, name: str, index: int
) -> "DescribeTopicPartitionsResponsePartition":
    state = image.topics[TopicName(name)].partitions[index]
    # Java's client fails on null for these two: eligible leaders are not tracked, so they are empty.
    return make(
        schema.DescribeTopicPartitionsResponsePartition,
        **views.partition_fields(image, index, state),
        eligible_leader_replicas=(),
        last_known_elr=(),
    )


def _failed(schema: ModuleType, name: str, error: ErrorCode) -> "DescribeTopicPartitionsResponseTopic":
    return make(schema.DescribeTopicPartitionsResponseTopic, error_code=error, name=name, topic_id=None, partitions=())
