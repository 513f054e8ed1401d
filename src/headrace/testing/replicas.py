"""Compares the replicas of a partition on the disks of several brokers, byte by byte.

For stopped or idle brokers: a replica that is still catching up is shorter, not different.
"""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

from headrace.model.errors import CorruptBatch
from headrace.runtime.disk import OsDisk
from headrace.storage.batches import StoredBatch
from headrace.storage.inspect import LogFolder, base_offset, find_logs, stored_batches


def find_divergence(data_dirs: Mapping[str, Path], high_watermarks: Mapping[str, int]) -> list[str]:
    """Anomaly 14: the differences between replicas in these data directories, a line for each pair.

    Partitions are named like their folders (`orders-0`). Below the high watermark all replicas are complete and equal,
    from the highest start offset on (retention). Every broker compacts on its own: leave compacted topics out.
    """
    copies: dict[str, dict[str, LogFolder]] = {}
    for name, folder in data_dirs.items():
        for log in find_logs(folder):
            if log.name in high_watermarks:
                copies.setdefault(log.name, {})[name] = log
    found = []
    for partition, logs in sorted(copies.items()):
        (first, log), *others = logs.items()
        for other, other_log in others:
            difference = _difference(log, other_log, high_watermarks[partition])
            if difference is not None:
                found.append(f"{partition} on {first} and {other}: {difference}")
    return found


def _difference(log: LogFolder, other: LogFolder, end: int) -> str | None:
    start = max(base_offset(log.segments[0]), base_offset(other.segments[0]))
    try:
        for here, there in zip_longest(_batches(log, start, end), _batches(other, start, end)):
            if here is None or there is None:
                return f"only one has offset {(here or there).header.base_offset}, below the high watermark {end}"
            if here.data != there.data:
                low = min(here.header.base_offset, there.header.base_offset)
                return f"they differ in the batch at offset {low}"
    except CorruptBatch as error:
        return str(error)
    return None


def _batches(log: LogFolder, start: int, end: int) -> Iterator[StoredBatch]:
    disk = OsDisk()
    for segment in log.segments:
        for batch in stored_batches(disk, segment):
            if batch.header.base_offset >= end:
                return
            if batch.header.base_offset >= start:
                yield batch
