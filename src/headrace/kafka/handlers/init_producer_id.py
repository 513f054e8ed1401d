"""InitProducerId (22), versions 0-5: an id and an epoch for a producer.

- Without a transactional id each request gets a new id with epoch 0, also one that names its current id and epoch
  (v3 and later), as in Kafka: the state of an idempotent producer lives in the partitions alone.
- With one, the epoch grows: whoever had the transactional id before is fenced, and what it had open is aborted before
  the answer comes. A client that names its id and epoch (v3 and later, KIP-360) gets the next epoch, the same again if
  it asks again, and PRODUCER_FENCED if somebody else came between (INVALID_PRODUCER_EPOCH before v4).
- An id without an epoch, an epoch without an id and an empty transactional id are INVALID_REQUEST; a timeout that is
  not within transaction.max.timeout.ms is INVALID_TRANSACTION_TIMEOUT.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Answer, Context, handles
from headrace.kafka.transactional import code_for
from headrace.model.errors import HeadraceError, ProtocolError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE, to_ms
from headrace.transactions.machine import NOBODY, Producer

KEY = 22


@handles(KEY, 0, 5)
async def init_producer_id(ctx: Context, request: Any) -> Answer:
    error, producer = ErrorCode.none, NOBODY
    try:
        producer = await _init(ctx, request)
    except HeadraceError as failure:
        error = code_for(failure, knows_fenced=ctx.version >= 4)
    return make(
        ctx.schema.InitProducerIdResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )


async def _init(ctx: Context, request: Any) -> Producer:
    claimed = Producer(getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1))
    if (claimed.producer_id < 0 or claimed.epoch < 0) and claimed != NOBODY:
        raise ProtocolError("a producer id and an epoch come together, or not at all")
    if request.transactional_id is None:
        return Producer(await ctx.services.producer_ids.next(), 0)
    if not request.transactional_id:
        raise ProtocolError("a transactional id may not be empty")
    return await ctx.services.transactions.init(
        request.transactional_id, to_ms(request.transaction_timeout), NOBODY if claimed == NOBODY else claimed
    )
