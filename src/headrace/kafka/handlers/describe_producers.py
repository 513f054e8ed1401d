"""DescribeProducers (61), version 0: the active producers of a partition, and their open transactions.

Permissions: READ on each topic, else TOPIC_AUTHORIZATION_FAILED whether it exists or not.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import READ_TOPIC, not_authorized
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest
    from kio.schema.describe_producers.v0.response import DescribeProducersResponse, PartitionResponse, ProducerState

KEY = 61


@handles(KEY, 0, 0, needs=(READ_TOPIC,))
def describe_producers(ctx: Context, request: "DescribeProducersRequest") -> "DescribeProducersResponse":
    schema = ctx.schema
    return make(
        schema.DescribeProducersResponse,
        throttle_time=NO_THROTTLE,
        topics=tuple(
            make(
                schema.TopicResponse,
                name=topic.name,
                partitions=tuple(
                    _partition(ctx, topic.name, index, may_read=may_read) for index in topic.partition_indexes
                ),
            )
            for topic in request.topics
            for may_read in (ctx.allows(READ_TOPIC, topic.name),)
        ),
    )


def _partition(ctx: Context, topic: str, index: int, *, may_read: bool) -> "PartitionResponse":
    schema = ctx.schema
    producers: tuple[ProducerState, ...] = ()
    error, message = ErrorCode.none, None
    try:
        if not may_read:
            raise not_authorized(READ_TOPIC, topic)
        known = ctx.services.partitions.get(topic, index).log.producers
        producers = tuple(
            make(
                schema.ProducerState,
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
                last_timestamp=entry.timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.first_offset,
            )
            for producer_id, entry in known.items()
        )
    except HeadraceError as failure:
        error, message = error_code(failure), error_message(failure)
    return make(
        schema.PartitionResponse,
        partition_index=index,
        error_code=error,
        error_message=message,
        active_producers=producers,
    )
