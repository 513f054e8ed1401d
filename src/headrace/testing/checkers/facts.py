"""What follows from a history, worked out once for all checks."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from headrace.model.ids import PartitionIndex, TopicPartition
from headrace.testing.histories import End, History, Poll, Read, SendOperation

HEALED, POWER_CUT, NO_ACKS, ACKS_AGAIN = "healed", "power cut", "no acks", "acks again"
"""The notes that mean something to the checks."""

TxnKey = tuple[str, int]
"""Who began a transaction, and the id of its beginning."""
Outcome = Literal["committed", "aborted", "unknown"]


class Facts:
    """What follows from a history, worked out once for all checks."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.sends: dict[str, SendOperation] = {send.value: send for send in history.sends}
        self.healed_at: float | None = max((note.at for note in history.notes if note.what == HEALED), default=None)

    @cached_property
    def outcomes(self) -> Mapping[TxnKey, Outcome]:
        """What became of each transaction. One that nobody asked to commit is aborted, whatever else happens."""
        fates: dict[TxnKey, set[tuple[bool, str]]] = {(one.by, one.id): set() for one in self.history.begins}
        for finish in self.history.finishes:
            fates.setdefault((finish.by, finish.txn), set()).add((finish.commit, self.history.fate_of(finish)))
        return {key: _outcome(tried) for key, tried in fates.items()}

    def outcome_of(self, send: SendOperation) -> Outcome:
        """What became of a send, its transaction included."""
        fate = self.history.fate_of(send)
        if fate == "failed":
            return "aborted"
        if send.txn is not None:
            outcome = self.outcomes.get((send.by, send.txn), "unknown")
            return outcome if outcome != "committed" or fate == "ok" else "unknown"
        return "committed" if fate == "ok" else "unknown"

    @cached_property
    def acked(self) -> list[tuple[SendOperation, End]]:
        """The sends that were acknowledged, with all of their transaction."""
        return [(send, end) for send, end in self.history.ended_ok(self.history.sends) if self.is_promised(send)]

    def is_promised(self, send: SendOperation) -> bool:
        return self.outcome_of(send) == "committed"

    @cached_property
    def reads(self) -> list[tuple[Poll, Read]]:
        return [(poll, read) for poll in self.history.polls for read in poll.records]

    @cached_property
    def places(self) -> Mapping[str, set[tuple[TopicPartition, int]]]:
        """Where each value was, by those who sent it and those who read it."""
        found: dict[str, set[tuple[TopicPartition, int]]] = defaultdict(set)
        for send, end in self.history.ended_ok(self.history.sends):
            if (place := place_of(send, end)) is not None:
                found[send.value].add(place)
        for _, read in self.reads:
            found[read.value].add((read.topic_partition, read.offset))
        return found

    @cached_property
    def final(self) -> set[str]:
        """What was read after all was healed; what anybody has read, if that was never noted.

        Of topics that somebody reads with read_committed, only what those got: there it must be visible to them.
        """
        healed_at = self.healed_at
        late = [(poll, read) for poll, read in self.reads if healed_at is None or poll.at > healed_at]
        strict = {read.topic for poll, read in late if poll.committed}
        return {read.value for poll, read in late if poll.committed or read.topic not in strict}

    @cached_property
    def highest(self) -> Mapping[TopicPartition, int]:
        """The highest offset that was read of each partition."""
        found: dict[TopicPartition, int] = {}
        for _, read in self.reads:
            found[read.topic_partition] = max(read.offset, found.get(read.topic_partition, -1))
        return found

    @cached_property
    def deleted(self) -> Mapping[TopicPartition, int]:
        """Below these offsets everything may be gone."""
        found: dict[TopicPartition, int] = {}
        for one in self.history.deletes:
            if self.history.fate_of(one) != "failed":
                where = TopicPartition(one.topic, one.partition)
                found[where] = max(one.before, found.get(where, 0))
        return found

    def may_be_gone(self, where: TopicPartition, offset: int) -> bool:
        return offset < self.deleted.get(where, 0)

    @cached_property
    def visible(self) -> Mapping[TopicPartition, list[int]]:
        """Offsets that a reader must not leave out: of what was acknowledged, or read with read_committed."""
        found: dict[TopicPartition, set[int]] = defaultdict(set)
        for send, end in self.acked:
            if (place := place_of(send, end)) is not None:
                found[place[0]].add(place[1])
        for poll, read in self.reads:
            if poll.committed:
                found[read.topic_partition].add(read.offset)
        return {where: sorted(offsets) for where, offsets in found.items()}


def _outcome(tried: set[tuple[bool, str]]) -> Outcome:
    if (True, "ok") in tried:
        return "committed"
    return "unknown" if (True, "unknown") in tried else "aborted"


def place_of(send: SendOperation, end: End) -> tuple[TopicPartition, int] | None:
    if end.partition is None or end.offset is None or end.offset < 0:
        return None
    return TopicPartition(send.topic, PartitionIndex(end.partition)), end.offset
