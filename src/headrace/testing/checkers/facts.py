"""Facts derived from a history, computed once for all checks."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from headrace.model.ids import PartitionIndex, TopicPartition
from headrace.testing.histories import End, History, Poll, Read, SendOperation

HEALED, POWER_CUT, NO_ACKS, ACKS_AGAIN = "healed", "power cut", "no acks", "acks again"
"""The notes that the checks interpret."""

TxnKey = tuple[str, int]
"""The producer of a transaction, and the id of its `begin`."""
Outcome = Literal["committed", "aborted", "unknown"]


class Facts:
    """Facts derived from a history, computed once for all checks."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.sends: dict[str, SendOperation] = {send.value: send for send in history.sends}
        self.healed_at: float | None = max((note.at for note in history.notes if note.what == HEALED), default=None)

    @cached_property
    def outcomes(self) -> Mapping[TxnKey, Outcome]:
        """The outcome of each transaction. One without a commit request is aborted in any case."""
        fates: dict[TxnKey, set[tuple[bool, str]]] = {(one.by, one.id): set() for one in self.history.begins}
        for finish in self.history.finishes:
            fates.setdefault((finish.by, finish.txn), set()).add((finish.commit, self.history.fate_of(finish)))
        return {key: _outcome(tried) for key, tried in fates.items()}

    def outcome_of(self, send: SendOperation) -> Outcome:
        """The outcome of a send, including that of its transaction."""
        fate = self.history.fate_of(send)
        if fate == "failed":
            return "aborted"
        if send.txn is not None:
            outcome = self.outcomes.get((send.by, send.txn), "unknown")
            return outcome if outcome != "committed" or fate == "ok" else "unknown"
        return "committed" if fate == "ok" else "unknown"

    @cached_property
    def acked(self) -> list[tuple[SendOperation, End]]:
        """The acknowledged sends whose transaction, if any, was committed."""
        return [(send, end) for send, end in self.history.ended_ok(self.history.sends) if self.is_promised(send)]

    def is_promised(self, send: SendOperation) -> bool:
        return self.outcome_of(send) == "committed"

    @cached_property
    def reads(self) -> list[tuple[Poll, Read]]:
        return [(poll, read) for poll in self.history.polls for read in poll.records]

    @cached_property
    def places(self) -> Mapping[str, set[tuple[TopicPartition, int]]]:
        """The offsets of each value, according to its producer and its consumers."""
        found: dict[str, set[tuple[TopicPartition, int]]] = defaultdict(set)
        for send, end in self.history.ended_ok(self.history.sends):
            if (place := place_of(send, end)) is not None:
                found[send.value].add(place)
        for _, read in self.reads:
            found[read.value].add((read.topic_partition, read.offset))
        return found

    @cached_property
    def final(self) -> set[str]:
        """The values read after `healed`; all values read, if that was not recorded.

        For topics with read_committed consumers, only the values that these got.
        """
        healed_at = self.healed_at
        late = [(poll, read) for poll, read in self.reads if healed_at is None or poll.at > healed_at]
        strict = {read.topic for poll, read in late if poll.committed}
        return {read.value for poll, read in late if poll.committed or read.topic not in strict}

    @cached_property
    def highest(self) -> Mapping[TopicPartition, int]:
        """The highest offset read of each partition."""
        found: dict[TopicPartition, int] = {}
        for _, read in self.reads:
            found[read.topic_partition] = max(read.offset, found.get(read.topic_partition, -1))
        return found

    @cached_property
    def deleted(self) -> Mapping[TopicPartition, int]:
        """The offsets below which records may have been deleted."""
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
        """The offsets that a consumer must not skip: acknowledged, or read with read_committed."""
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
