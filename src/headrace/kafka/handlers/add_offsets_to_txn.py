"""AddOffsetsToTxn (25), versions 0-4: add a group's offsets to a transaction.

The group's partition of `__consumer_offsets` becomes part of the transaction: offsets that TxnOffsetCommit writes there
take effect when it commits. Errors as for AddPartitionsToTxn. Permissions: WRITE on the transactional id, READ on the
group.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import READ_GROUP, WRITE_TRANSACTIONAL_ID
from headrace.kafka.transaction_requests import code_for, producer_of
from headrace.model.errors import HeadraceError, InvalidGroupId
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
    from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse

KEY = 25


@handles(KEY, 0, 4, needs=(WRITE_TRANSACTIONAL_ID, READ_GROUP))
async def add_offsets_to_txn(ctx: Context, request: "AddOffsetsToTxnRequest") -> "AddOffsetsToTxnResponse":
    error = ErrorCode.none
    try:
        ctx.require(WRITE_TRANSACTIONAL_ID, request.transactional_id)
        ctx.require(READ_GROUP, request.group_id)
        producer = producer_of(request)
        if not request.group_id:
            raise InvalidGroupId("a transaction commits offsets of a group with a name")
        groups = ctx.services.groups.coordinator
        await groups.ensure_topic()
        place = (groups.topic, groups.index_for(request.group_id))
        await ctx.services.transactions.add(request.transactional_id, producer, [place])
    except HeadraceError as failure:
        error = code_for(failure, knows_fenced=ctx.version >= 2)
    return make(ctx.schema.AddOffsetsToTxnResponse, throttle_time=NO_THROTTLE, error_code=error)
