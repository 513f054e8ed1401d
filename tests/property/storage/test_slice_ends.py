"""Slices of at most so many bytes: whole batches, without a gap between one and the next, whatever the batches are."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.profile import examples

from headrace.records.batch import iter_headers
from headrace.storage.index import SparseIndex
from headrace.storage.slice import Slice
from headrace.testing.disks import ModelFile
from headrace.testing.logs import SMALL, LogBench

SIZES = st.lists(st.integers(0, 900) | st.integers(3000, 9000), min_size=1, max_size=60)
LIMITS = st.integers(0, 400) | st.integers(400, 30_000)


def filled(sizes: list[int], *, segment_bytes: int, interval_bytes: int, is_reopened: bool) -> LogBench:
    """A log of batches with values of these sizes; reopened it knows no positions but those in its index."""
    chosen = replace(SMALL, segment_bytes=segment_bytes, index_interval_bytes=interval_bytes)
    bench = LogBench(settings=chosen)
    for number, size in enumerate(sizes):
        bench.append(*([bytes(size)] * (1 + number % 3)))
    return bench.reopen_cleanly() if is_reopened else bench


def batches_of(part: Slice) -> list[tuple[int, int]]:
    """First and next offset of each batch; the slice has nothing else."""
    data = part.file.read(part.position, part.length)
    headers = [header for _, header in iter_headers(data)]
    assert sum(header.size for header in headers) == part.length, "the last batch is cut off"
    return [(header.base_offset, header.next_offset) for header in headers]


@given(
    sizes=SIZES,
    limits=st.lists(LIMITS, min_size=1, max_size=5),
    segment_bytes=st.sampled_from([12_000, 30_000, 1 << 20]),
    interval_bytes=st.sampled_from([0, 150, 4096, 20_000]),
    is_reopened=st.booleans(),
    is_cached=st.booleans(),
    held_back=st.integers(0, 3),
)
@settings(max_examples=examples(150), deadline=None)
def test_fetches_one_after_another_have_all_records_once(
    sizes: list[int],
    limits: list[int],
    segment_bytes: int,
    interval_bytes: int,
    is_reopened: bool,
    is_cached: bool,
    held_back: int,
) -> None:
    # Three records of 9,000 bytes are one batch.
    bench = filled(
        sizes, segment_bytes=max(segment_bytes, 28_000), interval_bytes=interval_bytes, is_reopened=is_reopened
    )
    log = bench.log
    everything = [b for segment in log.segments for _, b in segment.headers()]
    below = max(0, log.end_offset - held_back)
    with pytest.MonkeyPatch.context() as patch:
        if not is_cached:
            patch.setattr(ModelFile, "read_cached", lambda *_: None)
        offset, found, turn = 0, [], 0
        while offset < below:
            max_bytes = limits[turn % len(limits)]
            turn += 1
            part = log.slice(offset, max_bytes, below, at_least_one=True)
            assert part is not None
            batches = batches_of(part)
            first = next(b for b in everything if b.base_offset == batches[0][0])
            assert part.length <= max(max_bytes, first.size)
            unlimited = log.slice(offset, 1 << 30, below, at_least_one=True)
            assert unlimited is not None
            assert unlimited.takes_bytes == unlimited.length
            assert part.takes_bytes == max(part.length, min(unlimited.length, max_bytes))
            assert (log.slice(offset, max_bytes, below, at_least_one=False) is None) is (first.size > max_bytes)
            assert part.end_offset in (-1, batches[-1][1], below)
            assert part.end_offset >= 0 or not is_cached
            following = next((b for b in everything if b.base_offset == batches[-1][1]), None)
            is_last = following is None or following.base_offset >= below
            if is_cached and not is_last and first.size <= max_bytes and not part.is_closed:
                assert following is not None
                assert part.length + following.size > max_bytes, "another batch would have fitted"
            found += batches
            offset = batches[-1][1]
        assert found == [(b.base_offset, b.next_offset) for b in everything if b.base_offset < below]
        assert all(one[1] == other[0] for one, other in pairwise(found))


def test_nothing_is_read_where_neither_index_nor_page_cache_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a kilobyte, of which the index knows every fifth: the slice ends where it knows one."""
    bench = filled([1000] * 60, segment_bytes=1 << 20, interval_bytes=4096, is_reopened=True)
    sizes = [header.size for _, header in bench.log.active.headers()]
    monkeypatch.setattr(ModelFile, "read_cached", lambda *_: None)
    part = bench.log.slice(0, 60_000, bench.log.end_offset, at_least_one=True)
    assert part is not None
    assert 60_000 - 4096 - max(sizes) < part.length <= 60_000
    assert part.end_offset == -1
    assert batches_of(part)


def test_an_index_that_does_not_match_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = filled([1000] * 60, segment_bytes=1 << 20, interval_bytes=4096, is_reopened=True)
    right = SparseIndex.floor_of_value

    def wrong(index: SparseIndex, value: int):
        entry = right(index, value)
        return entry and entry._replace(value=entry.value - 7)

    monkeypatch.setattr(SparseIndex, "floor_of_value", wrong)
    part = bench.log.slice(0, 5_000, bench.log.end_offset, at_least_one=True)
    assert part is not None
    assert batches_of(part)[-1][1] == part.end_offset


def test_those_who_read_on_find_the_next_batch_without_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = filled([1000] * 60, segment_bytes=1 << 20, interval_bytes=4096, is_reopened=True)
    part = bench.log.slice(0, 20_000, bench.log.end_offset, at_least_one=True)
    assert part is not None
    monkeypatch.setattr(SparseIndex, "floor", lambda *_: pytest.fail("the index was searched"))
    following = bench.log.slice(part.end_offset, 20_000, bench.log.end_offset, at_least_one=True)
    assert following is not None
    assert following.position == part.position + part.length
    assert following.first_batch_offset == part.end_offset


def test_a_truncation_forgets_where_slices_ended() -> None:
    bench = filled([1000] * 60, segment_bytes=1 << 20, interval_bytes=4096, is_reopened=True)
    part = bench.log.slice(0, 20_000, bench.log.end_offset, at_least_one=True)
    assert part is not None
    bench.log.truncate_to(part.end_offset - 1)
    bench.append(b"other", b"records")
    following = bench.log.slice(part.end_offset, 20_000, bench.log.end_offset, at_least_one=True)
    assert following is not None
    assert [header[0] for header in batches_of(following)] == [following.first_batch_offset]
    assert following.first_batch_offset <= part.end_offset
