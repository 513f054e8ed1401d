"""The states of a transactional id, and the transitions between them.

    Empty          a producer is initialized, and has no transaction yet
    Ongoing        partitions were added: a transaction is open
    PrepareCommit  decided: markers are being written, and the decision is final
    PrepareAbort
    CompleteCommit every marker is written
    CompleteAbort
    Dead           expired: its tombstone is being written

Kafka has one more, PrepareEpochFence, between Ongoing and PrepareAbort while a newer instance or the timeout fences the
producer. Here the record that decides the abort carries the new epoch, so the two are one step.
"""

from collections.abc import Mapping
from enum import StrEnum

from headrace.model.errors import InvalidTransaction


class TransactionState(StrEnum):
    """The values are Kafka's names, which clients see and the log stores."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


TRANSITIONS: Mapping[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.ONGOING: frozenset(
        {TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.COMPLETE_ABORT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.DEAD: frozenset(),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}
"""The allowed transitions. From an idle state to PrepareAbort: an abort of nothing, which bumps the epoch (KIP-890)."""

DECIDED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})

COMPLETES: Mapping[TransactionState, TransactionState] = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


def check_transition(old: TransactionState, new: TransactionState) -> None:
    if new not in TRANSITIONS[old]:
        raise InvalidTransaction(f"a transaction in state {old} cannot become {new}")
