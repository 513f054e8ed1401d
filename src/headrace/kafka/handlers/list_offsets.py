"""ListOffsets (2), versions 1-11: the offset for a timestamp, or for a special timestamp.

    -1  latest: the high watermark, or the last stable offset for read_committed
    -2  earliest, and -4 earliest local: the log start, as there is no tiered storage
    -3  (v7) the offset of the largest timestamp
    -5  (v9) the last tiered, -6 (v11) the earliest not yet tiered: none, so offset -1
     t  the first offset whose timestamp is at least t; offset -1 if there is none

A special timestamp that the request's version does not have is UNSUPPORTED_VERSION. A partition that is named twice is
INVALID_REQUEST, in one entry. Only the leader answers. A newly elected one that does not know the high watermark yet
answers OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before v5).
Permissions: DESCRIBE on each topic, else TOPIC_AUTHORIZATION_FAILED whether it exists or not.
A search by timestamp reads the log, so a worker thread does it.
"""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import DESCRIBE_TOPIC
from headrace.model.errors import HeadraceError, OffsetNotAvailable
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.replication.partition import Partition

if TYPE_CHECKING:
    from kio.schema.list_offsets.v11.request import ListOffsetsRequest
    from kio.schema.list_offsets.v11.response import (
        ListOffsetsPartitionResponse,
        ListOffsetsResponse,
        ListOffsetsTopicResponse,
    )

KEY = 2
READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LAST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
_NOT_AVAILABLE_FROM = 5
_KNOWN_FROM = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LAST_TIERED: 9, EARLIEST_PENDING: 11}

Located = tuple[int, int, int]
"""Offset, timestamp and leader epoch; -1 each where there is none."""
_NOWHERE: Located = (-1, -1, -1)


@handles(KEY, 1, 11, needs=(DESCRIBE_TOPIC,))
async def list_offsets(ctx: Context, request: "ListOffsetsRequest") -> "ListOffsetsResponse":
    schema = ctx.schema
    committed = getattr(request, "isolation_level", 0) == READ_COMMITTED
    topics: list[ListOffsetsTopicResponse] = []
    for topic in request.topics:
        counts = Counter(wanted.partition_index for wanted in topic.partitions)
        parts: list[ListOffsetsPartitionResponse] = []
        may_describe = ctx.allows(DESCRIBE_TOPIC, topic.name)
        for wanted in {wanted.partition_index: wanted for wanted in topic.partitions}.values():
            error, located = ErrorCode.none, _NOWHERE
            try:
                if not may_describe:
                    error = ErrorCode.topic_authorization_failed
                elif counts[wanted.partition_index] > 1:
                    error = ErrorCode.invalid_request
                elif wanted.timestamp < 0 and _KNOWN_FROM.get(wanted.timestamp, 99) > ctx.version:
                    error = ErrorCode.unsupported_version
                else:
                    partition = ctx.services.partitions.get(topic.name, wanted.partition_index)
                    partition.check_leading()
                    partition.check_epoch(getattr(wanted, "current_leader_epoch", -1))
                    if wanted.timestamp == LATEST or wanted.timestamp >= 0:
                        partition.check_offsets_known()
                    located = await _locate(ctx, partition, wanted.timestamp, committed=committed)
            except OffsetNotAvailable as failure:
                error = error_code(failure) if ctx.version >= _NOT_AVAILABLE_FROM else ErrorCode.leader_not_available
            except HeadraceError as failure:
                error = error_code(failure)
            offset, timestamp, epoch = located
            parts.append(
                make(
                    schema.ListOffsetsPartitionResponse,
                    partition_index=wanted.partition_index,
                    error_code=error,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=epoch,
                )
            )
        topics.append(make(schema.ListOffsetsTopicResponse, name=topic.name, partitions=tuple(parts)))
    return make(schema.ListOffsetsResponse, throttle_time=NO_THROTTLE, topics=tuple(topics))


async def _locate(ctx: Context, partition: Partition, timestamp: int, *, committed: bool) -> Located:
    log = partition.log
    below = partition.last_stable_offset if committed else partition.high_watermark
    if timestamp == LATEST:
        return below, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.start_offset, -1, partition.replica.epoch_at(log.start_offset)
    if timestamp in (LAST_TIERED, EARLIEST_PENDING):
        return _NOWHERE
    loop = asyncio.get_running_loop()
    workers = ctx.services.workers
    if timestamp == MAX_TIMESTAMP:
        found = await loop.run_in_executor(workers, log.max_timestamp, below)
    else:
        found = await loop.run_in_executor(workers, log.offset_for_time, timestamp, below)
    return _NOWHERE if found is None else found
