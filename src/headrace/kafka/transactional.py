"""What the handlers of transactions share: who asks, and errors in the words of the request's version.

Older clients do not know some codes: PRODUCER_FENCED is INVALID_PRODUCER_EPOCH to them, and TRANSACTION_ABORTABLE is
INVALID_TXN_STATE.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.errors import error_code
from headrace.model.errors import CoordinatorError, HeadraceError, ProtocolError
from headrace.transactions.machine import Producer


def producer_of(request: Any) -> Producer:
    """Who asks, from a request or a part of one that names a transactional id; an empty one is refused."""
    if not request.transactional_id:
        raise ProtocolError("a transactional id may not be empty")
    return Producer(request.producer_id, request.producer_epoch)


def code_for(error: HeadraceError | None, *, knows_fenced: bool = True, knows_abortable: bool = True) -> ErrorCode:
    if error is None:
        return ErrorCode.none
    code = error_code(error)
    if code is ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and not knows_abortable:
        return ErrorCode.invalid_txn_state
    return code


def code_for_writing(error: HeadraceError, *, knows_abortable: bool, knows_concurrent: bool) -> ErrorCode:
    """What a Produce or TxnOffsetCommit is told when its transaction does not allow it.

    These clients do not expect to hear from a coordinator: what passes by itself is told as something they try again.
    """
    code = code_for(error, knows_fenced=False, knows_abortable=knows_abortable)
    if isinstance(error, CoordinatorError) or (code is ErrorCode.concurrent_transactions and not knows_concurrent):
        return ErrorCode.not_enough_replicas
    return code
