"""Opens, creates, deletes, checkpoints and closes the logs of a data directory.

`start`, `open_logs`, `create_log`, `write_checkpoints` and `stop` block: call them in a worker thread, or before or
after the event loop runs. Logs themselves belong to the event loop.
"""

import asyncio
import logging
import resource
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from uuid import UUID, uuid4

from headrace.config.topic import TopicSettings
from headrace.model.errors import HeadraceError, StorageFailed
from headrace.model.ids import PartitionIndex, TopicName, TopicPartition
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.storage.checkpoints import (
    CLEAN_STOP,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
    offsets_to_bytes,
    read_offsets,
    read_partition_metadata,
    write_partition_metadata,
)
from headrace.storage.datadir import DataDir
from headrace.storage.files import FilePool
from headrace.storage.log import Log
from headrace.storage.summary import LOG_SUMMARIES, LogSummary, Summarized, read_summaries, summaries_to_bytes

_log = logging.getLogger(__name__)

_DELETE = "-delete"
_STRAY = "-stray"
_OPENERS = 8
_LOGS_PER_TURN = 50
"""Unchanged logs between two turns of the event loop, at some microseconds each."""


class WantedPartition(NamedTuple):
    """A partition that this broker should have."""

    topic_id: UUID
    settings: TopicSettings
    is_replicated: bool = False
    """Whether other brokers have replicas, or another cluster the source of a mirror."""


def _threads(count: int, name: str) -> Executor:
    return ThreadPoolExecutor(count, thread_name_prefix=name)


class LogManager:
    def __init__(
        self,
        data_dir: DataDir,
        *,
        disk: Disk,
        clock: Clock,
        producer_expiry_ms: int = 86_400_000,
        on_failed: Callable[[BaseException], None] | None = None,
        make_pool: Callable[[int, str], Executor] = _threads,
        is_replicated: bool = False,
    ) -> None:
        """`on_failed` is called once, when the directory has failed and none of its logs takes writes any more.

        `make_pool(threads, name)` makes an executor; it is shut down after use.
        `is_replicated`: the log alone does not show what is committed, so high watermarks are checkpointed too.
        """
        self.data_dir = data_dir
        self.producer_expiry_ms = producer_expiry_ms
        self.strays: list[Path] = []
        """Folders of partitions that are not wanted here: they are logged, and never deleted."""
        self._disk = disk
        self._clock = clock
        self._on_failed = on_failed
        self.files = FilePool(disk, capacity=_handles_for_reading())
        """The pool through which all logs read."""
        self._logs: dict[TopicPartition, Log] = {}
        self._clean = False
        self._recovery_points: dict[TopicPartition, int] = {}
        self._start_offsets: dict[TopicPartition, int] = {}
        """Start offsets, from the checkpoint, of partitions that are not open."""
        self._summaries: dict[TopicPartition, Summarized] = {}
        """Summaries by which unchanged logs are opened; empty after that."""
        self._boot_id = disk.boot_id()
        self._is_same_boot = False
        self._topic_ids: dict[TopicPartition, UUID] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._is_replicated = is_replicated
        self._written: dict[str, bytes] = {}
        self._checkpointing = Lock()
        self._make_pool = make_pool
        self._removals = make_pool(1, "remove")
        self._failure: BaseException | None = None

    def get(self, partition: TopicPartition) -> Log | None:
        return self._logs.get(partition)

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        return self._logs

    @property
    def failure(self) -> BaseException | None:
        """Why the directory takes no more writes; None while it does."""
        return self._failure

    @property
    def was_clean(self) -> bool:
        """Whether the last shutdown was clean."""
        return self._clean

    # Starting

    def start(self) -> None:
        """Read the checkpoints and remove the mark of a clean shutdown, so that a crash from now on is detected."""
        root = self.data_dir.path
        names = self._disk.files(root)
        for name in (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS, LOG_SUMMARIES):
            if name in names:
                self._written[name] = self._disk.read_bytes(root / name)
        self._recovery_points = read_offsets(self._disk, root / RECOVERY_POINTS)
        self._start_offsets = read_offsets(self._disk, root / START_OFFSETS)
        self._high_watermarks = read_offsets(self._disk, root / HIGH_WATERMARKS) if self._is_replicated else {}
        self._clean = CLEAN_STOP in names
        boot_id, summaries = read_summaries(self._disk, root / LOG_SUMMARIES)
        self._is_same_boot = boot_id == self._boot_id != ""
        self._has_rebooted = "" not in (boot_id, self._boot_id) and not self._is_same_boot
        if self._clean or self._is_same_boot:
            self._summaries = summaries
        if self._clean:
            self._disk.unlink(root / CLEAN_STOP)
        # A killed broker may not have synced its last checkpoints, and from here on they are relied on.
        self._disk.sync_dir(root)
        for name in self._disk.folders(root):
            if name.endswith(_DELETE):
                self._removals.submit(self._remove_tree, root / name)

    def open_logs(
        self,
        wanted: Mapping[TopicPartition, WantedPartition],
        *,
        progress: Callable[[TopicPartition], None] | None = None,
    ) -> dict[TopicPartition, Exception]:
        """Open or create every wanted partition; returns those that failed, with the error.

        Folders of other partitions, or of an older topic of the same name, become `strays`.
        """
        there = {name for name in self._disk.folders(self.data_dir.path) if not name.endswith((_DELETE, _STRAY))}
        names = {str(partition) for partition in wanted}
        self.strays = [self.data_dir.path / name for name in sorted(there - names) if _parse_folder(name) is not None]
        for stray in self.strays:
            _log.warning("%s belongs to no topic of this broker; it is left alone", stray)
        failed: dict[TopicPartition, Exception] = {}

        def open_one(partition: TopicPartition, summary: LogSummary | None = None) -> None:
            exists = str(partition) in there
            try:
                if exists and summary is None and not self._is_same_boot:
                    summary = self._unchanged(partition, wanted[partition])
                self._logs[partition] = self._open(partition, wanted[partition], exists=exists, summary=summary)
                if progress is not None:
                    progress(partition)
            except (HeadraceError, OSError) as error:
                _log.error("%s cannot be opened: %s", partition, error)
                failed[partition] = error

        to_read = []
        for partition in wanted:
            # A log that needs no reading, not even of uncached pages, is opened faster here than in another thread.
            summary = self._unchanged(partition, wanted[partition]) if self._is_same_boot else None
            if summary is not None:
                open_one(partition, summary)
            else:
                to_read.append(partition)
        with self._make_pool(_OPENERS, "open") as pool:
            list(pool.map(open_one, to_read))
        self._summaries = {}
        if not self._is_same_boot:
            self._note_boot()
        return failed

    def _note_boot(self) -> None:
        """Store the boot id, so that the next start knows whether the operating system was restarted meanwhile. Not
        before: if this one is interrupted, the next one must know the same."""
        try:
            self.write_checkpoints()
        except OSError as error:
            _log.warning("the checkpoints of %s were not written: %s", self.data_dir.path, error)

    def _unchanged(self, partition: TopicPartition, wanted: WantedPartition) -> LogSummary | None:
        """The summary of a partition if it is of the same topic and the active segment is unchanged, else None."""
        known = self._summaries.get(partition)
        if known is None or known.topic_id != wanted.topic_id:
            return None
        return known.summary if known.summary.is_of(self._disk, self.data_dir.path / str(partition)) else None

    def create_log(self, partition: TopicPartition, topic_id: UUID, settings: TopicSettings) -> Log:
        """Create the log of a newly assigned partition, or open it if it exists."""
        failed = self.create_logs({partition: WantedPartition(topic_id, settings)})
        if failed:
            raise failed[partition]
        return self._logs[partition]

    def create_logs(self, wanted: Mapping[TopicPartition, WantedPartition]) -> dict[TopicPartition, Exception]:
        """Like `create_log`, for several partitions; returns those that failed, with the error."""
        missing = [partition for partition in wanted if partition not in self._logs]
        there = set(self._disk.folders(self.data_dir.path)) if missing else set()
        failed: dict[TopicPartition, Exception] = {}

        def create_one(partition: TopicPartition) -> None:
            try:
                log = self._open(partition, wanted[partition], exists=str(partition) in there)
                self._logs[partition] = log
                if self._failure is not None:
                    # The directory failed before this log was registered.
                    log.fail(self._failure)
            except (HeadraceError, OSError) as error:
                failed[partition] = error

        if len(missing) == 1:
            create_one(missing[0])
        elif missing:
            with self._make_pool(_OPENERS, "open") as pool:
                list(pool.map(create_one, missing))
        return failed

    def _open(
        self, partition: TopicPartition, wanted: WantedPartition, *, exists: bool, summary: LogSummary | None = None
    ) -> Log:
        topic_id = wanted.topic_id
        if self._failure is not None:
            raise StorageFailed(f"{self.data_dir.path} takes no more writes since it failed: {self._failure}")
        folder = self.data_dir.path / str(partition)
        if exists and summary is None:
            found = read_partition_metadata(self._disk, folder)
            if found is not None and found != topic_id:
                aside = folder.with_name(f"{partition}.{uuid4().hex}{_STRAY}")
                _log.warning("%s belongs to an older topic of that name; it is renamed to %s", folder, aside.name)
                self._disk.rename(folder, aside)
                self.strays.append(aside)
                exists = False
            elif found is None:
                write_partition_metadata(self._disk, folder, topic_id)
        if not exists:
            self._forget_checkpoints(partition)
            self._disk.make_dir(folder)
            write_partition_metadata(self._disk, folder, topic_id)
        self._topic_ids[partition] = topic_id
        return Log.open(
            folder,
            wanted.settings,
            disk=self._disk,
            clock=self._clock,
            clean=self._clean and exists,
            recovery_point=self._recovery_points.get(partition, 0),
            producer_expiry_ms=self.producer_expiry_ms,
            log_start_offset=self._start_offsets.get(partition),
            files=self.files,
            persist=self._persist,
            is_replicated=wanted.is_replicated,
            has_lost_unsynced=self._has_rebooted and wanted.settings.flushes_before_ack,
            summary=summary,
        )

    def stray_partitions(self) -> list[tuple[TopicPartition, UUID | None]]:
        """The partition and topic id of each stray folder."""
        found = ((_parse_folder(stray.name), stray) for stray in self.strays)
        return [(name, read_partition_metadata(self._disk, stray)) for name, stray in found if name is not None]

    def high_watermark_of(self, partition: TopicPartition) -> int:
        """The checkpointed high watermark of a partition; 0 if there is none."""
        return self._high_watermarks.get(partition, 0)

    # Deleting

    def delete_log(self, partition: TopicPartition, topic_id: UUID | None = None) -> None:
        """Delete a partition, durably: its folder is renamed, and removed now or at the next start.

        With a `topic_id`, only if the folder belongs to that topic and not to another one of the same name.
        """
        folder = self.data_dir.path / str(partition)
        if topic_id is not None and read_partition_metadata(self._disk, folder) not in (None, topic_id):
            return
        log = self._logs.pop(partition, None)
        if log is not None:
            log.abandon()
        self._forget(partition)
        doomed = folder.with_name(f"{partition}.{uuid4().hex}{_DELETE}")
        try:
            self._disk.rename(folder, doomed)
        except FileNotFoundError:
            return
        self._removals.submit(self._remove_tree, doomed)

    def _remove_tree(self, folder: Path) -> None:
        try:
            self._disk.remove_tree(folder)
        except OSError as error:
            _log.warning("%s cannot be removed now, the next start tries again: %s", folder, error)

    # Checkpoints

    def write_checkpoints(self) -> None:
        """Persist recovery points, start offsets and the existing summaries. Blocking; safe in any thread."""
        with self._checkpointing:
            logs = list(self._logs.items())
            open_now = {partition for partition, _ in logs}
            points = {p: offset for p, offset in self._recovery_points.items() if p not in open_now}
            starts = {p: offset for p, offset in self._start_offsets.items() if p not in open_now}
            points.update((p, log.flushed_offset) for p, log in logs)
            starts.update((p, log.start_offset) for p, log in logs if log.start_offset > log.segments[0].base_offset)
            self._write(START_OFFSETS, offsets_to_bytes(starts))
            self._write(RECOVERY_POINTS, offsets_to_bytes(points))
            summaries = {p: known for p, known in self._summaries.items() if p not in open_now}
            for partition, log in logs:
                summary, topic_id = log.summary, self._topic_ids.get(partition)
                if summary is not None and topic_id is not None and summary.end_offset == points[partition]:
                    summaries[partition] = Summarized(topic_id, summary)
            self._write(LOG_SUMMARIES, summaries_to_bytes(self._boot_id, summaries))

    def write_high_watermarks(self) -> None:
        """Checkpoint high watermarks, so that they survive a restart of every replica. Blocking; safe in any thread.

        The checkpoint may lag: the next leader raises a high watermark that is too low.
        """
        if self._is_replicated:
            with self._checkpointing:
                known = self._high_watermarks | {
                    partition: min(log.high_watermark, log.end_offset) for partition, log in list(self._logs.items())
                }
                self._write(HIGH_WATERMARKS, offsets_to_bytes(known))
                self._high_watermarks = known

    def _persist(self, log: Log) -> None:
        self.write_checkpoints()
        partition = _parse_folder(log.directory.name)
        if partition is not None and self._high_watermarks.get(partition, 0) > log.end_offset:
            # It is truncated below its high watermark: records that replace those that were committed are not.
            self.write_high_watermarks()

    def _write(self, name: str, data: bytes) -> None:
        if self._written.get(name) != data:
            self._disk.write_atomic(self.data_dir.path / name, data)
            self._written[name] = data

    def _forget_checkpoints(self, partition: TopicPartition) -> None:
        """Remove a deleted log's checkpoints, so that a new log of its name never inherits them, even after a crash."""
        self._forget(partition)
        line = f"\n{partition.topic} {partition.partition} ".encode()
        if any(line in data for data in self._written.values()):
            self.write_checkpoints()
            self.write_high_watermarks()

    def _forget(self, partition: TopicPartition) -> None:
        for known in (self._recovery_points, self._start_offsets, self._high_watermarks):
            known.pop(partition, None)
        self._summaries.pop(partition, None)
        self._topic_ids.pop(partition, None)

    async def run_periodically(self, interval_s: float = 60.0) -> None:
        """Write checkpoints, delete due files and expire producers at each interval, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            for number, log in enumerate(list(self._logs.values())):
                # A thread for each of thousands of logs, most of which have nothing to delete, would take a second.
                if log.has_deleted_files:
                    await self._purge_deleted(log)
                log.expire_producers(self.producer_expiry_ms)
                # One that has changed writes to its files, which may take a millisecond.
                if log.summarize() or number % _LOGS_PER_TURN == 0:
                    await asyncio.sleep(0)
            try:
                await asyncio.to_thread(self.write_checkpoints)
            except OSError as error:
                _log.warning("the checkpoints of %s were not written: %s", self.data_dir.path, error)

    async def _purge_deleted(self, log: Log) -> None:
        try:
            await asyncio.to_thread(log.purge_deleted)
        except OSError as error:
            _log.warning("a deleted segment of %s cannot be removed now: %s", log.directory, error)

    async def keep_high_watermarks(self, interval_s: float, workers: Executor) -> None:
        """Checkpoint the high watermarks at each interval, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(interval_s)
            try:
                await loop.run_in_executor(workers, self.write_high_watermarks)
            except OSError as error:
                _log.warning("the high watermarks of %s were not written: %s", self.data_dir.path, error)

    # Failing and stopping

    def fail(self, error: BaseException) -> None:
        """Refuse writes to every log, because the directory failed. Reads go on."""
        if self._failure is not None:
            return
        self._failure = error
        _log.critical("%s takes no more writes until the broker is restarted: %s", self.data_dir.path, error)
        for log in list(self._logs.values()):
            log.fail(error)
        if self._on_failed is not None:
            self._on_failed(error)

    def stop(self) -> None:
        """Flush and close every log, and mark the shutdown as clean unless something failed."""
        clean = self._failure is None

        def close_one(log: Log) -> bool:
            try:
                log.close()
                return log.failure is None
            except (HeadraceError, OSError) as error:
                _log.error("%s was not closed cleanly: %s", log.directory, error)
                return False

        with self._make_pool(_OPENERS, "close") as pool:
            clean = all(list(pool.map(close_one, list(self._logs.values())))) and clean
        self._removals.shutdown(wait=True)
        try:
            if self._failure is None:
                self.write_checkpoints()
                self.write_high_watermarks()
                if clean:
                    self._disk.write_atomic(self.data_dir.path / CLEAN_STOP, b'{"version":0}')
        except OSError as error:
            # Nothing is lost: the next start checks the part of the logs that the checkpoints would have covered.
            _log.error("the checkpoints of %s were not written: %s", self.data_dir.path, error)
        finally:
            self.data_dir.release()


def _handles_for_reading() -> int:
    """A quarter of the process's limit of open files: active segments and connections need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, min(4096, soft // 4))


def _parse_folder(name: str) -> TopicPartition | None:
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isdecimal():
        return None
    return TopicPartition(TopicName(topic), PartitionIndex(int(partition)))
