"""A log that has lost something says from where on, until that is gone."""

from headrace.storage.files import DAMAGED
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import LogBench, position_of


def bench_with_damage() -> tuple[LogBench, int]:
    """A log that was opened after a crash, with a batch in the middle that cannot be read any more; and its offset."""
    disk = ModelDisk()
    bench = LogBench(disk)
    for number in range(20):
        bench.append(b"%d" % number)
    path = bench.log.active.path
    lost = bench.log.end_offset - 3
    position = position_of(bench.log, lost)
    left = disk.after_process_kill()
    file = left.open(path)
    data = bytearray(file.read(0, file.size()))
    data[position + 64] ^= 1
    file.truncate(0)
    file.append((bytes(data),))
    file.sync_data()
    return bench.reopen(left), lost


def test_a_damaged_log_says_so_after_each_restart() -> None:
    bench, lost = bench_with_damage()
    assert bench.log.damaged_from == lost
    assert bench.log.end_offset == 20
    assert DAMAGED in bench.disk.files(bench.folder)
    bench = bench.reopen_cleanly()
    assert bench.log.damaged_from == lost


def test_it_is_whole_again_when_what_was_damaged_is_cut_off() -> None:
    bench, lost = bench_with_damage()
    bench.log.truncate_to(lost + 2)
    assert bench.log.damaged_from == lost
    bench.log.truncate_to(lost)
    assert bench.log.damaged_from is None
    assert bench.reopen().log.damaged_from is None


def test_it_is_whole_again_when_it_starts_anew() -> None:
    bench, _ = bench_with_damage()
    bench.log.truncate_fully_and_start_at(50)
    assert bench.log.damaged_from is None
    assert bench.reopen_cleanly().log.damaged_from is None


def test_damage_found_while_it_runs_is_remembered() -> None:
    bench = LogBench(ModelDisk())
    bench.append(b"x", b"y")
    bench.log.note_damage(1)
    bench.log.note_damage(2)
    assert bench.log.damaged_from == 1
    assert bench.reopen().log.damaged_from == 1
