"""ListPartitionReassignments (46), version 0: which partitions are moving. With one broker there is nowhere to go.

As in Kafka, topics and partitions that are not there are left out without an error, as those that do not move.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Answer, Context, handles
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

KEY = 46


@handles(KEY, 0, 0)
def list_partition_reassignments(ctx: Context, request: Any) -> Answer:
    return make(
        ctx.schema.ListPartitionReassignmentsResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        topics=(),
    )
