"""What compaction decides, without files."""

from typing import Any

import pytest

from headrace.records.batch import DELETE_HORIZON, check_batch
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.markers import build_reset_marker
from headrace.records.reader import Record, iter_records
from headrace.storage.aborted import AbortedTransactions
from headrace.storage.compaction import Compactor, OffsetMap, SegmentView, clean_range, fits_behind

NOW = 1_700_000_000_000
DAY = 86_400_000
NEVER = 2**63 - 1


def quiet() -> None:
    pass


def batch_of(base_offset: int, *items: tuple[bytes | None, bytes | None], **options: Any) -> bytes:
    return build_batch([Record(0, NOW, key, value) for key, value in items], base_offset=base_offset, **options)


def map_of(*batches: bytes, max_bytes: int = 1 << 20) -> OffsetMap:
    offsets = OffsetMap(max_bytes)
    for batch in batches:
        assert offsets.add(batch, check_batch(batch), quiet)
    return offsets


def compactor(offsets: OffsetMap, now_ms: int = NOW, **last_batches: int) -> Compactor:
    return Compactor(
        aborted=AbortedTransactions(),
        offsets=offsets,
        last_batches={int(producer[1:]): offset for producer, offset in last_batches.items()},
        now_ms=now_ms,
        delete_retention_ms=DAY,
        pause=quiet,
    )


def contents(batch: object) -> list[tuple[int, bytes | None, bytes | None]]:
    assert isinstance(batch, bytes | memoryview)
    return [(record.offset, record.key, record.value) for record in iter_records(batch)]


@pytest.mark.parametrize("codec", Codec)
def test_replaced_records_go_and_the_others_stay_where_they_are(codec: Codec) -> None:
    old = batch_of(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), codec=codec)
    new = batch_of(3, (b"b", b"2"), (b"c", b"1"), codec=codec)
    work = compactor(map_of(old, new))
    assert contents(work.compact(old, check_batch(old))) == [(2, b"a", b"2")]
    assert work.compact(new, check_batch(new)) is new
    assert (work.records_read, work.records_retained) == (5, 3)


def test_a_reset_marker_stays() -> None:
    marker = build_reset_marker(NOW)
    data = batch_of(1, (b"a", b"1"))
    for now_ms in (NOW, NOW + 2 * DAY):
        assert compactor(map_of(data), now_ms).compact(marker, check_batch(marker)) is marker


def test_a_batch_without_survivors_goes() -> None:
    old = batch_of(0, (b"a", b"1"))
    assert compactor(map_of(old, batch_of(1, (b"a", b"2")))).compact(old, check_batch(old)) is None


def test_what_lies_past_the_map_stays() -> None:
    first, second = batch_of(0, (b"a", b"1")), batch_of(1, (b"a", b"2"), (b"a", b"3"))
    work = compactor(map_of(first))
    assert work.compact(first, check_batch(first)) is first
    assert work.compact(second, check_batch(second)) is second


def test_records_without_a_key_go() -> None:
    batch = batch_of(0, (None, b"x"), (b"a", b"1"))
    assert contents(compactor(map_of(batch)).compact(batch, check_batch(batch))) == [(1, b"a", b"1")]


def test_tombstones_get_a_horizon_and_go_after_it() -> None:
    batch = batch_of(0, (b"a", None), (b"b", b"1"))
    first = compactor(map_of(batch))
    marked = first.compact(batch, check_batch(batch))
    assert contents(marked) == [(0, b"a", None), (1, b"b", b"1")]
    assert isinstance(marked, bytes)
    header = check_batch(marked)
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == first.next_horizon_ms == NOW + DAY

    soon = compactor(OffsetMap(1000), NOW + DAY - 1)
    soon.offsets.end_offset = 2
    assert soon.compact(marked, header) is marked
    assert soon.next_horizon_ms == NOW + DAY

    later = compactor(OffsetMap(1000), NOW + DAY)
    later.offsets.end_offset = 2
    left = later.compact(marked, header)
    assert contents(left) == [(1, b"b", b"1")]
    assert later.next_horizon_ms is None
    assert isinstance(left, bytes)
    assert [record.timestamp for record in iter_records(left)] == [NOW]


def test_a_replaced_tombstone_goes_at_once() -> None:
    old, new = batch_of(0, (b"a", None)), batch_of(1, (b"a", b"again"))
    assert compactor(map_of(old, new)).compact(old, check_batch(old)) is None


def test_the_last_batch_of_a_producer_stays_if_need_be_empty() -> None:
    earlier = batch_of(0, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    last = batch_of(1, (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=1)
    other = batch_of(2, (b"a", b"3"))
    work = compactor(map_of(earlier, last, other), p7=1)
    assert work.compact(earlier, check_batch(earlier)) is None
    empty = work.compact(last, check_batch(last))
    assert isinstance(empty, bytes)
    header = check_batch(empty)
    assert (header.record_count, header.base_sequence, header.last_offset) == (0, 1, 1)
    assert compactor(map_of(other), p7=1).compact(empty, header) is empty
    assert compactor(map_of(other), p7=9).compact(empty, header) is None


def test_control_batches_and_unreadable_ones_stay() -> None:
    control = build_batch([Record(0, NOW, b"a", b"x")], control=True)
    newer = batch_of(1, (b"a", b"y"))
    assert compactor(map_of(control, newer)).compact(control, check_batch(control)) is control
    broken = bytearray(batch_of(0, (b"a", b"x")))
    broken[61] = 0
    header = check_batch(batch_of(0, (b"a", b"x")))
    work = compactor(map_of(newer))
    assert work.compact(broken, header) is broken
    assert work.offsets.add(broken, header, quiet)


def test_long_keys_do_not_mix_with_each_other_or_with_short_ones() -> None:
    keys = [b"x" * 19, b"x" * 20, b"x" * 21, b"y" * 1000]
    offsets = map_of(batch_of(0, *((key, b"") for key in keys)))
    assert len(offsets) == 4
    assert [offsets.is_superseded(key, index) for index, key in enumerate(keys)] == [False] * 4
    assert offsets.is_superseded(b"y" * 1000, 2)
    assert not offsets.is_superseded(b"unknown", 0)


def test_the_map_is_bounded_but_takes_at_least_one_batch() -> None:
    offsets = OffsetMap(10 * 240)
    large = batch_of(0, *((str(n).encode(), b"") for n in range(50)))
    assert offsets.add(large, check_batch(large), quiet)
    more = batch_of(50, (b"k", b""))
    assert not offsets.add(more, check_batch(more), quiet)
    assert offsets.end_offset == 50


def view(base: int, end: int, size: int = 100, first: int = NOW, newest: int = NOW) -> SegmentView:
    return SegmentView(base, end, size, first, newest)


def dirty(closed: list[SegmentView], first_dirty: int = 0, **options: int) -> tuple[int, int, int, bool]:
    defaults = {"limit": 1000, "now_ms": NOW, "min_lag_ms": 0, "max_lag_ms": NEVER}
    found = clean_range(closed, first_dirty=first_dirty, **{**defaults, **options})
    return found.end, found.clean_bytes, found.dirty_bytes, found.is_overdue


def test_the_range_to_clean() -> None:
    closed = [view(0, 10), view(10, 20), view(20, 30)]
    assert dirty(closed) == (30, 0, 300, False)
    assert dirty(closed, 10) == (30, 100, 200, False)
    assert dirty(closed, 30) == (30, 300, 0, False)
    assert dirty(closed, limit=25) == (20, 0, 200, False)
    assert dirty([]) == (0, 0, 0, False)
    young = [view(0, 10, newest=NOW - 5000), view(10, 20, newest=NOW - 100), view(20, 30, newest=NOW - 9000)]
    assert dirty(young, min_lag_ms=1000) == (10, 0, 100, False)
    assert dirty(young, max_lag_ms=1000)[3] is False
    assert dirty([view(0, 10, first=NOW - 5000)], max_lag_ms=1000)[3] is True
    assert dirty([view(0, 10, first=NOW - 5000)], 10, max_lag_ms=1000)[3] is False


def test_neighbours_are_put_together_up_to_the_size_of_a_segment() -> None:
    assert fits_behind(0, 60, view(10, 20, 40), max_bytes=100)
    assert not fits_behind(0, 60, view(10, 20, 41), max_bytes=100)
    assert fits_behind(0, 0, view(10, 2**31 - 1, 1), max_bytes=100)
    assert not fits_behind(0, 0, view(10, 2**31, 1), max_bytes=100)
