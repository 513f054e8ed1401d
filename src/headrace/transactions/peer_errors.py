"""The mapping from another broker's error code to the exception it stands for."""

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


def error_for(code: ErrorCode, broker_id: int, what: str) -> HeadraceError | None:
    """The exception for a code; None for success. An unmapped code counts as no response (`PeerUnavailable`)."""
    if code is ErrorCode.none:
        return None
    kind = _ERRORS.get(code, errors.PeerUnavailable)
    return kind(f"{what}: broker {broker_id} responded {code.name.upper()}")
