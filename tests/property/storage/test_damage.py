"""Bytes of log files are changed while the broker is down: what was not hit stays, what was hit never shows."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.profile import examples

from headrace.records.batch import iter_headers
from headrace.testing.disks import ModelDisk, PowerLoss, stop_at
from headrace.testing.logs import LogBench

SIZES = [30, 300, 10, 200, 80, 80, 80, 400, 5, 120, 60, 60, 250, 90]


def written_log(sizes: list[int]) -> tuple[ModelDisk, LogBench]:
    disk = ModelDisk()
    bench = LogBench(disk)
    for number, size in enumerate(sizes):
        bench.append(f"{number}:".encode().ljust(size, b"x"), f"{number}b".encode())
    bench.flush()
    return disk, bench


def batches_of(disk: ModelDisk, bench: LogBench) -> list[tuple[str, int, int, int]]:
    """File, position, end and base offset of each batch."""
    found = []
    for name in sorted(disk.files(bench.folder)):
        if name.endswith(".log"):
            data = disk.read_bytes(bench.folder / name)
            found += [(name, at, at + header.size, header.base_offset) for at, header in iter_headers(data)]
    return found


@settings(max_examples=examples(300), deadline=None)
@given(
    hits=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 40), st.integers(0, 255)), min_size=1, max_size=3),
    checkpointed=st.booleans(),
)
@example(hits=[(0, 8, 1)], checkpointed=True)
@example(hits=[(7, 1, 5)], checkpointed=False)
def test_damage_costs_only_the_batches_it_hits(hits: list[tuple[int, int, int]], checkpointed: bool) -> None:
    disk, bench = written_log(SIZES)
    before = list(bench.records())
    end_offset = bench.log.end_offset
    batches = batches_of(disk, bench)
    last_file = batches[-1][0]
    if checkpointed:
        bench.checkpoint()
    damaged: set[int] = set()
    for start, length, value in hits:
        name, at, end, base = batches[start % len(batches)]
        # No checksum covers the offsets: one wrong one is recognized, several that agree with each other are not.
        position = at + start % (end - at) if len(hits) == 1 else at + 8 + start % (end - at - 8)
        length = min(length, end - position)
        old = disk.read_bytes(bench.folder / name)[position : position + length]
        new = bytes([value]) * length
        if old != new:
            disk.damage(bench.folder / name, position, new)
            damaged.add(base)
    # A broker checks only from the segment of the recovery point on.
    checked_from = int(last_file[:20]) if checkpointed else 0
    again = bench.reopen(disk.after_process_kill())
    found = {record.offset: record for record in again.records()} if min(damaged, default=0) >= checked_from else None
    if found is None:
        return
    for record in before:
        base = max(b for _, _, _, b in batches if b <= record.offset)
        if base not in damaged:
            assert found.pop(record.offset) == record
    values = {record.value for record in before}
    assert all(record.value in values for record in found.values()), "nothing shows that was never written"
    if checkpointed:
        assert again.log.end_offset >= end_offset, "no offset that was on disk is given out again"
    offset = again.log.end_offset
    assert again.append(b"goes on").base_offset == offset
    assert [record.value for record in again.reopen_cleanly().records(offset)] == [b"goes on"]


@settings(max_examples=examples(100), deadline=None)
@given(cut=st.integers(0, 2500), garbage=st.binary(max_size=200))
def test_a_torn_tail_is_cut_off_and_nothing_else(cut: int, garbage: bytes) -> None:
    disk, bench = written_log(SIZES)
    before = list(bench.records())
    name, _, _, _ = batches_of(disk, bench)[-1]
    file = disk.open(bench.folder / name)
    keep = max(0, file.size() - cut)
    whole = [end for other, _, end, _ in batches_of(disk, bench) if other == name and end <= keep]
    file.truncate(keep)
    file.append((garbage,))
    again = bench.reopen(disk.after_process_kill())
    kept = list(again.records())
    assert kept == before[: len(kept)]
    expected = sum(1 for other, _, end, _ in batches_of(disk, bench) if other != name or end <= keep)
    assert len(kept) == 2 * expected
    assert again.log.active.size == (whole[-1] if whole else 0)
    assert not [name for name in again.disk.files(again.folder) if ".corrupt" in name]


def test_a_damaged_segment_is_kept_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    disk, bench = written_log(SIZES)
    name, at, end, base = batches_of(disk, bench)[2]
    disk.damage(bench.folder / name, at + 70, b"!!!!")
    original = disk.read_bytes(bench.folder / name)
    again = bench.reopen(disk.after_process_kill())
    assert again.disk.read_bytes(again.folder / (name + ".corrupt")) == original
    text = caplog.text
    assert f"{name} is damaged from position {at} to {end}" in text
    assert f"offsets from {base} up to {base + 2} are lost" in text
    offsets = [record.offset for record in again.records()]
    assert offsets == [offset for offset in range(28) if offset not in (base, base + 1)]
    assert next(again.records(base)).offset == base + 2, "a reader steps over the gap"
    # The next restart finds nothing to do.
    once_more = again.reopen()
    assert [record.offset for record in once_more.records()] == offsets
    assert len([n for n in once_more.disk.files(again.folder) if ".corrupt" in n]) == 1


def test_a_repair_may_be_interrupted_anywhere() -> None:
    disk, bench = written_log(SIZES)
    batches = batches_of(disk, bench)
    for name, at, _, _ in (batches[2], batches[-3]):
        disk.damage(bench.folder / name, at + 70, b"!!!!")
    lost = {base + i for _, _, _, base in (batches[2], batches[-3]) for i in (0, 1)}
    steps = len(bench.reopen(whole := disk.after_process_kill()).disk.steps)  # type: ignore[attr-defined]
    assert steps > 20
    for number in range(1, steps + 1):
        stopped = disk.after_process_kill()
        stopped.hook = stop_at(number)
        with pytest.raises(PowerLoss):
            bench.reopen(stopped)
        stopped.hook = None
        for left in (
            stopped.after_process_kill(),
            stopped.after_power_loss(),
            stopped.after_power_loss(Random(number)),
        ):
            again = bench.reopen(left)
            assert [record.offset for record in again.records()] == [at for at in range(28) if at not in lost]
            corrupt = [name for name in left.files(again.folder) if ".corrupt" in name]
            assert len(corrupt) == 2
            assert all(
                left.read_bytes(again.folder / name) == whole.read_bytes(again.folder / name) for name in corrupt
            )


def test_flushed_records_that_vanished_leave_a_gap_at_the_end() -> None:
    disk, bench = written_log(SIZES)
    bench.checkpoint()
    name, at, _, base = batches_of(disk, bench)[-1]
    disk.open(bench.folder / name).truncate(at + 40)
    again = bench.reopen(disk.after_process_kill())
    assert again.log.end_offset == 28
    assert [record.offset for record in again.records()][-1] == base - 1
    assert again.append(b"next").base_offset == 28
    assert [record.offset for record in again.reopen().records(base)] == [28]
