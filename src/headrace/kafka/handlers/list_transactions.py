"""ListTransactions (66), versions 0-2: the transactional ids that this broker coordinates.

Filtered by state, by producer id, from v1 on by how long a transaction has been open, and from v2 on by a regular
expression for the id, in RE2's syntax. Unknown state names are returned as such. While a shard is loading:
COORDINATOR_LOAD_IN_PROGRESS, rather than a partial list. Only transactional ids with the permission DESCRIBE are
listed; there is no error.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import DESCRIBE_TRANSACTIONAL_ID
from headrace.model.errors import HeadraceError
from headrace.model.patterns import topic_pattern
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.transactions.states import TransactionState

if TYPE_CHECKING:
    from kio.schema.list_transactions.v2.request import ListTransactionsRequest
    from kio.schema.list_transactions.v2.response import ListTransactionsResponse
    from kio.schema.list_transactions.v2.response import TransactionState as ListedTransaction

KEY = 66
_STATES = frozenset(state.value for state in TransactionState)


@handles(KEY, 0, 2, needs=(DESCRIBE_TRANSACTIONAL_ID,))
def list_transactions(ctx: Context, request: "ListTransactionsRequest") -> "ListTransactionsResponse":
    schema = ctx.schema
    states, producers = set(request.state_filters), set(request.producer_id_filters)
    duration_ms = getattr(request, "duration_filter", -1)
    pattern = getattr(request, "transactional_id_pattern", None)
    now_ms = ctx.services.clock.wall_ms()
    error = ErrorCode.none
    found: list[ListedTransaction] = []
    try:
        is_wanted = topic_pattern(pattern).matches if pattern else _is_any
        for transactional_id, transaction in ctx.services.transactions.all():
            if (
                (states and transaction.state not in states)
                or (producers and transaction.producer_id not in producers)
                or not is_wanted(transactional_id)
                or (duration_ms >= 0 and not 0 <= transaction.started_ms <= now_ms - duration_ms)
                or not ctx.shows(DESCRIBE_TRANSACTIONAL_ID, transactional_id)
            ):
                continue
            found.append(
                make(
                    schema.TransactionState,
                    transactional_id=transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.value,
                )
            )
    except HeadraceError as failure:
        error, found = error_code(failure), []
    return make(
        schema.ListTransactionsResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        unknown_state_filters=tuple(sorted(states - _STATES)),
        transaction_states=tuple(found),
    )


def _is_any(_: str) -> bool:
    return True
