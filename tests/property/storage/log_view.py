"""Everything that can be seen of an open log, to compare one that was opened by its summary with one that was read."""

from typing import Any

from headrace.storage.checkpoints import CLEAN_STOP
from headrace.storage.index import SparseIndex
from headrace.storage.summary import LOG_SUMMARIES
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import LogBench


def view(bench: LogBench) -> dict[str, Any]:
    log = bench.log
    active = log.active
    return {
        "offsets": (log.start_offset, log.end_offset, log.flushed_offset, log.stable_offset, log.damaged_from),
        "segments": [(s.base_offset, s.size, s.next_offset, s.max_timestamp) for s in log.segments],
        "active": (active.first_timestamp, active.max_timestamp_offset, active.unindexed_bytes),
        "indexes": [entries(s.offsets) for s in log.segments],
        "epochs": [log.epochs.epoch_of(record.offset) for record in bench.records()],
        "aborted": list(log.aborted),
        "producers": {pid: (e.epoch, e.batches, e.first_offset) for pid, e in log.producers.items()},
        "records": list(bench.records()),
        "times": [log.offset_for_time(record.timestamp) for record in bench.records()],
    }


def entries(index: SparseIndex) -> list[tuple[int, int]]:
    found = []
    entry = index.last()
    while entry is not None:
        found.append((entry.key, entry.value))
        entry = index.floor(entry.key - 1)
    return found


def to_be_read(disk: ModelDisk) -> ModelDisk:
    """The same disk for a broker that must read every log, and check it."""
    copy = disk.after_process_kill()
    copy.unlink(copy.root / LOG_SUMMARIES)
    copy.unlink(copy.root / CLEAN_STOP)
    return copy
