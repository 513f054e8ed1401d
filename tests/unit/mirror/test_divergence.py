"""Where histories part, and which records are set aside."""

from collections.abc import Iterable

import pytest

from headrace.mirror.divergence import (
    DivergentTransactions,
    TransactionRange,
    batches_of,
    divergent_chunk,
    parting_offset,
)
from headrace.model.links import Parting
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.storage.epochs import Epochs

PROMOTED = 200


def parted(
    own: Iterable[tuple[int, int]],
    source: Iterable[tuple[int, int]],
    *,
    end: int,
    source_end: int = 1000,
    start: int = 0,
    source_start: int = 0,
) -> int:
    """Where two logs part, each given by the start offsets of its leader epochs."""
    theirs = Epochs.from_entries(source)
    steps = parting_offset(
        Epochs.from_entries(own), start=start, end=end, source_start=source_start, promoted_epoch=PROMOTED
    )
    asked = next(steps)
    try:
        while True:
            asked = steps.send(theirs.end_offset_for(asked, source_end))
    except StopIteration as found:
        return int(found.value)


def test_the_histories_part_where_the_source_was_promoted() -> None:
    assert parted([(0, 0)], [(0, 0), (200, 40)], end=100) == 40
    assert parted([(0, 0), (3, 60)], [(0, 0), (200, 40)], end=100) == 40, "elected since, before the source was lost"
    assert parted([(0, 0), (3, 20)], [(0, 0), (3, 20), (200, 40), (205, 70)], end=100) == 40


def test_a_source_that_has_everything_parts_at_the_end() -> None:
    assert parted([(0, 0)], [(0, 0), (200, 100)], end=100) == 100
    assert parted([], [(200, 0)], end=0) == 0
    assert parted([(0, 0)], [(200, 0)], end=5) == 0, "nothing was copied"


def test_records_that_were_lost_here_are_compared_by_epochs() -> None:
    # An unclean election here: epoch 4 began at 30, while the source had copied epoch 3 up to 50.
    assert parted([(3, 0), (4, 30)], [(3, 0), (200, 50)], end=90) == 30
    # Another one: the source knows epoch 5, which nobody has here.
    assert parted([(3, 0), (4, 30), (6, 45)], [(3, 0), (5, 20), (200, 50)], end=90) == 20


@pytest.mark.parametrize("source_start", [40, 60, 2000])
def test_everything_is_set_aside_if_the_source_has_deleted_what_was_copied(source_start: int) -> None:
    theirs = [(200, source_start)]
    assert parted([(0, 0)], theirs, end=100, start=7, source_start=source_start, source_end=source_start) == 7


def test_what_retention_removed_here_is_not_looked_at() -> None:
    assert parted([(0, 50)], [(0, 0), (200, 40)], end=100, start=50) == 40
    assert parted([(0, 30)], [(0, 20), (200, 40)], end=100, start=30, source_start=20) == 40


def batch(base_offset: int, *values: bytes, producer: int = -1) -> bytes:
    records = [Record(0, 1000 + base_offset, b"k", value, (("h", b"1"),)) for value in values]
    return build_batch(records, base_offset=base_offset, producer_id=producer, transactional=producer >= 0)


def log() -> bytes:
    """Offsets 10 to 12 plain, 13 aborted, 14 its marker, 15 committed, 16 open, 17 plain."""
    marker = build_batch(
        [Record(0, 1, b"\0\0\0\0", b"")], base_offset=14, producer_id=1, transactional=True, control=True
    )
    return b"".join(
        [
            batch(10, b"a", b"b", b"c"),
            batch(13, b"aborted", producer=1),
            marker,
            batch(15, b"d", producer=1),
            batch(16, b"open", producer=2),
            batch(17, b"e"),
        ]
    )


TRANSACTIONS = DivergentTransactions([TransactionRange(1, 13, 14)], {2: 16})


def test_committed_records_are_set_aside_with_their_origin() -> None:
    chunk = divergent_chunk(log(), "orders", Parting(3, 11, 18, 11), TRANSACTIONS)
    assert [(each.offset, each.value) for each in chunk.records] == [(11, b"b"), (12, b"c"), (15, b"d"), (17, b"e")]
    first = chunk.records[0]
    assert (first.timestamp, first.key) == (1010, b"k")
    assert first.headers == (
        ("h", b"1"),
        ("headrace.divergent.topic", b"orders"),
        ("headrace.divergent.partition", b"3"),
        ("headrace.divergent.offset", b"11"),
    )
    assert chunk.parting == Parting(3, 11, 18, 18, set_aside=4, aborted=1, undecided=1)


def test_counting_comes_to_the_same_and_a_cut_batch_is_left_for_the_next_chunk() -> None:
    parting = Parting(3, 11, 18, 11)
    assert divergent_chunk(log(), "orders", parting, TRANSACTIONS, counts_only=True).parting == Parting(
        3, 11, 18, 18, 4, 1, 1
    )
    cut = divergent_chunk(log()[:-1], "orders", parting, TRANSACTIONS)
    assert cut.parting == Parting(3, 11, 18, 17, 3, 1, 1)
    rest = divergent_chunk(log(), "orders", cut.parting, TRANSACTIONS)
    assert [each.offset for each in rest.records] == [17]
    assert rest.parting.is_complete


def test_a_transaction_that_the_parting_divides_is_set_aside_with_its_beginning() -> None:
    data = b"".join(
        [
            batch(10, b"early", producer=5),
            batch(11, b"open", producer=2),
            batch(12, b"gone", producer=1),
            batch(13, b"x"),
        ]
    )
    divided = DivergentTransactions([TransactionRange(1, 12, 20)], {2: 11}, {5: 10, 2: 11, 1: 12})
    assert divided.first_offset(15) == 10
    assert DivergentTransactions([], {}).first_offset(15) == 15
    parting = Parting(3, 15, 20, divided.first_offset(15))
    rest = batch(15, b"late", producer=5) + batch(16, b"y")
    chunk = divergent_chunk(data + rest, "orders", parting, divided)
    assert [each.value for each in chunk.records] == [b"early", b"late", b"y"]
    assert chunk.parting == Parting(3, 15, 20, 17, set_aside=3)
    assert divergent_chunk(data + rest, "orders", parting, divided, counts_only=True).parting == chunk.parting


def test_nothing_past_the_fixed_end_is_set_aside() -> None:
    chunk = divergent_chunk(log(), "orders", Parting(3, 11, 13, 11), TRANSACTIONS)
    assert [each.offset for each in chunk.records] == [11, 12]
    assert chunk.parting.next_offset == 13


def test_batches_are_bounded_and_none_is_empty() -> None:
    records = [Record(offset, 0, None, b"x" * 1000) for offset in range(10)]
    groups = list(batches_of(records, 3500))
    assert [len(group) for group in groups] == [3, 3, 3, 1]
    assert [each for group in groups for each in group] == records
    assert list(batches_of(records[:1], 1)) == [records[:1]]
    assert list(batches_of([], 1)) == []
