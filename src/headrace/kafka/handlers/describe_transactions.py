"""DescribeTransactions (65), version 0: the coordinator's state of transactional ids.

Permissions: DESCRIBE on each transactional id, else it is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, whether or not it
exists; topics without DESCRIBE are left out.
"""

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID
from headrace.model.errors import HeadraceError, ProtocolError, TransactionalIdNotFound
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE, from_ms, wall_time
from headrace.transactions.records import TransactionEntry
from headrace.transactions.states import TransactionState

if TYPE_CHECKING:
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
    from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse
    from kio.schema.describe_transactions.v0.response import TransactionState as DescribedState

KEY = 65
_NOTHING = TransactionEntry(0, 0, TransactionState.EMPTY, 0, 0, started_ms=0)


@handles(KEY, 0, 0, needs=(DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC))
async def describe_transactions(ctx: Context, request: "DescribeTransactionsRequest") -> "DescribeTransactionsResponse":
    states = [await _describe(ctx, transactional_id) for transactional_id in request.transactional_ids]
    return make(ctx.schema.DescribeTransactionsResponse, throttle_time=NO_THROTTLE, transaction_states=tuple(states))


async def _describe(ctx: Context, transactional_id: str) -> "DescribedState":
    schema = ctx.schema
    error, found = ErrorCode.none, None
    try:
        ctx.require(DESCRIBE_TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            raise ProtocolError("a transactional id may not be empty")
        found = await ctx.services.transactions.find(transactional_id)
        if found is None:
            raise TransactionalIdNotFound(f"the transactional id {transactional_id} does not exist")
    except HeadraceError as failure:
        error = error_code(failure)
    transaction = found or _NOTHING
    return make(
        schema.TransactionState,
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="" if found is None else transaction.state.value,
        transaction_timeout=from_ms(transaction.timeout_ms),
        transaction_start_time=wall_time(transaction.started_ms),
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(
            make(schema.TopicData, topic=topic, partitions=tuple(index for _, index in places))
            for topic, places in groupby(sorted(transaction.partitions), key=itemgetter(0))
            if ctx.shows(DESCRIBE_TOPIC, topic)
        ),
    )
