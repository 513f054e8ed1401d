"""InitProducerId (22), versions 0-5: an id for an idempotent producer.

- Without a transactional id each request gets a new id with epoch 0, also one that names its current id and epoch
  (v3 and later), as in Kafka: the state of an idempotent producer lives in the partitions alone.
- An id without an epoch, an epoch without an id and an empty transactional id are INVALID_REQUEST.
- A transactional id is answered with COORDINATOR_NOT_AVAILABLE: there is no transaction coordinator yet.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Answer, Context, handles
from headrace.kafka.errors import error_code
from headrace.model.errors import HeadraceError
from headrace.model.ids import NO_PRODUCER
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

KEY = 22
NO_PRODUCER_EPOCH = -1


@handles(KEY, 0, 5)
async def init_producer_id(ctx: Context, request: Any) -> Answer:
    error, producer_id, epoch = _check(request), NO_PRODUCER, NO_PRODUCER_EPOCH
    if error is ErrorCode.none:
        try:
            producer_id, epoch = await ctx.services.producer_ids.next(), 0
        except HeadraceError as failure:
            error = error_code(failure)
    return make(
        ctx.schema.InitProducerIdResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def _check(request: Any) -> ErrorCode:
    current_id = getattr(request, "producer_id", NO_PRODUCER)
    current_epoch = getattr(request, "producer_epoch", NO_PRODUCER_EPOCH)
    if (current_id == NO_PRODUCER) != (current_epoch == NO_PRODUCER_EPOCH) or current_id < -1 or current_epoch < -1:
        return ErrorCode.invalid_request
    if request.transactional_id is None:
        return ErrorCode.none
    return ErrorCode.coordinator_not_available if request.transactional_id else ErrorCode.invalid_request
