"""The sweep: a broker is stopped at each step it takes on disk, and the next one must find every acknowledged record.

Steps are writes, syncs, creations, renames, truncations and removals of appends, rolls, flushes, checkpoints, truncates
and deletions of records. At each, the process is killed (everything written is there), or the power goes (only what was
synced is there, or that and a random part of the rest).
"""

from contextlib import suppress
from functools import cache
from random import Random

import pytest

from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.security.encryption.data_keys import UnwrappedKeys
from headrace.storage.appender import ProducedBatch
from headrace.testing.disks import ModelDisk, PowerLoss, stop_at
from headrace.testing.logs import DATA_KEYS, LogBench

PRODUCER = 4000
TORN = (0.0, 0.5, 1.0)


class Promises:
    """What the broker has promised so far, and what may be there beside."""

    def __init__(self) -> None:
        self.written: dict[int, set[bytes]] = {}
        self.acked: dict[int, bytes] = {}
        self.start_offset = 0
        self.sequence = 0
        self.acked_batches: list[tuple[int, int, bytes]] = []
        """Sequence, offset and value of acknowledged batches of the idempotent producer, newest last."""


def append(bench: LogBench, promises: Promises, count: int, size: int = 40) -> None:
    for _ in range(count):
        offset = bench.log.end_offset
        value = f"{promises.sequence}-".encode().ljust(size, b"v")
        promises.written.setdefault(offset, set()).add(value)
        bench.append(value, producer=PRODUCER, sequence=promises.sequence, epoch=promises.sequence // 7)
        promises.sequence += 1


def append_together(bench: LogBench, promises: Promises, count: int) -> None:
    """Like `append`, with as few writes as possible."""
    batches: list[ProducedBatch] = []
    for _ in range(count):
        value = f"{promises.sequence}-".encode().ljust(40, b"v")
        promises.written.setdefault(bench.log.end_offset + len(batches), set()).add(value)
        record = Record(0, bench.clock.wall_ms(), None, value)
        data = build_batch([record], producer_id=PRODUCER, producer_epoch=0, base_sequence=promises.sequence)
        batches.append(ProducedBatch(data, read_header(data)))
        promises.sequence += 1
    epoch = max(0, bench.log.epochs.latest)
    while batches:
        run = bench.log.append_run(batches, epoch)
        if not run:
            bench.log.append(*batches[0], epoch)
        batches = batches[max(1, len(run)) :]


def flush(bench: LogBench, promises: Promises) -> None:
    before, upto = bench.log.flushed_offset, bench.log.end_offset
    bench.flush()
    assert bench.log.flushed_offset == upto
    for record in bench.records(max(before, bench.log.start_offset)):
        assert record.value is not None
        promises.acked[record.offset] = record.value
        sequence = int(record.value.split(b"-")[0])
        promises.acked_batches.append((sequence, record.offset, record.value))


def truncate(bench: LogBench, promises: Promises, offset: int) -> None:
    promises.acked = {at: value for at, value in promises.acked.items() if at < offset}
    promises.acked_batches = [batch for batch in promises.acked_batches if batch[1] < offset]
    bench.log.truncate_to(offset)
    last = max((batch for batch in promises.acked_batches), default=(-1,))
    promises.sequence = last[0] + 1


def delete_before(bench: LogBench, promises: Promises, offset: int) -> None:
    promises.acked = {at: value for at, value in promises.acked.items() if at >= offset}
    bench.log.advance_start(offset)
    promises.start_offset = offset


def life_of_a_log(disk: ModelDisk, promises: Promises, keys: UnwrappedKeys | None = None) -> None:
    bench = LogBench(disk, keys=keys)
    append(bench, promises, 3)
    flush(bench, promises)
    append(bench, promises, 9)  # over the end of the first segment
    bench.checkpoint()
    flush(bench, promises)
    bench.checkpoint()
    append(bench, promises, 2, size=200)
    bench.log.roll()
    append(bench, promises, 4)
    flush(bench, promises)
    delete_before(bench, promises, 10)
    bench.log.purge_deleted()
    append(bench, promises, 2)
    truncate(bench, promises, 16)
    append(bench, promises, 3, size=60)
    flush(bench, promises)
    truncate(bench, promises, 12)
    append(bench, promises, 12)
    flush(bench, promises)
    append_together(bench, promises, 9)
    flush(bench, promises)
    append_together(bench, promises, 4)
    bench.checkpoint()
    append(bench, promises, 1)
    bench = bench.reopen_cleanly()
    append(bench, promises, 5)
    flush(bench, promises)
    bench.manager.stop()


def check(disk: ModelDisk, promises: Promises, *, may_be_damaged: bool, keys: UnwrappedKeys | None = None) -> None:
    bench = LogBench(disk, keys=keys)
    records = list(bench.records())
    offsets = [record.offset for record in records]
    assert offsets == list(range(bench.log.start_offset, bench.log.end_offset)), "in order, once, and without a gap"
    found = {record.offset: record.value for record in records}
    for offset, value in promises.acked.items():
        assert found.get(offset) == value, f"the acknowledged record at {offset} is there"
    for offset, stored in found.items():
        assert stored in promises.written[offset], "nothing that was never written"
    assert bench.log.start_offset >= promises.start_offset, "deleted records do not come back"
    assert bench.log.end_offset > max(promises.acked, default=-1), "no offset is given out again"
    after_another_stop = bench.reopen(disk.after_power_loss())
    assert list(after_another_stop.records()) == records, "what was recovered is on disk"
    check_producers(bench)
    check_producers(after_another_stop)
    if not may_be_damaged:
        assert not [name for name in disk.files(bench.folder) if ".corrupt" in name]
        for sequence, offset, value in promises.acked_batches[-2:]:
            if offset >= bench.log.start_offset and bench.log.end_offset - offset <= 5:
                result = bench.append(value, producer=PRODUCER, sequence=sequence, epoch=99)
                assert (result.duplicate, result.base_offset) == (True, offset), "a retry is recognized"
    end = bench.log.end_offset
    assert bench.append(b"after", epoch=100).base_offset == end
    bench.flush()
    again = bench.reopen_cleanly()
    assert list(again.records()) == [*records, *again.records(end)]
    assert again.manager.was_clean


def volume_lost(disk: ModelDisk) -> ModelDisk:
    """What was synced, as after a power loss, on a machine that went on running."""
    found = disk.after_power_loss()
    found.boots = disk.boots
    return found


def check_replica(disk: ModelDisk, promises: Promises) -> None:
    """What one of several replicas has is a part of their common history: nothing is missing in the middle."""
    bench = LogBench(disk, is_replicated=True)
    found = {record.offset: record.value for record in bench.records()}
    assert list(found) == list(range(bench.log.start_offset, bench.log.end_offset)), "no gaps"
    assert all(found.get(offset) == value for offset, value in promises.acked.items()), "all that was acknowledged"


def check_producers(bench: LogBench) -> None:
    """What is known of the producer is what the log says."""
    headers = [header for segment in bench.log.segments for _, header in segment.headers()]
    in_log = [(header.base_sequence, header.base_offset) for header in headers][-5:]
    known = [(b.base_sequence, b.base_offset) for _, entry in bench.log.producers.items() for b in entry.batches]
    assert known[len(known) - len(in_log) :] == in_log
    assert all(offset < bench.log.segments[0].base_offset for _, offset in known[: len(known) - len(in_log)])


@cache
def count_steps(*, is_encrypted: bool = False) -> int:
    disk, promises = ModelDisk(), Promises()
    keys = DATA_KEYS if is_encrypted else None
    life_of_a_log(disk, promises, keys)
    check(disk, promises, may_be_damaged=False, keys=keys)
    return len(disk.steps)


@pytest.mark.parametrize("part", range(8))
def test_every_acknowledged_record_survives_a_stop_at_any_step(part: int) -> None:
    steps = count_steps()
    for number in range(1 + part, steps + 1, 8):
        for share in TORN:
            disk, promises = ModelDisk(), Promises()
            disk.hook = stop_at(number, torn_share=share)
            with suppress(PowerLoss):
                life_of_a_log(disk, promises)
            last = disk.steps[-1]
            try:
                check(disk.after_process_kill(), promises, may_be_damaged=False)
                check(disk.after_power_loss(), promises, may_be_damaged=False)
                check(volume_lost(disk), promises, may_be_damaged=False)
                for seed in range(4):
                    check(disk.after_power_loss(Random(seed)), promises, may_be_damaged=True)
                    check_replica(disk.after_power_loss(Random(seed)), promises)
            except AssertionError as error:
                raise AssertionError(f"stopped at step {number} of {steps}, {last}, torn {share}: {error}") from error
            if last[0] != "write":
                break


@pytest.mark.parametrize("part", range(4))
def test_an_encrypted_log_survives_a_stop_at_any_step_and_has_no_plain_bytes(part: int) -> None:
    steps = count_steps(is_encrypted=True)
    for number in range(1 + part, steps + 1, 4):
        disk, promises = ModelDisk(), Promises()
        disk.hook = stop_at(number, torn_share=0.5)
        with suppress(PowerLoss):
            life_of_a_log(disk, promises, DATA_KEYS)
        assert not disk.contains(b"vvvvvvvv"), "the values that are written end in this"
        check(disk.after_process_kill(), promises, may_be_damaged=False, keys=DATA_KEYS)
        check(disk.after_power_loss(Random(number)), promises, may_be_damaged=True, keys=DATA_KEYS)


def test_the_sweep_meets_every_kind_of_step() -> None:
    disk = ModelDisk()
    life_of_a_log(disk, Promises())
    assert {what for what, _ in disk.steps} >= {"write", "sync", "sync-dir", "create", "rename", "truncate", "unlink"}
    assert count_steps() > 150
