"""Helpers of the transaction handlers: the producer of a request, checks with the coordinator, error codes by version.

Older clients do not know some codes: they get INVALID_PRODUCER_EPOCH for PRODUCER_FENCED, and INVALID_TXN_STATE for
TRANSACTION_ABORTABLE.
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
    """Return the producer of a request, or of a part of one, with a transactional id; refuses an empty one."""
    if not request.transactional_id:
        raise ProtocolError("a transactional id may not be empty")
    return ProducerIdAndEpoch(request.producer_id, request.producer_epoch)


@asynccontextmanager
async def joined(
    services: Services, transactional_id: str, wanted: Mapping[ProducerIdAndEpoch, Sequence[Partition]], *, adds: bool
) -> AsyncIterator[Problems]:
    """Add or verify partitions with the coordinator before a write, and yield the refused ones with their errors.

    The body must write without awaiting: the coordinator's answers are valid only for that long.
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
    """Return the code for a Produce or TxnOffsetCommit that its transaction does not allow.

    These clients do not expect a coordinator's errors: transient ones are mapped to codes that they retry.
    """
    code = code_for(error, knows_fenced=False, knows_abortable=knows_abortable)
    if isinstance(error, CoordinatorError) or (code is ErrorCode.concurrent_transactions and not knows_concurrent):
        return ErrorCode.not_enough_replicas
    return code
