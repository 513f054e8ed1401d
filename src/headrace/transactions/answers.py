"""What another broker answered, as the error that it would have been here."""

from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from headrace.model import errors
from headrace.model.errors import HeadraceError

_ERRORS: Mapping[ErrorCode, type[HeadraceError]] = {
    ErrorCode.concurrent_transactions: errors.ConcurrentTransactions,
    ErrorCode.coordinator_load_in_progress: errors.CoordinatorLoading,
    ErrorCode.coordinator_not_available: errors.CoordinatorNotAvailable,
    ErrorCode.invalid_producer_epoch: errors.FencedProducer,
    ErrorCode.invalid_producer_id_mapping: errors.InvalidProducerMapping,
    ErrorCode.invalid_txn_state: errors.InvalidTransaction,
    ErrorCode.not_coordinator: errors.NotCoordinator,
    ErrorCode.not_enough_replicas: errors.NotEnoughReplicas,
    ErrorCode.not_leader_or_follower: errors.NotLeader,
    ErrorCode.producer_fenced: errors.SupersededProducer,
    ErrorCode.transaction_abortable: errors.TransactionAbortable,
    ErrorCode.transaction_coordinator_fenced: errors.FencedCoordinator,
    ErrorCode.unknown_topic_or_partition: errors.UnknownTopic,
}


def error_of(code: ErrorCode, broker_id: int, what: str) -> HeadraceError | None:
    """None for success. A code that says nothing about what was asked is as if the broker had not answered."""
    if code is ErrorCode.none:
        return None
    kind = _ERRORS.get(code, errors.PeerUnavailable)
    return kind(f"{what}: broker {broker_id} says {code.name.upper()}")
