"""EndTxn (26), versions 0-5: commit or abort a transaction.

- The decision is final once its record is committed; the answer is sent when the markers are written, too, so that a
  later read_committed read sees the transaction (unless a partition takes more than a few seconds: then before).
- v5 (transaction version 2, KIP-890) gives the producer the epoch of its next transaction, or a new id when epochs are
  exhausted; a retry with the old epoch gets the same answer. It may abort a transaction without writes.
- A retry of the same decision succeeds, the opposite is INVALID_TXN_STATE. A producer that is not the current one is
  PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before v2).
- Permission: WRITE on the transactional id.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import WRITE_TRANSACTIONAL_ID
from headrace.kafka.transaction_requests import code_for, producer_of
from headrace.model.errors import HeadraceError
from headrace.model.ids import NO_PRODUCER
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.end_txn.v5.request import EndTxnRequest
    from kio.schema.end_txn.v5.response import EndTxnResponse

KEY = 26
_BUMPS_EPOCH_FROM = 5


@handles(KEY, 0, 5, needs=(WRITE_TRANSACTIONAL_ID,))
async def end_txn(ctx: Context, request: "EndTxnRequest") -> "EndTxnResponse":
    error, next_producer = ErrorCode.none, NO_PRODUCER
    try:
        ctx.require(WRITE_TRANSACTIONAL_ID, request.transactional_id)
        next_producer = await ctx.services.transactions.end(
            request.transactional_id,
            producer_of(request),
            committed=request.committed,
            bumps_epoch=ctx.version >= _BUMPS_EPOCH_FROM,
        )
    except HeadraceError as failure:
        error = code_for(failure, knows_fenced=ctx.version >= 2, knows_abortable=ctx.version >= 4)
    return make(
        ctx.schema.EndTxnResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        producer_id=next_producer.producer_id,
        producer_epoch=next_producer.epoch,
    )
