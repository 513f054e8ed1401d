"""Compaction of a log with transactions: a read_committed consumer sees the same last values as without it."""

from random import Random

import pytest
from tests.property.storage.transaction_model import batches_of, consumed

from headrace.config.topic import TopicSettings
from headrace.records.reader import iter_records
from headrace.storage.cleaner import Cleaner
from headrace.testing.disks import ModelDisk
from headrace.testing.inline_cleaner import drive, inline
from headrace.testing.logs import LogBench

SETTINGS = TopicSettings(
    cleanup_policy=("compact",),
    segment_bytes=1000,
    index_interval_bytes=150,
    file_delete_delay_ms=0,
    delete_retention_ms=1000,
    min_cleanable_dirty_ratio=0.0,
)


def values_of(bench: LogBench) -> dict[bytes, bytes | None]:
    """The last value of each key, as a consumer sees them that reads to the last stable offset."""
    log = bench.log
    first_open = log.producers.first_open_offset
    kept = consumed(batches_of(log), log, log.end_offset if first_open is None else first_open, 3)
    values: dict[bytes, bytes | None] = {}
    for segment in log.segments:
        for position, header in segment.headers():
            for record in iter_records(segment.reader().read(position, header.size)):
                if record.offset in kept:
                    assert record.key is not None
                    values[record.key] = record.value
    return values


@pytest.mark.parametrize("seed", range(30))
def test_compaction_does_not_change_what_committed_readers_see(seed: int) -> None:
    random = Random(seed)
    disk = ModelDisk()
    bench = LogBench(disk, SETTINGS)
    expected: dict[bytes, bytes] = {}
    waiting: dict[int, list[tuple[bytes, bytes]]] = {}
    for number in range(random.randint(50, 200)):
        key, value = f"k{random.randrange(5)}".encode(), f"v{number}".encode()
        match random.choice(("write", "write", "write", "plain", "end", "end", "compact", "restart")):
            case "write":
                producer = random.randint(1, 3)
                bench.append(value, key=key, producer=producer, transactional=True)
                waiting.setdefault(producer, []).append((key, value))
            case "plain":
                if not waiting:
                    bench.append(value, key=key)
                    expected[key] = value
            case "end" if waiting:
                producer = random.choice(list(waiting))
                committed = random.random() < 0.5
                # One that is not the oldest would be seen later than written: too much for this model.
                if len(waiting) > 1:
                    committed = False
                bench.end_transaction(producer, committed=committed)
                written = waiting.pop(producer)
                expected.update(written if committed else ())
            case "compact":
                bench.log.roll()
                bench.flush()
                bench.clock.advance(random.choice((0, 500, 2000)))
                drive(Cleaner(list, clock=bench.clock, run=inline).compact(bench.log))
            case "restart":
                disk = disk.after_process_kill()
                bench = bench.reopen(disk) if random.random() < 0.5 else bench.reopen(disk).reopen_cleanly()
        if not waiting:
            assert values_of(bench) == expected
    for producer in list(waiting):
        bench.end_transaction(producer, committed=False)
    assert values_of(bench) == expected
    for _ in range(3):
        bench.log.roll()
        bench.flush()
        drive(Cleaner(list, clock=bench.clock, run=inline).compact(bench.log))
        bench.clock.advance(1001)
        assert values_of(bench) == expected
    left = [batch.kind for batch in batches_of(bench.log)]
    assert left.count("data") + left.count("plain") <= len(expected) + 3, "only last values are left"
    assert left.count("abort") <= 3, "markers go when nothing is left that they speak of"
    bench = bench.reopen_cleanly()
    assert values_of(bench) == expected
