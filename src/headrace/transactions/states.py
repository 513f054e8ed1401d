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


class State(StrEnum):
    """The values are Kafka's names, which are told to clients and stored."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


LEADS_TO: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.DEAD: frozenset(),
    State.PREPARE_EPOCH_FENCE: frozenset(),
}
"""From a state straight to PrepareAbort, without Ongoing: an abort of nothing, which moves the epoch (KIP-890)."""

DECIDED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
IDLE = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})

COMPLETES: Mapping[State, State] = {
    State.PREPARE_COMMIT: State.COMPLETE_COMMIT,
    State.PREPARE_ABORT: State.COMPLETE_ABORT,
}


def check_step(old: State, new: State) -> None:
    if new not in LEADS_TO[old]:
        raise InvalidTransaction(f"a transaction that is {old} cannot become {new}")
