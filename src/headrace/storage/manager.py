"""All logs of a data directory: opened, created, deleted, checkpointed, closed.

`start`, `open_logs`, `create_log`, `write_checkpoints` and `stop` block: they are for worker threads, or for before and
after the event loop. Logs themselves belong to the event loop.
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


class WantedPartition(NamedTuple):
    """A partition that should be here."""

    topic_id: UUID
    settings: TopicSettings
    is_replicated: bool = False
    """Whether other brokers have replicas, too."""


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

        `make_pool` gives an executor with so many threads of a name, which is shut down when it is done with.
        `is_replicated`: what is committed cannot be told from the log alone, and is written down too.
        """
        self.data_dir = data_dir
        self.producer_expiry_ms = producer_expiry_ms
        self.strays: list[Path] = []
        """Folders of partitions that nobody wants: they are told of, and never deleted."""
        self._disk = disk
        self._clock = clock
        self._on_failed = on_failed
        self.files = FilePool(disk, capacity=_handles_for_reading())
        """The pool all logs read through."""
        self._logs: dict[TopicPartition, Log] = {}
        self._clean = False
        self._recovery_points: dict[TopicPartition, int] = {}
        self._start_offsets: dict[TopicPartition, int] = {}
        """What the checkpoints say of partitions that are not open."""
        self._summaries: dict[TopicPartition, Summarized] = {}
        """By which unchanged logs are opened, until they are."""
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
    def was_clean(self) -> bool:
        """Whether the last stop was a clean one."""
        return self._clean

    # Starting

    def start(self) -> None:
        """Read the checkpoints, and see to it that a crash from here on is known as one."""
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
        if self._clean or self._is_same_boot:
            self._summaries = summaries
        if self._clean:
            self._disk.unlink(root / CLEAN_STOP)
        # Checkpoints that a killed broker had just put in place are acted upon from here on, so they must last.
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
        """Open every wanted partition, or create it; returns those that could not be, with the reason.

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
            # What needs no reading, not even of what is not cached yet, is faster than handing it to another thread.
            summary = self._unchanged(partition, wanted[partition]) if self._is_same_boot else None
            if summary is not None:
                open_one(partition, summary)
            else:
                to_read.append(partition)
        with self._make_pool(_OPENERS, "open") as pool:
            list(pool.map(open_one, to_read))
        self._summaries = {}
        return failed

    def _unchanged(self, partition: TopicPartition, wanted: WantedPartition) -> LogSummary | None:
        """The summary of a partition if its active segment is as it was then, and so of the same topic."""
        known = self._summaries.get(partition)
        if known is None or known.topic_id != wanted.topic_id:
            return None
        return known.summary if known.summary.is_of(self._disk, self.data_dir.path / str(partition)) else None

    def create_log(self, partition: TopicPartition, topic_id: UUID, settings: TopicSettings) -> Log:
        """The log of a partition that was just assigned here: made, or opened if it is there already."""
        failed = self.create_logs({partition: WantedPartition(topic_id, settings)})
        if failed:
            raise failed[partition]
        return self._logs[partition]

    def create_logs(self, wanted: Mapping[TopicPartition, WantedPartition]) -> dict[TopicPartition, Exception]:
        """The same for several at a time; returns those that could not be made, with the reason."""
        missing = [partition for partition in wanted if partition not in self._logs]
        there = set(self._disk.folders(self.data_dir.path)) if missing else set()
        failed: dict[TopicPartition, Exception] = {}

        def create_one(partition: TopicPartition) -> None:
            try:
                log = self._open(partition, wanted[partition], exists=str(partition) in there)
                self._logs[partition] = log
                if self._failure is not None:
                    # The directory failed meanwhile, without this log being known.
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
                _log.warning("%s belongs to an older topic of that name; it is kept as %s", folder, aside.name)
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
            summary=summary,
        )

    def stray_partitions(self) -> list[tuple[TopicPartition, UUID | None]]:
        """The folders that nobody wanted, by what they say of themselves."""
        found = ((_parse_folder(stray.name), stray) for stray in self.strays)
        return [(name, read_partition_metadata(self._disk, stray)) for name, stray in found if name is not None]

    def high_watermark_of(self, partition: TopicPartition) -> int:
        """What was last known to be committed when this partition was last open; 0 if nothing was."""
        return self._high_watermarks.get(partition, 0)

    # Deleting

    def delete_log(self, partition: TopicPartition, topic_id: UUID | None = None) -> None:
        """Delete a partition, durably: its folder gets a name that is removed now or at the next start.

        With a `topic_id` only if the folder is that of this topic, and not of another one of its name.
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
        """Put recovery points, start offsets and what summaries there are on disk. Blocking; safe in any thread."""
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
        """Put down what is committed, so that a restart of every replica does not go back. Blocking, for any thread.

        It may be late: a high watermark that is too low is put right by the next leader.
        """
        if self._is_replicated:
            with self._checkpointing:
                known = self._high_watermarks | {
                    partition: min(log.high_watermark, log.end_offset) for partition, log in list(self._logs.items())
                }
                self._write(HIGH_WATERMARKS, offsets_to_bytes(known))

    def _persist(self, _: Log) -> None:
        self.write_checkpoints()

    def _write(self, name: str, data: bytes) -> None:
        if self._written.get(name) != data:
            self._disk.write_atomic(self.data_dir.path / name, data)
            self._written[name] = data

    def _forget_checkpoints(self, partition: TopicPartition) -> None:
        """A new log must not inherit what is known of a deleted one with its name, also not after a crash."""
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
        """Checkpoints, files whose time has come, producers that have gone: until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            for log in list(self._logs.values()):
                try:
                    await asyncio.to_thread(log.purge_deleted)
                except OSError as error:
                    _log.warning("a deleted segment of %s cannot be removed now: %s", log.directory, error)
                log.expire_producers(self.producer_expiry_ms)
                log.summarize()
            try:
                await asyncio.to_thread(self.write_checkpoints)
            except OSError as error:
                _log.warning("the checkpoints of %s were not written: %s", self.data_dir.path, error)

    async def keep_high_watermarks(self, interval_s: float, workers: Executor) -> None:
        """Write them down each time that interval has passed, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(interval_s)
            try:
                await loop.run_in_executor(workers, self.write_high_watermarks)
            except OSError as error:
                _log.warning("the high watermarks of %s were not written: %s", self.data_dir.path, error)

    # Failing and stopping

    def fail(self, error: BaseException) -> None:
        """The directory failed: no log of it takes writes any more. Reads go on."""
        if self._failure is not None:
            return
        self._failure = error
        _log.critical("%s takes no more writes until the broker is restarted: %s", self.data_dir.path, error)
        for log in list(self._logs.values()):
            log.fail(error)
        if self._on_failed is not None:
            self._on_failed(error)

    def stop(self) -> None:
        """Flush and close everything; the next start finds a clean directory, unless something failed."""
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
            # Nothing is lost: the next start checks what the checkpoints would have vouched for.
            _log.error("the checkpoints of %s were not written: %s", self.data_dir.path, error)
        finally:
            self.data_dir.release()


def _handles_for_reading() -> int:
    """A quarter of the files this process may open: active segments and connections need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, min(4096, soft // 4))


def _parse_folder(name: str) -> TopicPartition | None:
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isdecimal():
        return None
    return TopicPartition(TopicName(topic), PartitionIndex(int(partition)))
