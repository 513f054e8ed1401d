"""Retention on real logs, on a disk in memory."""

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.cleaner_bench import COMPACT, DAY, DELETE, Bench

from headrace.storage.cleaner import Cleaner
from headrace.testing.disks import ModelDisk


def test_retention_by_time() -> None:
    bench = Bench(replace(DELETE, retention_ms=DAY))
    bench.put(("a", "1"))
    bench.roll()
    bench.clock.advance(DAY // 2)
    bench.put(("b", "2"))
    bench.roll()
    assert bench.retain() == 0
    bench.clock.advance(DAY // 2 + 1)
    assert bench.retain() == 1
    assert bench.log.start_offset == 1
    assert bench.items() == [(1, "b", "2")]


def test_without_a_policy_everything_stays() -> None:
    bench = Bench(replace(DELETE, cleanup_policy=(), retention_ms=1000, retention_bytes=1))
    for number in range(3):
        bench.put(("a", str(number)))
        bench.roll()
    bench.clock.advance(DAY)
    assert bench.retain() == 0
    assert bench.items() == [(number, "a", str(number)) for number in range(3)]


def test_a_lone_active_segment_past_retention_goes_too() -> None:
    bench = Bench(replace(DELETE, retention_ms=DAY))
    bench.put(("a", "1"))
    bench.flush()
    bench.clock.advance(DAY + 1)
    assert bench.retain() == 1
    assert (bench.log.start_offset, bench.log.end_offset, bench.records()) == (1, 1, [])
    bench.put(("b", "2"))
    assert bench.items() == [(1, "b", "2")]
    bench.reopen()
    assert bench.items() == [(1, "b", "2")]


@pytest.mark.parametrize("is_power_lost", [False, True])
def test_a_producer_whose_records_are_all_gone_is_known_after_a_crash(is_power_lost: bool) -> None:
    """Else what it sends again, not knowing that it was taken, would be taken a second time."""
    bench = Bench(replace(DELETE, retention_ms=1000))
    bench.put(("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    bench.flush()
    bench.clock.advance(1001)
    assert bench.retain() == 1
    assert isinstance(bench.disk, ModelDisk)
    bench.disk = bench.disk.after_power_loss() if is_power_lost else bench.disk.after_process_kill()
    bench.log = bench.open(bench.log.settings)
    assert bench.log.end_offset == 1
    bench.put(("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    assert bench.log.end_offset == 1
    bench.put(("a", "2"), producer_id=7, producer_epoch=0, base_sequence=1)
    assert bench.log.end_offset == 2


def test_what_is_closed_goes_even_where_there_is_no_room_to_close_the_active_segment() -> None:
    """Else a full disk would stay full."""
    bench = Bench(replace(DELETE, retention_ms=DAY))
    for number in range(30):
        bench.put(("key", f"value-{number}"))
    bench.flush()
    closed = len(bench.log.segments) - 1
    bench.clock.advance(2 * DAY)

    def hook(step: str, path: Path) -> None:
        if step == "create":
            raise OSError(errno.ENOSPC, "played")

    assert isinstance(bench.disk, ModelDisk)
    bench.disk.hook = hook
    assert bench.retain() == closed > 0
    assert len(bench.log.segments) == 1


def test_retention_by_size() -> None:
    bench = Bench(DELETE)
    for number in range(60):
        bench.put(("key", f"{number:050}"))
    bench.flush()
    sizes = [segment.size for segment in bench.log.segments]
    assert bench.retain() == 0
    bench.log.settings = replace(DELETE, retention_bytes=sum(sizes[2:]))
    assert bench.retain() == 2
    assert bench.log.size_bytes == sum(sizes[2:])
    bench.log.settings = replace(DELETE, retention_bytes=sum(sizes[3:]) + 1)
    assert bench.retain() == 0
    bench.log.settings = replace(DELETE, retention_bytes=0)
    assert bench.retain() == len(sizes) - 3
    assert len(bench.log.segments) == 1
    assert bench.records() != []


def test_records_that_come_in_while_retention_looks_are_not_taken_for_old() -> None:
    bench = Bench(replace(DELETE, retention_ms=DAY))
    bench.put(("a", "1"))
    bench.flush()
    bench.clock.advance(DAY + 1)

    async def run(work: Callable[[], Any]) -> Any:
        result = work()
        bench.put(("fresh", "2"))
        return result

    bench.cleaner = Cleaner(lambda: [bench.log], clock=bench.clock, run=run)
    bench.retain()
    assert (1, "fresh", "2") in bench.items()


def test_records_that_wait_for_their_acknowledgement_stay() -> None:
    bench = Bench(replace(DELETE, retention_ms=DAY))
    bench.put(("a", "1"), timestamp=0)
    assert bench.retain() == 0
    bench.flush()
    assert bench.retain() == 1


def test_segments_without_any_timestamp_count_from_when_they_were_opened() -> None:
    bench = Bench(replace(DELETE, retention_ms=DAY))
    bench.put(("a", "1"), timestamp=-1)
    bench.roll()
    bench.clock.advance(DAY // 2)
    bench.reopen()
    assert bench.retain() == 0
    bench.clock.advance(DAY // 2 + 1)
    assert bench.retain() == 0
    bench.clock.advance(DAY)
    assert bench.retain() == 1


def test_no_retention_without_end() -> None:
    bench = Bench(replace(DELETE, retention_ms=-1, retention_bytes=-1))
    bench.put(("a", "1"))
    bench.roll()
    bench.clock.advance(1000 * DAY)
    assert bench.retain() == 0


def test_compacted_topics_are_not_cut_but_may_be_both() -> None:
    bench = Bench(replace(COMPACT, retention_ms=DAY))
    bench.put(("a", "1"))
    bench.roll()
    bench.clock.advance(2 * DAY)
    assert bench.retain() == 0
    bench.log.settings = replace(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=DAY)
    assert bench.retain() == 1


def test_segments_before_a_start_offset_in_the_middle_stay_until_all_of_them_is_before_it() -> None:
    bench = Bench(DELETE)
    bench.put(("a", "1"))
    bench.put(("a", "2"))
    bench.log.advance_start(1)
    assert bench.retain() == 0
    assert len(bench.log.segments) == 1
    assert [offset for offset, _, _ in bench.items()] == [1]
