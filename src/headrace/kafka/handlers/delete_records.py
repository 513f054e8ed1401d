"""DeleteRecords (21), versions 0-2: advance the log start offset. -1 stands for the high watermark.

Records that are written but not committed yet, as after acks=1, are waited for up to the request's timeout. When
answered, the new start is durable, on every live replica, too. Only the leader serves this. Compacted topics without
the delete policy refuse, as in Kafka.

Permissions: DELETE on each topic, else TOPIC_AUTHORIZATION_FAILED whether it exists or not.
"""

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import DELETE_TOPIC, not_authorized
from headrace.model.errors import HeadraceError, PolicyViolation
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.replication.partition import Partition

if TYPE_CHECKING:
    from kio.schema.delete_records.v2.request import DeleteRecordsRequest
    from kio.schema.delete_records.v2.response import (
        DeleteRecordsPartitionResult,
        DeleteRecordsResponse,
        DeleteRecordsTopicResult,
    )

KEY = 21
_LOOK_AGAIN_S = 0.02


@handles(KEY, 0, 2, needs=(DELETE_TOPIC,))
async def delete_records(ctx: Context, request: "DeleteRecordsRequest") -> "DeleteRecordsResponse":
    schema = ctx.schema
    in_worker = partial(asyncio.get_running_loop().run_in_executor, ctx.services.workers)
    topics: list[DeleteRecordsTopicResult] = []
    for topic in request.topics:
        parts: list[DeleteRecordsPartitionResult] = []
        may_delete = ctx.allows(DELETE_TOPIC, topic.name)
        for wanted in topic.partitions:
            error, low_watermark = ErrorCode.none, -1
            try:
                if not may_delete:
                    raise not_authorized(DELETE_TOPIC, topic.name)
                partition = ctx.services.partitions.get(topic.name, wanted.partition_index)
                partition.check_leading()
                if not partition.settings.deletes:
                    raise PolicyViolation(f"topic {topic.name} has a cleanup.policy without delete")
                await _written(partition, wanted.offset, request.timeout)
                start = await partition.delete_before(wanted.offset, in_worker)
                low_watermark = await _deleted_everywhere(ctx, partition, start, request.timeout)
            except TimeoutError:
                error = ErrorCode.request_timed_out
            except HeadraceError as failure:
                error = error_code(failure)
            parts.append(
                make(
                    schema.DeleteRecordsPartitionResult,
                    partition_index=wanted.partition_index,
                    low_watermark=low_watermark,
                    error_code=error,
                )
            )
        topics.append(make(schema.DeleteRecordsTopicResult, name=topic.name, partitions=tuple(parts)))
    return make(schema.DeleteRecordsResponse, throttle_time=NO_THROTTLE, topics=tuple(topics))


async def _written(partition: Partition, offset: int, timeout: timedelta) -> None:
    """Wait until the records below `offset` are committed; an offset beyond the end of the log is not waited for."""
    end = partition.log.end_offset
    target = end if offset == -1 else offset
    if partition.high_watermark < target <= end:
        async with asyncio.timeout(max(0.0, timeout.total_seconds())):
            await partition.until_committed(target)


async def _deleted_everywhere(ctx: Context, partition: Partition, start: int, timeout: timedelta) -> int:
    """Wait until the logs of all live replicas start at `start`, as they report when they fetch."""
    async with asyncio.timeout(max(_LOOK_AGAIN_S, timeout.total_seconds())):
        while (leading := partition.leading) is not None:
            if leading.low_watermark(start, ctx.services.metadata.image.is_alive) >= start:
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
    partition.check_leading()
    return start
