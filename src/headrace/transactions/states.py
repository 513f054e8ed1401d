"""The life of a transactional id, as a table.

    Empty          a producer has it, and nothing was written since
    Ongoing        partitions were added: a transaction is open
    PrepareCommit  decided: markers are being written, and nothing can turn it back
    PrepareAbort
    CompleteCommit every marker is written
    CompleteAbort
    Dead           forgotten: its tombstone is being written

Kafka has one more, PrepareEpochFence, between Ongoing and PrepareAbort while a newer instance or the time limit fences
the producer. Here the record that decides the abort carries the new epoch, so the two are one step.
"""

from collections.abc import Mapping
from enum import StrEnum

from headrace.model.errors import InvalidTransaction


class TransactionState(StrEnum):
    """The values are Kafka's names, which are told to clients and stored."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


LEADS_TO: Mapping[TransactionState, frozenset[TransactionState]] = {
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
"""From a state straight to PrepareAbort, without Ongoing: an abort of nothing, which moves the epoch (KIP-890)."""

DECIDED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})

COMPLETES: Mapping[TransactionState, TransactionState] = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


def check_step(old: TransactionState, new: TransactionState) -> None:
    if new not in LEADS_TO[old]:
        raise InvalidTransaction(f"a transaction that is {old} cannot become {new}")
