"""The sweep for transactions: after a stop at any step on disk, open and aborted ones are what the log says."""

from contextlib import suppress
from random import Random

import pytest
from tests.property.storage.transaction_model import Batch, batches_of, consumed, open_and_aborted, visible

from headrace.testing.disks import ModelDisk, PowerLoss, stop_at
from headrace.testing.logs import LogBench


class Promises:
    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.flushed = 0


def write(bench: LogBench, promises: Promises, producer: int, count: int = 1) -> None:
    for _ in range(count):
        result = bench.append(b"v" * 60, producer=producer, transactional=True)
        promises.batches.append(Batch(producer, result.base_offset, result.last_offset, "data"))


def end(bench: LogBench, promises: Promises, producer: int, kind: str) -> None:
    result = bench.end_transaction(producer, committed=kind == "commit")
    promises.batches.append(Batch(producer, result.base_offset, result.last_offset, kind))


def flush(bench: LogBench, promises: Promises) -> None:
    bench.flush()
    promises.flushed = bench.log.end_offset


def life_of_a_log(disk: ModelDisk, promises: Promises) -> None:
    bench = LogBench(disk)
    write(bench, promises, 1, 2)
    write(bench, promises, 2)
    end(bench, promises, 1, "abort")
    flush(bench, promises)
    bench.checkpoint()
    write(bench, promises, 3, 5)  # over the end of the first segment
    end(bench, promises, 2, "abort")
    bench.log.roll()
    flush(bench, promises)
    bench.checkpoint()
    end(bench, promises, 3, "commit")
    write(bench, promises, 1, 3)
    end(bench, promises, 1, "abort")
    bench.log.truncate_to(bench.log.end_offset - 2)
    promises.batches = [batch for batch in promises.batches if batch.last_offset < bench.log.end_offset]
    promises.flushed = min(promises.flushed, bench.log.end_offset)
    flush(bench, promises)
    bench = bench.reopen_cleanly()
    end(bench, promises, 1, "abort")
    write(bench, promises, 2, 9)
    flush(bench, promises)
    end(bench, promises, 2, "abort")
    bench.manager.stop()


def check(disk: ModelDisk, promises: Promises) -> None:
    bench = LogBench(disk)
    for found in (bench, bench.reopen(disk.after_power_loss())):
        log = found.log
        batches = batches_of(log)
        wanted = [batch for batch in promises.batches if batch.last_offset < promises.flushed]
        assert [batch for batch in batches if batch.last_offset < promises.flushed] == wanted
        opened, aborted = open_and_aborted(batches)
        assert {pid: e.first_offset for pid, e in log.producers.items() if e.first_offset >= 0} == opened
        assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in log.aborted] == aborted
        stable = min([log.end_offset, *opened.values()])
        assert consumed(batches, log, stable, 4) == {offset for offset in visible(batches) if offset < stable}


@pytest.mark.parametrize("part", range(4))
def test_transactions_survive_a_stop_at_any_step(part: int) -> None:
    whole, promises = ModelDisk(), Promises()
    life_of_a_log(whole, promises)
    check(whole, promises)
    steps = len(whole.steps)
    assert steps > 80
    for number in range(1 + part, steps + 1, 4):
        for share in (0.0, 0.5, 1.0):
            disk, promises = ModelDisk(), Promises()
            disk.hook = stop_at(number, torn_share=share)
            with suppress(PowerLoss):
                life_of_a_log(disk, promises)
            last = disk.steps[-1]
            try:
                check(disk.after_process_kill(), promises)
                for seed in (None, Random(0), Random(1)):
                    check(disk.after_power_loss(seed), promises)
            except AssertionError as error:
                raise AssertionError(f"stopped at step {number} of {steps}, {last}, torn {share}: {error}") from error
            if last[0] != "write":
                break
