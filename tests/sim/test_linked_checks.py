"""The checks of a former source that is reversed: each can fail, and reads a log as the broker must."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace.mirror.divergence import OFFSET_HEADER, PARTITION_HEADER, TOPIC_HEADER
from headrace.model.links import Parting
from headrace.records.builder import build_batch
from headrace.records.markers import Marker, build_marker, build_reset_marker
from headrace.records.reader import Record
from headrace.testing.sim.checks import CheckedBatch, Truth, Violation
from headrace.testing.sim.linked_checks import LinkedChecks, outcome_of, truth_below

PLACE = ("orders", 0)


def batch(base: int, *values: bytes, producer: int = -1) -> CheckedBatch:
    """A batch; of a transaction if it has a producer."""
    data = build_batch(
        [Record(0, 1000, None, value) for value in values],
        base_offset=base,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=producer >= 0,
    )
    return CheckedBatch(base, base + len(values), data)


def control(base: int, data: bytes) -> CheckedBatch:
    return CheckedBatch(base, base + 1, base.to_bytes(8, "big") + data[8:])


def end(base: int, producer: int, *, committed: bool) -> CheckedBatch:
    return control(base, build_marker(producer, 0, Marker(committed, 0), 1000))


LOG = [
    batch(0, b"a", b"b"),
    batch(2, b"c"),
    batch(3, b"d", b"e", producer=1),
    batch(5, b"f", producer=2),
    end(6, 1, committed=True),
    end(7, 2, committed=False),
    control(8, build_reset_marker(1000)),
    batch(9, b"g", b"h", producer=3),
]
EXPECTED = {2: b"c", 3: b"d", 4: b"e"}


def test_records_are_told_apart_by_what_ended_their_transactions() -> None:
    assert outcome_of(LOG, 2) == (EXPECTED, 1, 2)
    assert outcome_of(LOG, 7) == ({}, 0, 2)
    assert outcome_of(LOG[:5], 0) == ({0: b"a", 1: b"b", 2: b"c", 3: b"d", 4: b"e"}, 0, 1)


def test_a_transaction_that_the_parting_divides_is_set_aside_as_a_whole() -> None:
    assert outcome_of(LOG, 5) == ({3: b"d", 4: b"e"}, 1, 2)
    assert outcome_of(LOG, 6) == ({3: b"d", 4: b"e"}, 0, 2)


def truth_of(batches: list[CheckedBatch]) -> Truth:
    truth = Truth()
    for each in batches:
        truth.batches[each.base_offset] = each
        truth.end = each.next_offset
    return truth


def test_a_truth_is_cut_where_histories_part() -> None:
    truth = truth_of(LOG)
    truth.values, truth.offset_of, truth.markers = {1: b"b", 2: b"c"}, {b"b": 1, b"c": 2}, {6}
    truth.leaders, truth.end_by_epoch = {1: 7}, {0: 1, 1: 11}
    below = truth_below(truth, 2)
    assert (below.end, list(below.batches)) == (2, [0])
    assert (below.values, below.offset_of, below.markers) == ({1: b"b"}, {b"b": 1}, set())
    assert (below.leaders, below.end_by_epoch) == ({1: 7}, {0: 1, 1: 2})


class Reversed:
    """A former source with `LOG`, of which the new one has the first batch and one of its own."""

    def __init__(self) -> None:
        self.checks, self.checks.other = LinkedChecks("orders"), LinkedChecks("orders")
        self.truth = self.checks.truths[PLACE] = truth_of(LOG)
        self.source = self.checks.other.truths[PLACE] = truth_of([LOG[0], batch(2, b"of the new source")])
        self.parting = Parting(0, offset=2, end=11, next_offset=11, set_aside=3, aborted=1, undecided=2)
        for offset, value in EXPECTED.items():
            self.set_aside(offset, value)

    def set_aside(self, offset: int, value: bytes, *, partition: bytes = b"0") -> None:
        headers = ((TOPIC_HEADER, b"orders"), (PARTITION_HEADER, partition), (OFFSET_HEADER, b"%d" % offset))
        self.checks._add_record("test", ("orders.divergent", 0), Truth(), Record(0, 1000, None, value, headers))

    def check(self) -> None:
        self.checks._check_parting(PLACE, self.parting, self.truth)
        self.checks._check_set_aside(PLACE, self.parting, self.truth)


def test_a_reversal_without_a_mistake_passes_also_if_something_is_there_twice() -> None:
    bench = Reversed()
    bench.set_aside(2, b"c")
    bench.check()


def forget(bench: Reversed) -> None:
    bench.checks._aside[PLACE].pop(3)


def swap(bench: Reversed) -> None:
    bench.checks._aside[PLACE][3] = {b"x"}


def with_parting(**changes: int) -> Callable[[Reversed], None]:
    def change(bench: Reversed) -> None:
        bench.parting = replace(bench.parting, **changes)

    return change


@pytest.mark.parametrize(
    ("mistake", "what"),
    [
        pytest.param(forget, "1, 95: b'd' was committed at 3", id="lost"),
        pytest.param(swap, "1, 95: b'd' was committed at 3", id="another value"),
        pytest.param(lambda bench: bench.set_aside(5, b"f"), r"95: \[5\] of .* no committed", id="aborted"),
        pytest.param(lambda bench: bench.set_aside(9, b"g"), r"95: \[9\] of .* no committed", id="undecided"),
        pytest.param(with_parting(offset=0), "95: the histories .* part at 0 .* at 0 is also", id="too early"),
        pytest.param(with_parting(offset=3), "95: the histories .* part at 3 .* at 2 is not", id="too late"),
        pytest.param(with_parting(end=9), "95: 11 records .* fixed at 9", id="written after the end"),
        pytest.param(with_parting(set_aside=2), "95: .* other figures", id="wrong figures"),
        pytest.param(with_parting(undecided=0), "95: .* other figures", id="undecided are not reported"),
    ],
)
def test_a_mistake_of_a_reversal_is_found(mistake: Callable[[Reversed], None], what: str) -> None:
    bench = Reversed()
    mistake(bench)
    with pytest.raises(Violation, match=what):
        bench.check()


def test_a_record_that_names_another_place_is_found() -> None:
    with pytest.raises(Violation, match="95: a record that was set aside names"):
        Reversed().set_aside(3, b"d", partition=b"1")
