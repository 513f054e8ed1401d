"""The sweep for a promotion: after a stop at any step on disk, it is complete once it has been called again."""

from contextlib import suppress
from random import Random

import pytest
from tests.unit.storage.test_promotion import bytes_of, source

from headrace.records.batch import BatchHeader, iter_headers
from headrace.storage.promotion import is_promoted, promote, promotion_offset
from headrace.testing.disks import ModelDisk, PowerLoss, stop_at
from headrace.testing.logs import LogBench

LOCAL = 100
MIRRORED = bytes_of(source().log)


def life_of_a_mirror(disk: ModelDisk) -> None:
    bench = LogBench(disk)
    for at, header in iter_headers(MIRRORED):
        bench.log.append_mirrored(MIRRORED[at : at + header.size])
        bench.flush()
    bench.checkpoint()
    promote(bench.log, LOCAL, LOCAL)
    bench.flush()
    for sequence in range(12):
        bench.append(b"v" * 60, producer=3, sequence=sequence, epoch=LOCAL)
    bench.log.roll()
    bench.flush()
    bench.checkpoint()
    bench.manager.stop()


def check(disk: ModelDisk) -> None:
    bench = LogBench(disk)
    log = bench.log
    mirrored = bytes_of(log)[: len(MIRRORED)]
    promotion = promotion_offset(log, LOCAL)
    below = sum(header.size for _, header in iter_headers(mirrored) if promotion is None or header.base_offset < 4)
    assert MIRRORED.startswith(mirrored[:below])
    promote(log, LOCAL, LOCAL + 1)
    assert is_promoted(log, LOCAL)
    headers: list[BatchHeader] = [header for _, header in iter_headers(bytes_of(log))]
    resets = [header for header in headers if header.is_control and not header.is_transactional]
    assert len(resets) == 1
    local = [header for header in headers if header.leader_epoch >= LOCAL]
    assert promotion_offset(log, LOCAL) == local[0].base_offset
    after = [header for header in local if header.base_offset > resets[0].base_offset]
    entries = dict(log.producers.items())
    assert set(entries) == {header.producer_id for header in after}
    next_sequence = max([header.base_sequence for header in after], default=-1) + 1
    assert not bench.append(b"next", producer=3, sequence=next_sequence, epoch=LOCAL + 1).duplicate


@pytest.mark.parametrize("part", range(2))
def test_a_promotion_survives_a_stop_at_any_step(part: int) -> None:
    whole = ModelDisk()
    life_of_a_mirror(whole)
    check(whole)
    steps = len(whole.steps)
    assert steps > 40
    for number in range(1 + part, steps + 1, 2):
        for share in (0.0, 0.5, 1.0):
            disk = ModelDisk()
            disk.hook = stop_at(number, torn_share=share)
            with suppress(PowerLoss):
                life_of_a_mirror(disk)
            last = disk.steps[-1]
            try:
                check(disk.after_process_kill())
                for seed in (None, Random(0), Random(1)):
                    check(disk.after_power_loss(seed))
            except AssertionError as error:
                raise AssertionError(f"stopped at step {number} of {steps}, {last}, torn {share}: {error}") from error
            if last[0] != "write":
                break
