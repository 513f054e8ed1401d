"""Checks of sent values against read values: 1, 2, 4 to 7, 9, 13 and 17."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from headrace.model.ids import TopicPartition
from headrace.testing.checkers.facts import ACKS_AGAIN, NO_ACKS, POWER_CUT, Facts, place_of
from headrace.testing.histories import Assign, Poll, Read, Revoke


def find_lost(facts: Facts) -> Iterator[str]:
    """Every acknowledged value up to the highest offset read is read, and a committed value that was read remains."""
    for send, end in facts.acked:
        place = place_of(send, end)
        if place is None or send.value in facts.final or facts.may_be_gone(*place):
            continue
        where, offset = place
        if offset <= facts.highest.get(where, -1):
            yield f"{send.value} was acknowledged at {where} offset {offset}; {facts.highest[where]} is read, it is not"
    if facts.healed_at is None:
        return
    promised = {send.value for send, _ in facts.acked}
    gone = {
        read.value: read
        for poll, read in facts.reads
        if poll.committed and read.value not in facts.final and not facts.may_be_gone(read.topic_partition, read.offset)
    }
    for value, read in gone.items():
        if value not in promised:
            yield f"{value} was read at {read.topic_partition} offset {read.offset}, and is not there in the end"


def find_unseen(facts: Facts) -> Iterator[str]:
    """After healing and reading everything, every acknowledged value has been read."""
    if facts.healed_at is None:
        return
    for send, end in facts.acked:
        if send.value in facts.final:
            continue
        place = place_of(send, end)
        if place is None:
            yield f"{send.value} was acknowledged for {send.topic} and is not there in the end"
        elif place[1] > facts.highest.get(place[0], -1) and not facts.may_be_gone(*place):
            yield f"{send.value} was acknowledged at {place[0]} offset {place[1]} and is never read"
    handled = {send.of for send in facts.history.sends if send.of is not None and send.value in facts.final}
    if handled:
        sources = {facts.sends[value].topic for value in handled if value in facts.sends}
        for value in facts.final - handled:
            if value in facts.sends and facts.sends[value].topic in sources:
                yield f"{value} was never handled: nothing that was made from it is there in the end"


def find_duplicates(facts: Facts) -> Iterator[str]:
    """Each value of an idempotent producer is at one offset, and each value was processed once."""
    for value, places in facts.places.items():
        send = facts.sends.get(value)
        if len(places) > 1 and (send is None or send.idempotent):
            yield f"{value} is at {', '.join(f'{where} offset {offset}' for where, offset in sorted(places))}"
    made: dict[str, set[str]] = defaultdict(set)
    for poll, read in facts.reads:
        send = facts.sends.get(read.value)
        if poll.committed and send is not None and send.of is not None:
            made[send.of].add(read.value)
    for source, values in made.items():
        if len(values) > 1:
            yield f"{source} was handled {len(values)} times: {', '.join(sorted(values))}"


def find_inconsistent_offsets(facts: Facts) -> Iterator[str]:
    """An offset of a partition always has the same value, for every reader."""
    values: dict[tuple[TopicPartition, int], set[str]] = defaultdict(set)
    for value, places in facts.places.items():
        for place in places:
            values[place].add(value)
    for (where, offset), found in values.items():
        if len(found) > 1:
            yield f"{where} offset {offset} is {' and '.join(sorted(found))}"


def find_skips(facts: Facts) -> Iterator[str]:
    """The offsets that a consumer polls increase, and skip nothing that another consumer has seen."""
    next_offsets: dict[tuple[str, TopicPartition], int] = {}
    for line in facts.history.reading:
        match line:
            case Assign():
                for position in line.partitions:
                    if position.offset >= 0:
                        next_offsets[line.by, position.topic_partition] = position.offset
                    else:
                        next_offsets.pop((line.by, position.topic_partition), None)
            case Revoke():
                for where in line.partitions:
                    next_offsets.pop((line.by, where), None)
            case Poll():
                for read in line.records:
                    expected = next_offsets.get((line.by, read.topic_partition))
                    if expected is not None:
                        yield from _compare(facts, line.by, expected, read)
                    next_offsets[line.by, read.topic_partition] = read.offset + 1


def _compare(facts: Facts, by: str, expected: int, read: Read) -> Iterator[str]:
    where = read.topic_partition
    if read.offset < expected:
        yield f"{by} went back in {where}: offset {read.offset} came after {expected - 1}"
        return
    known = facts.visible.get(where, [])
    first = max(expected, facts.deleted.get(where, 0))
    skipped = known[bisect_left(known, first) : bisect_left(known, read.offset)]
    if skipped:
        yield f"{by} skipped {len(skipped)} in {where}: {skipped[0]} is there, {read.offset} came after {expected - 1}"


def find_reordered(facts: Facts) -> Iterator[str]:
    """An idempotent producer's values are in a partition in the order of its sends."""
    last: dict[tuple[str, TopicPartition], tuple[int, str]] = {}
    for send in facts.history.sends:
        places = facts.places.get(send.value, set())
        if not send.idempotent or len(places) != 1:
            continue
        ((where, offset),) = places
        before = last.get((send.by, where))
        if before is not None and offset < before[0]:
            yield f"{send.by} sent {send.value} after {before[1]}, and in {where} {offset} is before {before[0]}"
        else:
            last[send.by, where] = offset, send.value


def find_power_cut_losses(facts: Facts) -> Iterator[str]:
    """Values acknowledged before a power cut are readable after it."""
    cuts = [note.at for note in facts.history.notes if note.what == POWER_CUT]
    if not cuts or facts.healed_at is None:
        return
    for send, end in facts.acked:
        place = place_of(send, end)
        if end.at < max(cuts) and send.value not in facts.final and not (place and facts.may_be_gone(*place)):
            yield f"{send.value} was acknowledged before a power cut, and is gone after it"


def find_strangers(facts: Facts) -> Iterator[str]:
    """Every value read was sent, byte for byte."""
    for poll, read in facts.reads:
        if read.value not in facts.sends:
            where = f"{read.topic_partition} offset {read.offset}"
            yield f"{poll.by} read {read.value[:80]!r} at {where}, which was never sent"


def find_acks_without_sync(facts: Facts) -> Iterator[str]:
    """While no disk can sync, nothing is acknowledged."""
    began: float | None = None
    spans: list[tuple[float, float]] = []
    for note in facts.history.notes:
        if note.what == NO_ACKS and began is None:
            began = note.at
        elif note.what == ACKS_AGAIN and began is not None:
            spans.append((began, note.at))
            began = None
    if began is not None:
        spans.append((began, float("inf")))
    for send, end in facts.history.ended_ok(facts.history.sends):
        if any(start < send.at and end.at < stop for start, stop in spans):
            yield f"{send.value} was acknowledged while nothing could be synced"
