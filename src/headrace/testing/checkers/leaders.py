"""Checks of leader elections and of acknowledgements by leaders: 10 and 11."""

from collections.abc import Iterator

from headrace.model.ids import TopicPartition
from headrace.testing.checkers.facts import Facts, place_of
from headrace.testing.histories import MetadataState, Read


def find_unclean_elections(facts: Facts) -> Iterator[str]:
    """A new leader was in the previous ISR, and gets a new epoch."""
    last: dict[TopicPartition, MetadataState] = {}
    for state in facts.history.states:
        where = TopicPartition(state.topic, state.partition)
        before = last.get(where)
        last[where] = state
        if before is None or before.partition_epoch + 1 != state.partition_epoch:
            continue
        if state.leader_epoch < before.leader_epoch:
            yield f"{where} went from leader epoch {before.leader_epoch} to {state.leader_epoch}"
        if state.leader >= 0 and state.leader != before.leader:
            if state.leader not in before.isr:
                yield f"broker {state.leader} was elected leader of {where}; the ISR was {sorted(before.isr)}"
            if state.leader_epoch == before.leader_epoch:
                yield f"{where} went from leader {before.leader} to {state.leader} within epoch {state.leader_epoch}"


def find_stale_acks(facts: Facts) -> Iterator[str]:
    """Every later leader has what was acknowledged; leader epochs never decrease along a partition."""
    at: dict[tuple[TopicPartition, int], Read] = {(read.topic_partition, read.offset): read for _, read in facts.reads}
    for send, end in facts.acked:
        place = place_of(send, end)
        read = None if place is None else at.get(place)
        if read is not None and read.value != send.value:
            where, offset = read.topic_partition, read.offset
            epoch = f", of leader epoch {read.leader_epoch}" if read.leader_epoch >= 0 else ""
            yield f"{send.value} was acknowledged at {where} offset {offset}, which is {read.value}{epoch}"
    newest: dict[TopicPartition, Read] = {}
    for (where, offset), read in sorted(at.items()):
        before = newest.get(where)
        if read.leader_epoch < 0:
            continue
        if before is not None and read.leader_epoch < before.leader_epoch:
            yield (
                f"{where} has leader epoch {before.leader_epoch} at offset {before.offset} "
                f"and {read.leader_epoch} at {offset}"
            )
        else:
            newest[where] = read
