"""What the handlers of transactions share: who asks, what may be written, and errors in the words of the request's
version.

Older clients do not know some codes: PRODUCER_FENCED is INVALID_PRODUCER_EPOCH to them, and TRANSACTION_ABORTABLE is
INVALID_TXN_STATE.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.errors import error_code
from headrace.kafka.services import Services
from headrace.model.errors import CoordinatorError, CoordinatorNotAvailable, HeadraceError, ProtocolError
from headrace.model.ids import ProducerIdAndEpoch
from headrace.replication.partition import Partition
from headrace.transactions.add_partitions import Problems


def producer_of(request: Any) -> ProducerIdAndEpoch:
    """Who asks, from a request or a part of one that names a transactional id; an empty one is refused."""
    if not request.transactional_id:
        raise ProtocolError("a transactional id may not be empty")
    return ProducerIdAndEpoch(request.producer_id, request.producer_epoch)


@asynccontextmanager
async def joined(
    services: Services, transactional_id: str, wanted: Mapping[ProducerIdAndEpoch, Sequence[Partition]], *, adds: bool
) -> AsyncIterator[Problems]:
    """Ask the coordinator for partitions that are about to be written to, and say which may not be.

    What is inside must write without waiting: the answers hold for that long.
    """
    transactions = services.transactions
    guards = transactions.markers.guards
    problems: Problems = {}
    held = [
        (guards.hold(partition, producer.producer_id), partition, producer)
        for producer, partitions in wanted.items()
        for partition in partitions
    ]
    try:
        for producer, partitions in wanted.items():
            places = [(partition.topic, partition.index) for partition in partitions]
            problems.update(await transactions.partition_adder.join(transactional_id, producer, places, adds=adds))
        for guard, partition, _ in held:
            if guard.is_broken:
                problems[partition.topic, partition.index] = CoordinatorNotAvailable(
                    f"a transaction of {transactional_id} was ended on {partition} just now: try again"
                )
        yield problems
    finally:
        for guard, partition, producer in held:
            guards.release(guard, partition, producer.producer_id)


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
