"""Lists transactional ids, and describes the state of each at its coordinator."""

from collections.abc import Iterable
from types import ModuleType
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.model.ids import ProducerIdAndEpoch
from headrace.protocol.codec import make
from headrace.protocol.transaction_state import DescribedTransaction, read_transaction_state
from headrace.wire.errors import check
from headrace.wire.router import TRANSACTION, LeaderRouter

DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66
_LIST_VERSION = 1
OPEN = "Ongoing"


class TransactionInfo(NamedTuple):
    transactional_id: str
    state: str
    producer: ProducerIdAndEpoch
    timeout_ms: int
    started_ms: int
    """The start time by the coordinator's clock; -1 if no transaction is open."""


def list_transactions(router: LeaderRouter, states: Iterable[str]) -> list[str]:
    wanted = tuple(states)

    def build(schema: ModuleType) -> Any:
        return make(schema.ListTransactionsRequest, state_filters=wanted, producer_id_filters=())

    def attempt() -> list[str]:
        found: list[str] = []
        for address in router.brokers().values():
            with router.using(address) as connection:
                answer = connection.call(LIST_TRANSACTIONS, _LIST_VERSION, build)
                check("listing the transactions", answer.error_code)
                found += [str(each.transactional_id) for each in answer.transaction_states]
        return sorted(found)

    return router.patiently(attempt)


def describe_transaction(router: LeaderRouter, transactional_id: str) -> TransactionInfo | None:
    def build(schema: ModuleType) -> Any:
        return make(schema.DescribeTransactionsRequest, transactional_ids=(transactional_id,))

    def attempt() -> TransactionInfo | None:
        found: DescribedTransaction = router.coordinated(
            TRANSACTION,
            transactional_id,
            DESCRIBE_TRANSACTIONS,
            0,
            build,
            read=lambda answer: read_transaction_state(answer.frame, answer.body_at),
        )
        if found.error_code == ErrorCode.transactional_id_not_found.value:
            return None
        if found.error_code:
            router.forget_coordinator(TRANSACTION, transactional_id)
            check(f"describing the transaction of {transactional_id}", found.error_code)
        producer = ProducerIdAndEpoch(found.producer_id, found.producer_epoch)
        return TransactionInfo(transactional_id, found.state, producer, found.timeout_ms, found.started_ms)

    return router.patiently(attempt)
