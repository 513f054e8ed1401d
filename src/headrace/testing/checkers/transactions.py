"""Checks of transactions: 3, 8 and 12."""

from collections import defaultdict
from collections.abc import Iterator

from headrace.testing.checkers.facts import Facts, TxnKey, place_of
from headrace.testing.histories import Finish, SendOperation


def find_aborted_reads(facts: Facts) -> Iterator[str]:
    """A read_committed consumer never gets a value of an aborted transaction or of a refused send."""
    for poll, read in facts.reads:
        send = facts.sends.get(read.value)
        if poll.committed and send is not None and facts.outcome_of(send) == "aborted":
            yield f"{poll.by} read {read.value} at {read.topic_partition} offset {read.offset}, which was aborted"


def find_torn(facts: Facts) -> Iterator[str]:
    """A transaction is visible completely or not at all."""
    by_txn: dict[TxnKey, list[SendOperation]] = defaultdict(list)
    for send in facts.history.sends:
        if send.txn is not None and facts.history.fate_of(send) == "ok":
            by_txn[send.by, send.txn].append(send)
    committed = {read.value for poll, read in facts.reads if poll.committed}
    for (by, txn), sends in by_txn.items():
        shown = [send.value for send in sends if send.value in committed]
        hidden = [send.value for send in sends if send.value not in committed and _is_due(facts, send)]
        if shown and hidden:
            yield f"of transaction {txn} of {by} {shown[0]} is visible and {hidden[0]} is not"


def _is_due(facts: Facts, send: SendOperation) -> bool:
    """True if a visible value must have been read by now."""
    end = facts.history.end_of(send)
    place = None if end is None else place_of(send, end)
    if place is None:
        return facts.healed_at is not None
    if facts.may_be_gone(*place):
        return False
    return facts.healed_at is not None or place[1] <= facts.highest.get(place[0], -1)


def find_zombie_producers(facts: Facts) -> Iterator[str]:
    """A producer whose transactional id was taken over cannot complete anything that it starts after that."""
    history = facts.history
    owners: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for init, end in history.ended_ok(history.inits):
        owners[init.transactional_id].append((end.at, init.by))
    ids = {begin.by: begin.transactional_id for begin in history.begins}
    transactional = [send for send in history.sends if send.txn is not None]
    begun: list[SendOperation | Finish] = [*transactional, *history.finishes]
    for one, end in history.ended_ok(begun):
        taken = owners.get(ids.get(one.by, ""), [])
        own = max((at for at, by in taken if by == one.by and at <= one.at), default=None)
        if own is None:
            continue
        successor = next((by for at, by in taken if own < at < one.at and by != one.by), None)
        if successor is not None:
            what = f"sent {one.value}" if isinstance(one, SendOperation) else f"ended transaction {one.txn}"
            yield f"{one.by} {what} (ok at {end.at:.3f}), though {successor} had taken over {ids[one.by]}"
