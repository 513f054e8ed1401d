"""Whatever clients of a faultless queue do, nothing is found; and whatever is then broken in their history is."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.profile import examples
from tests.property.testing.queue_model import QueueModel

from headrace.model.ids import PartitionIndex
from headrace.testing.checkers import ACKS_AGAIN, CHECKS, HEALED, NO_ACKS, POWER_CUT, check, report
from headrace.testing.histories import AnyLine, Committed, End, History, Note, Poll, Read, SendOperation


def clean_lines(seed: int, steps: int) -> list[AnyLine]:
    with tempfile.TemporaryDirectory() as folder:
        return QueueModel(Path(folder), Random(seed)).run(steps)


Runs = st.tuples(st.integers(0, 2**32), st.integers(10, 80))


@given(Runs)
def test_nothing_is_found_in_the_history_of_a_faultless_queue(run: tuple[int, int]) -> None:
    anomalies = check(History.of(clean_lines(*run)))
    assert not anomalies, report(anomalies)


class Breaking:
    """The lines of a history, to be changed."""

    def __init__(self, lines: list[AnyLine], rng: Random) -> None:
        self.lines = lines
        self.rng = rng
        self.history = History.of(lines)
        self.healed_at = next(note.at for note in self.history.notes if note.what == HEALED)
        self.reads = [read for poll in self.history.polls if poll.by == "last" for read in poll.records]
        self.values = {read.value for read in self.reads}

    def acked(self, *, txn: bool | None = None) -> list[tuple[SendOperation, End]]:
        """Those that are there in the end; in transactions or not, or all."""
        sends = self.history.ended_ok(self.history.sends)
        return [one for one in sends if one[0].value in self.values and txn in (None, one[0].txn is not None)]

    def change_reads(self, change: Callable[[Poll, Read], list[Read]]) -> None:
        for index, line in enumerate(self.lines):
            if isinstance(line, Poll):
                records = tuple(new for read in line.records for new in change(line, read))
                self.lines[index] = msgspec.structs.replace(line, records=records)

    def hide(self, value: str) -> None:
        self.change_reads(lambda _, read: [] if read.value == value else [read])

    def change_one_poll(self, change: Callable[[list[Read]], object], *, least: int = 1, late: bool = True) -> None:
        polls = [
            index
            for index, line in enumerate(self.lines)
            if isinstance(line, Poll) and len(line.records) >= least and (late or line.at < self.healed_at)
        ]
        index = self.rng.choice(polls)
        poll = self.lines[index]
        assert isinstance(poll, Poll)
        records = list(poll.records)
        change(records)
        self.lines[index] = msgspec.structs.replace(poll, records=tuple(records))

    def change(self, line: AnyLine, **fields: object) -> None:
        self.lines[self.lines.index(line)] = msgspec.structs.replace(line, **fields)

    def highest(self, partition: int | None) -> int:
        return max(read.offset for read in self.reads if read.partition == partition)


def lose(broken: Breaking) -> None:
    below = [send for send, end in broken.acked(txn=False) if (end.offset or 0) < broken.highest(end.partition)]
    broken.hide(broken.rng.choice(below).value)


def leave_unread(broken: Breaking) -> None:
    last = [send for send, end in broken.acked(txn=False) if end.offset == broken.highest(end.partition)]
    broken.hide(broken.rng.choice(last).value)


def show_aborted(broken: Breaking) -> None:
    history = broken.history
    maybe = {(finish.by, finish.txn) for finish in history.finishes if finish.commit}
    sends = history.ended_ok(history.sends)
    aborted = [one for one in sends if one[0].txn is not None and (one[0].by, one[0].txn) not in maybe]
    send, end = broken.rng.choice(aborted)
    assert end.partition is not None
    assert end.offset is not None
    read = Read(send.topic, PartitionIndex(end.partition), end.offset, send.value)
    broken.change_one_poll(lambda records: records.append(read))


def repeat(broken: Breaking) -> None:
    read = broken.rng.choice(broken.reads)
    again = read._replace(offset=broken.highest(read.partition) + 1)
    broken.change_one_poll(lambda records: records.append(again))


def disagree(broken: Breaking) -> None:
    one, other = broken.rng.sample(broken.reads, 2)
    broken.change_one_poll(lambda records: records.append(one._replace(value=other.value)))


def skip(broken: Breaking) -> None:
    broken.change_one_poll(lambda records: records.pop(broken.rng.randrange(1, len(records) - 1)), least=3, late=False)


def go_back(broken: Breaking) -> None:
    def swap(records: list[Read]) -> None:
        at = broken.rng.randrange(len(records) - 1)
        records[at], records[at + 1] = records[at + 1], records[at]

    broken.change_one_poll(swap, least=2)


def reorder(broken: Breaking) -> None:
    acked = broken.acked(txn=False)
    pairs = [
        (one, other)
        for one in acked
        for other in acked
        if one[0].at < other[0].at and one[0].by == other[0].by and one[1].partition == other[1].partition
    ]
    (first, first_end), (second, second_end) = broken.rng.choice(pairs)
    broken.change(first_end, offset=second_end.offset)
    broken.change(second_end, offset=first_end.offset)
    other_value = {first.value: second.value, second.value: first.value}
    broken.change_reads(lambda _, read: [read._replace(value=other_value.get(read.value, read.value))])


def tear(broken: Breaking) -> None:
    acked = broken.acked(txn=True)
    pairs = [
        one for one, _ in acked for other, _ in acked if one is not other and (one.by, one.txn) == (other.by, other.txn)
    ]
    broken.hide(broken.rng.choice(pairs).value)


def lose_to_a_power_cut(broken: Breaking) -> None:
    send, end = broken.rng.choice(broken.acked(txn=False))
    broken.lines.append(Note(at=end.at + 0.5, by="nemesis", what=POWER_CUT))
    broken.hide(send.value)


def elect_anybody(broken: Breaking) -> None:
    changed = [state for state in broken.history.states if state.partition_epoch]
    broken.change(broken.rng.choice(changed), leader=4)


def ack_as_a_zombie(broken: Breaking) -> None:
    send, end = broken.rng.choice(broken.acked(txn=False))
    broken.lines.append(SendOperation(at=end.at, by="another", id=1, topic=send.topic, value="other"))
    broken.change_reads(lambda _, read: [read._replace(value="other") if read.value == send.value else read])


def let_epochs_go_down(broken: Breaking) -> None:
    later = [read for read in broken.reads if read.leader_epoch and read.offset]
    one = broken.rng.choice([read for read in later if any(_is_before(other, read) for other in broken.reads)])
    broken.change_reads(lambda _, read: [read._replace(leader_epoch=0) if read.value == one.value else read])


def _is_before(one: Read, other: Read) -> bool:
    return one.partition == other.partition and one.offset < other.offset and one.leader_epoch > 0


def let_a_zombie_produce(broken: Breaking) -> None:
    fenced = [
        end
        for finish in broken.history.finishes
        if (end := broken.history.end_of(finish)) is not None and end.fate == "failed"
    ]
    broken.change(broken.rng.choice(fenced), fate="ok")


def corrupt(broken: Breaking) -> None:
    broken.change_one_poll(lambda records: records.append(records.pop()._replace(value="garbage")))


def forget_a_commit(broken: Breaking) -> None:
    looks = [look for look in broken.history.committed if look.offsets]
    sure = {
        (commit.offsets[0].partition, commit.offsets[0].offset): end.at
        for commit, end in broken.history.ended_ok(broken.history.commits)
        if commit.offsets[0].offset
    }
    found = [
        (look, index)
        for look in looks
        for index, position in enumerate(look.offsets)
        if sure.get((position.partition, position.offset), look.began) < look.began
    ]
    look, index = broken.rng.choice(found)
    assert isinstance(look, Committed)
    offsets = [*look.offsets]
    offsets[index] = offsets[index]._replace(offset=offsets[index].offset - 1)
    broken.change(look, offsets=tuple(offsets))


def ack_without_a_disk(broken: Breaking) -> None:
    send, end = broken.rng.choice(broken.acked(txn=False))
    broken.lines.append(Note(at=send.at - 0.5, by="nemesis", what=NO_ACKS))
    broken.lines.append(Note(at=end.at + 0.5, by="nemesis", what=ACKS_AGAIN))


BROKEN: list[tuple[int, Callable[[Breaking], None]]] = [
    (1, lose),
    (2, leave_unread),
    (3, show_aborted),
    (4, repeat),
    (5, disagree),
    (6, skip),
    (6, go_back),
    (7, reorder),
    (8, tear),
    (9, lose_to_a_power_cut),
    (10, elect_anybody),
    (11, ack_as_a_zombie),
    (11, let_epochs_go_down),
    (12, let_a_zombie_produce),
    (13, corrupt),
    (15, forget_a_commit),
    (17, ack_without_a_disk),
]


@pytest.mark.parametrize(("number", "breaks"), BROKEN, ids=[breaks.__name__ for _, breaks in BROKEN])
@settings(max_examples=examples(25))
@given(run=Runs)
def test_what_is_broken_is_found(number: int, breaks: Callable[[Breaking], None], run: tuple[int, int]) -> None:
    seed, steps = run
    while True:
        broken = Breaking(clean_lines(seed, steps), Random(seed))
        try:
            breaks(broken)
        except (LookupError, ValueError):
            # `choice` and `sample` found nothing of the kind in this history; a longer one has it.
            steps *= 2
        else:
            break
    assert number in {one.number for one in check(History.of(broken.lines))}


def test_every_check_is_broken_in_some_way() -> None:
    assert {number for number, _ in BROKEN} == set(CHECKS)
