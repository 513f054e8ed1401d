"""Several batches that are appended with one write: the log is as if they had been appended one by one."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.unit.storage.log_faults import fail_when, values

from headrace.config.topic import TopicSettings
from headrace.model.errors import DiskFull, StorageFailed
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.runtime.disk import OsDisk
from headrace.storage.appender import ProducedBatch
from headrace.testing.disks import ModelDisk, TornWrite
from headrace.testing.logs import DATA_KEYS, SMALL, LogBench

LARGE = replace(SMALL, segment_bytes=100_000)


def batch(
    bench: LogBench, *of: bytes, producer: int = -1, sequence: int = -1, epoch: int = 0, transactional: bool = False
) -> ProducedBatch:
    data = build_batch(
        [Record(0, bench.clock.wall_ms(), None, value) for value in of],
        producer_id=producer,
        producer_epoch=epoch if producer >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
    )
    return ProducedBatch(data, read_header(data))


def begun(disk: ModelDisk | None = None, settings: TopicSettings = LARGE) -> LogBench:
    """A log with a batch: the first one of a segment is never in a run."""
    bench = LogBench(disk, settings)
    bench.append(b"first", producer=5, sequence=0)
    return bench


def contents(bench: LogBench) -> tuple[object, ...]:
    """All that an append changes."""
    log, disk = bench.log, bench.disk
    assert isinstance(disk, ModelDisk)
    bench.manager.stop()
    return (
        log.end_offset,
        {name: disk.read_bytes(bench.folder / name) for name in disk.files(bench.folder)},
        [(s.size, s.first_timestamp, s.max_timestamp, s.max_timestamp_offset, s.unindexed_bytes) for s in log.segments],
        log.producers.to_snapshot(0),
        log._state.segments.positions,
    )


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("settings", [LARGE, SMALL, replace(LARGE, segment_index_bytes=40)])
def test_the_log_is_the_same_as_after_single_appends(seed: int, settings: TopicSettings) -> None:
    random = Random(seed)
    together, single = begun(settings=settings), begun(settings=settings)
    sequence = 1
    for _ in range(12):
        batches = []
        for _ in range(random.randrange(1, 9)):
            of = [b"v" * random.randrange(60)] * random.randrange(1, 4)
            producer = random.choice((-1, 5))
            batches.append(batch(together, *of, producer=producer, sequence=sequence if producer >= 0 else -1))
            sequence += len(of) if producer >= 0 else 0
        for each in batches:
            single.log.append(*each, 0)
        while batches:
            run = together.log.append_run(batches, 0)
            assert run == batches[: len(run)]
            if not run:
                together.log.append(*batches[0], 0)
            batches = batches[max(1, len(run)) :]
        step_ms = random.randrange(3)
        together.clock.advance(step_ms)
        single.clock.advance(step_ms)
    if settings.segment_index_bytes == LARGE.segment_index_bytes:
        assert contents(together) == contents(single)
    else:
        # Batches that were written with the one that filled the index are in its segment.
        assert [r.value for r in together.records()] == [r.value for r in single.records()]
        assert max(each.next_index_bytes for each in together.log.segments) <= 40 + 12


def test_a_run_is_one_write() -> None:
    disk = ModelDisk()
    bench = begun(disk)
    before = len(disk.steps)
    assert len(bench.log.append_run([batch(bench, b"a"), batch(bench, b"b", b"c"), batch(bench, b"d")], 0)) == 3
    assert [what for what, _ in disk.steps[before:]] == ["write"]
    assert values(bench) == [b"first", b"a", b"b", b"c", b"d"]


def test_it_stops_before_what_is_to_be_decided_by_itself() -> None:
    """A duplicate, a gap, a new epoch, an unknown producer, a transaction, a full segment: `append` decides on them."""
    bench = begun()
    good = batch(bench, b"good", producer=5, sequence=1)
    others = [
        batch(bench, b"again", producer=5, sequence=1),
        batch(bench, b"gap", producer=5, sequence=3),
        batch(bench, b"epoch", producer=5, sequence=0, epoch=1),
        batch(bench, b"fenced", producer=5, sequence=2, epoch=-1),
        batch(bench, b"unknown", producer=6, sequence=0),
        batch(bench, b"open", producer=5, sequence=2, transactional=True),
        batch(bench, b"x" * 200_000),
    ]
    for other in others:
        log = begun().log
        assert log.append_run([good, other, batch(bench, b"after")], 0) == [good]
        assert log.append_run([other], 0) == []
        assert log.end_offset == 2


def test_a_producer_that_wrote_before_a_batch_without_one_is_not_forgotten() -> None:
    bench = begun()
    first, plain = batch(bench, b"a", producer=5, sequence=1), batch(bench, b"b")
    assert bench.log.append_run([first, plain, first], 0) == [first, plain]
    assert bench.log.append(*first, 0).duplicate


def test_sequences_wrap_within_a_run() -> None:
    bench = LogBench(settings=LARGE)
    bench.append(b"a", producer=5, sequence=2**31 - 2)
    run = [batch(bench, b"b", producer=5, sequence=2**31 - 1), batch(bench, b"c", producer=5, sequence=0)]
    assert bench.log.append_run(run, 0) == run


def test_nothing_is_asked_for_where_there_are_no_runs() -> None:
    def unused() -> Iterator[ProducedBatch]:
        raise AssertionError("the next batch was made")
        yield

    empty, encrypted, closed, failed = LogBench(), LogBench(keys=DATA_KEYS), begun(), begun()
    encrypted.append(b"first")
    closed.log.close()
    failed.log.fail(OSError(errno.EIO, "played"))
    for bench in (empty, encrypted, closed, failed):
        assert bench.log.append_run(unused(), 0) == []
    assert begun().log.append_run(unused(), 4) == [], "a new leader epoch is noted by `append`"


def test_no_more_batches_than_one_write_takes(tmp_path: Path) -> None:
    bench = LogBench(OsDisk(), LARGE, root=tmp_path)
    bench.append(b"first")
    many = [batch(bench, b"v")] * 600
    assert len(bench.log.append_run(many, 0)) == 500
    bench.manager.stop()


def test_if_the_disk_gets_full_in_the_middle_nothing_of_it_remains() -> None:
    disk = ModelDisk()
    bench = begun(disk)
    bench.flush()
    run = [batch(bench, b"b" * 100, producer=5, sequence=1), batch(bench, b"c" * 100, producer=5, sequence=2)]
    size = bench.log.size_bytes
    used = sum(disk.files(bench.folder).values()) + sum(disk.files(bench.root).values())
    disk.room_bytes = used + len(run[0].records) + 20
    with pytest.raises(DiskFull):
        bench.log.append_run(run, 0)
    assert disk.files(bench.folder)[bench.log.active.path.name] == size
    assert (bench.log.end_offset, values(bench)) == (1, [b"first"])
    assert bench.log.append(*run[0], 0).base_offset == 1, "one by one, what has room is appended"
    with pytest.raises(DiskFull):
        bench.log.append(*run[1], 0)
    disk.room_bytes = None
    assert bench.log.append_run([run[1]], 0) == [run[1]]
    bench.flush()
    assert values(bench.reopen(disk.after_power_loss())) == [b"first", b"b" * 100, b"c" * 100]


def test_a_failed_write_ends_writing() -> None:
    disk = ModelDisk()
    bench = begun(disk)
    disk.hook = fail_when("write", ".log", errno.EIO)
    with pytest.raises(StorageFailed):
        bench.log.append_run([batch(bench, b"a"), batch(bench, b"b")], 0)
    disk.hook = None
    assert bench.log.append_run([batch(bench, b"a")], 0) == []
    assert values(bench) == [b"first"]


def test_a_torn_write_that_cannot_be_undone_is_no_part_of_the_log() -> None:
    disk = ModelDisk()
    bench = begun(disk)
    bench.flush()

    def hook(what: str, path: Path) -> None:
        if what in ("write", "truncate"):
            error = OSError(errno.EIO, "played")
            raise TornWrite(0.7, error) if what == "write" else error

    disk.hook = hook
    with pytest.raises(StorageFailed):
        bench.log.append_run([batch(bench, b"a" * 50), batch(bench, b"b" * 50)], 0)
    disk.hook = None
    assert values(bench) == [b"first"]
    assert values(bench.reopen())[:1] == [b"first"]
