"""Logs on disk: flushes, sizes, retention and compaction, recovery, the volume."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, counter, gauge, histogram
from headrace.runtime.volume import volume_size
from headrace.storage.cleaner import Cleaner
from headrace.storage.flusher import Flusher

FLUSH_SECONDS = histogram("headrace_flush_seconds", "Time of a flush (fdatasync) of a partition's log.")
FLUSH_RECORDS = histogram("headrace_flush_records", "Offsets that one flush has made durable: the group commit.")
FLUSH_FAILURES = counter("headrace_flush_failures_total", "Flushes that failed; retries on a full disk included.")
DISK_FREE = gauge("headrace_disk_free_bytes", "Free space of the volume of the data directory.")
DISK_TOTAL = gauge("headrace_disk_total_bytes", "Size of the volume of the data directory.")
OFFLINE_DIRS = gauge("headrace_offline_log_directories", "Whether the data directory has failed and takes no writes.")
JMX_OFFLINE_DIRS = gauge(
    "kafka_log_logmanager_offlinelogdirectorycount", "As headrace_offline_log_directories, by Kafka's name."
)
RECOVERY = gauge("headrace_recovery_seconds", "How long the logs took to open when this broker started.")
WAS_CLEAN = gauge(
    "headrace_was_stopped_cleanly", "Whether the last stop was clean, so that no log had to be recovered."
)
RETENTION_SEGMENTS = counter("headrace_retention_segments_removed_total", "Segments that retention has removed.")
COMPACTIONS = counter("headrace_cleaner_compactions_total", "Compactions of a log that were completed.")
COMPACTED_BYTES = counter("headrace_cleaner_bytes_read_total", "Bytes of segments that were compacted.")
REMOVED_BYTES = counter("headrace_cleaner_bytes_removed_total", "Bytes that compaction has removed.")
REMOVED_RECORDS = counter("headrace_cleaner_records_removed_total", "Records that compaction has removed.")
UNCLEANABLE = gauge(
    "headrace_cleaner_uncleanable_logs", "Logs that cannot be compacted, which the broker's log explains."
)
METRICS = (
    FLUSH_SECONDS, FLUSH_RECORDS, FLUSH_FAILURES, DISK_FREE, DISK_TOTAL, OFFLINE_DIRS, JMX_OFFLINE_DIRS, RECOVERY,
    WAS_CLEAN, RETENTION_SEGMENTS, COMPACTIONS, COMPACTED_BYTES, REMOVED_BYTES, REMOVED_RECORDS, UNCLEANABLE,
)  # fmt: skip


class StorageParts(NamedTuple):
    data_dir: Path
    flusher: Flusher
    cleaner: Cleaner
    has_failed: Callable[[], bool]
    """Whether the data directory takes no more writes."""
    recovery_s: float
    was_clean: bool


def storage_collector(parts: StorageParts, workers: Executor) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        flusher, done = parts.flusher, parts.cleaner.counts
        offline = int(parts.has_failed())
        # A network file system may take its time.
        volume = await asyncio.get_running_loop().run_in_executor(workers, volume_size, parts.data_dir)
        return (
            FLUSH_SECONDS.single(flusher.times),
            FLUSH_RECORDS.single(flusher.sizes),
            FLUSH_FAILURES.single(flusher.failures),
            DISK_FREE.single(volume.usable_bytes),
            DISK_TOTAL.single(volume.total_bytes),
            OFFLINE_DIRS.single(offline),
            JMX_OFFLINE_DIRS.single(offline),
            RECOVERY.single(parts.recovery_s),
            WAS_CLEAN.single(int(parts.was_clean)),
            RETENTION_SEGMENTS.single(done.segments_removed),
            COMPACTIONS.single(done.compactions),
            COMPACTED_BYTES.single(done.bytes_read),
            REMOVED_BYTES.single(done.bytes_removed),
            REMOVED_RECORDS.single(done.records_removed),
            UNCLEANABLE.single(parts.cleaner.uncleanable_count),
        )

    return collect
