"""Removes old records in the background, by retention and compaction.

Retention (`retention.py` decides) removes whole segments from the front of a log, by age and by size.
Compaction (`compaction.py` decides, `rewrite.py` does the work) rewrites closed segments without the records that later
ones replaced, and swaps them in (`replacement.py`). Disk I/O runs in worker threads; the log itself is changed in the
event loop, without waiting. Appends and reads continue meanwhile.

The first dirty offset of a log is stored in its folder in `cleaner-offset-checkpoint`, with the leader epoch of the
last clean offset and the time at which the next tombstones may be removed. If the checkpoint is lost, damaged or of
another history, cleaning starts from the front.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, NamedTuple

from headrace.model.errors import DiskFull, HeadraceError, LogClosed
from headrace.runtime.clock import Clock
from headrace.storage.aborted import AbortedTransactions
from headrace.storage.compaction import CleanRange, Compactor, OffsetMap, clean_range
from headrace.storage.encryption import LogCipher
from headrace.storage.files import SNAPSHOT, is_disk_full, offset_name
from headrace.storage.log import Log
from headrace.storage.replacement import Replacement
from headrace.storage.retention import keep_from
from headrace.storage.rewrite import map_keys, rewrite, view
from headrace.storage.segment import Segment

_log = logging.getLogger(__name__)

CHECKPOINT = "cleaner-offset-checkpoint"
_NEVER = 2**63 - 1
_STRETCH_MS = 1.0
_BREATH_MS = 0.05
"""How long a worker computes at a time, and then sleeps: long enough for the event loop to get the interpreter."""
_LONGEST_REST_MS = 500.0

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs work that may wait for the disk: in a thread, or in tests at once."""


class CleaningStopped(Exception):
    """The log was closed, or the cleaner is stopping: not an error."""


class Cleaned(NamedTuple):
    """The result of one compaction."""

    first_dirty: int
    clean_until: int
    bytes_before: int
    bytes_after: int
    records_read: int
    records_retained: int


@dataclass(slots=True)
class CleanerCounts:
    """What a cleaner has done since it was made."""

    segments_removed: int = 0
    """By retention."""
    compactions: int = 0
    bytes_read: int = 0
    bytes_removed: int = 0
    records_removed: int = 0


class _State:
    """The cleaner's state of one log, in memory."""

    __slots__ = ("first_dirty", "next_horizon_ms", "trouble")

    def __init__(self, first_dirty: int, next_horizon_ms: int | None = None) -> None:
        self.first_dirty = first_dirty
        self.next_horizon_ms = next_horizon_ms
        """When the next tombstones may be removed; None if there are none."""
        self.trouble: str | None = None
        """Why this log is not compacted until it is opened again."""


async def in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


def _nothing() -> None:
    """Does nothing: run in a worker to yield to the event loop."""


class Cleaner:
    def __init__(
        self,
        logs: Callable[[], Iterable[Log]],
        *,
        clock: Clock,
        retention_check_interval_ms: int = 300_000,
        backoff_ms: int = 15_000,
        threads: int = 1,
        dedupe_buffer_bytes: int = 128 * 1024 * 1024,
        io_max_bytes_per_s: float = float(_NEVER),
        run: Run = in_thread,
    ) -> None:
        """`logs` returns the current logs."""
        self._logs = logs
        self._clock = clock
        self._retention_check_interval_ms = retention_check_interval_ms
        self._backoff_ms = backoff_ms
        self._threads = threads
        self._dedupe_buffer_bytes = dedupe_buffer_bytes
        self._io_max_bytes_per_s = io_max_bytes_per_s
        self._run = run
        self._since_ms = clock.wall_ms()
        self._states: dict[Log, _State] = {}
        self._busy: set[Log] = set()
        self._wake = asyncio.Event()
        self._stopping = Event()
        self._retention: asyncio.Task[None] | None = None
        self._compactions: dict[int, asyncio.Task[None]] = {}
        self.counts = CleanerCounts()

    # In the background

    def start(self) -> None:
        """Start retention and compaction in the running event loop."""
        self._stopping.clear()
        self._wake = asyncio.Event()
        self._retention = asyncio.create_task(self._keep_applying_retention(), name="retention")
        self._start_compactions()

    def reconfigure(
        self, *, backoff_ms: int, threads: int, dedupe_buffer_bytes: int, io_max_bytes_per_s: float
    ) -> None:
        """Use these settings from now on; a compaction in progress finishes with the former ones."""
        before = (self._backoff_ms, self._threads, self._dedupe_buffer_bytes, self._io_max_bytes_per_s)
        if before == (backoff_ms, threads, dedupe_buffer_bytes, io_max_bytes_per_s):
            return
        self._backoff_ms, self._threads = backoff_ms, threads
        self._dedupe_buffer_bytes, self._io_max_bytes_per_s = dedupe_buffer_bytes, io_max_bytes_per_s
        if self._retention is not None and not self._stopping.is_set():
            self._start_compactions()
            # Tasks that sleep for the former interval wake up.
            self._wake.set()
            self._wake = asyncio.Event()

    def _start_compactions(self) -> None:
        for number in range(self._threads):
            task = self._compactions.get(number)
            if task is None or task.done():
                self._compactions[number] = asyncio.create_task(
                    self._keep_compacting(number), name=f"compaction-{number}"
                )

    async def stop(self) -> None:
        """Stop, and return when nothing is in progress, which is soon: unfinished work is abandoned without effect."""
        self._stopping.set()
        self._wake.set()
        tasks = [*self._compactions.values(), *([] if self._retention is None else [self._retention])]
        self._retention, self._compactions = None, {}
        await asyncio.gather(*tasks)

    @property
    def uncleanable_count(self) -> int:
        """The number of logs that cannot be compacted until they are opened again."""
        return sum(state.trouble is not None for state in tuple(self._states.values()))

    @property
    def is_busy(self) -> bool:
        """Whether any work is in progress."""
        return bool(self._busy)

    async def _keep_applying_retention(self) -> None:
        while not await self._is_stopped_within(self._retention_check_interval_ms):
            await self.apply_retention()

    async def _keep_compacting(self, number: int) -> None:
        while not self._stopping.is_set() and number < self._threads:
            if await self.compact_dirtiest() is None and await self._is_stopped_within(self._backoff_ms):
                return

    async def _is_stopped_within(self, ms: int) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), ms / 1000)
        return self._stopping.is_set()

    # Retention

    async def apply_retention(self) -> int:
        """Remove segments past their retention from every log; returns how many."""
        removed = 0
        for log in list(self._logs()):
            if self._stopping.is_set():
                break
            if log.is_closed or log.failure is not None or log in self._busy:
                continue
            self._busy.add(log)
            try:
                removed += await self._retain(log)
            except LogClosed:
                continue
            except (HeadraceError, OSError) as error:
                _log.warning("retention of %s: %s", log.directory.name, error)
            finally:
                self._busy.discard(log)
        return removed

    async def _retain(self, log: Log) -> int:
        now_ms = self._clock.wall_ms()
        below: int = await self._run(lambda: keep_from(log, now_ms, opened_ms=self._since_ms))
        below = min(below, log.high_watermark)
        if below <= log.segments[0].base_offset:
            return 0
        if below >= log.end_offset:
            below = await self._close_active(log)
        removed = 0
        # One at a time: each waits briefly for the disk, and other tasks may run in between.
        for segment in log.segments[:-1]:
            if segment.next_offset > min(below, log.high_watermark) or log.is_closed:
                break
            gone = log.remove_segments_below(segment.next_offset)
            removed += gone
            self.counts.segments_removed += gone
            await self._run(_nothing)
        if removed:
            _log.info("retention removed %d segments of %s, which starts at offset %d now",
                      removed, log.directory.name, log.start_offset)  # fmt: skip
        return removed

    async def _close_active(self, log: Log) -> int:
        """Close the active segment so that it can be removed; returns the offset below which everything can be."""
        last = log.active
        try:
            snapshots = log.roll_to_remove()
        except DiskFull as error:
            _log.warning("the last segment of %s stays for now: %s", log.directory.name, error)
            return last.base_offset
        try:
            await self._run(lambda: _write_snapshots(log, snapshots))
        except OSError as error:
            _log.warning("the last segment of %s stays for now: %s", log.directory.name, error)
            log.snapshots_written(snapshots, well=False)
            return last.base_offset
        log.snapshots_written(snapshots, well=True)
        return last.next_offset

    # Compaction

    async def compact_dirtiest(self) -> Cleaned | None:
        """Compact the log that needs it most; None if none does."""
        self._forget_closed()
        now_ms = self._clock.wall_ms()
        best: tuple[float, Log] | None = None
        for log in list(self._logs()):
            if not log.settings.compacts or log.is_closed or log.failure is not None or log in self._busy:
                continue
            self._roll_if_overdue(log, now_ms)
            try:
                urgency = await self._urgency(log, now_ms)
            except Exception as error:
                self._went_wrong(log, error)
                continue
            if urgency is not None and (best is None or urgency > best[0]):
                best = urgency, log
        return None if best is None or best[1] in self._busy else await self.compact(best[1])

    async def compact(self, log: Log) -> Cleaned | None:
        """Compact one log as far as possible, whether it is due or not; None if nothing can be, or it failed.

        If the keys do not fit into the memory for them, this cleans as far as they do; the next pass cleans the rest.
        """
        self._busy.add(log)
        try:
            return await self._compact(log)
        except Exception as error:
            self._went_wrong(log, error)
        finally:
            self._busy.discard(log)
        return None

    def _went_wrong(self, log: Log, error: Exception) -> None:
        """Log a failure, and exclude a log that cannot be compacted."""
        if isinstance(error, CleaningStopped | LogClosed):
            return
        if isinstance(error, FileNotFoundError):
            # Records, or the log, were deleted while it was read. If there is another cause, the next attempt shows it.
            _log.info("compaction of %s was cut short: %s", log.directory.name, error)
        elif is_disk_full(error) or isinstance(error, DiskFull):
            _log.warning("there is no room to compact %s now", log.directory.name)
        elif not log.is_closed:
            is_expected = isinstance(error, HeadraceError | OSError)
            _log.error("%s cannot be compacted and is left as it is: %s", log.directory, error,
                       exc_info=None if is_expected else error)  # fmt: skip
            self._states.setdefault(log, _State(log.start_offset)).trouble = str(error)

    async def _urgency(self, log: Log, now_ms: int) -> float | None:
        """The priority of compacting a log; None if it is not needed, 2 if it must not wait any longer."""
        state = await self._state(log)
        if state.trouble is not None:
            return None
        limit = log.stable_offset
        dirty: CleanRange = await self._run(lambda: _dirty_range(log, state.first_dirty, limit, now_ms))
        if dirty.is_overdue or (state.next_horizon_ms is not None and now_ms >= state.next_horizon_ms):
            return 2.0
        if dirty.dirty_bytes and dirty.dirty_ratio >= log.settings.min_cleanable_dirty_ratio:
            return dirty.dirty_ratio
        return None

    async def _compact(self, log: Log) -> Cleaned | None:
        state = await self._state(log)
        now_ms = self._clock.wall_ms()
        first_dirty = state.first_dirty
        # After a truncation the mapped keys do not match the log, and the compaction starts over.
        generation = log.generation
        limit = log.stable_offset
        dirty: CleanRange = await self._run(lambda: _dirty_range(log, first_dirty, limit, now_ms))
        if dirty.end <= log.segments[0].base_offset:
            return None
        pace = _Pace(self._clock, self._io_max_bytes_per_s, lambda: self._stopping.is_set() or log.is_closed)
        segments = [segment for segment in log.segments[:-1] if segment.next_offset <= dirty.end]
        # A copy as of now: transactions added meanwhile have offsets past the range.
        aborted = AbortedTransactions(log.aborted.within(0, dirty.end))
        offsets = OffsetMap(self._dedupe_buffer_bytes, aborted)
        offsets.end_offset = first_dirty
        dirty_segments = [segment for segment in segments if segment.next_offset > first_dirty]
        cipher = None if log.cipher is None else log.cipher.for_rewrite()
        await self._run(lambda: map_keys(dirty_segments, first_dirty, offsets, pace, cipher))
        compactor = Compactor(
            offsets=offsets,
            last_batches={pid: entry.batches[-1].last_offset for pid, entry in log.producers.items() if entry.batches},
            now_ms=now_ms,
            delete_retention_ms=log.settings.delete_retention_ms,
            aborted=aborted,
            pause=lambda: pace(0),
        )
        bytes_before = bytes_after = 0
        left = [segment for segment in segments if segment.base_offset < offsets.end_offset]
        while left:
            done, size = await self._compact_some(log, left, compactor, pace, generation, cipher)
            bytes_before += sum(segment.size for segment in left[:done])
            bytes_after += size
            del left[:done]
        if log.is_closed:
            raise CleaningStopped
        state.first_dirty = offsets.end_offset
        state.next_horizon_ms = compactor.next_horizon_ms
        await self._run(lambda: _write_checkpoint(log, state))
        result = Cleaned(
            first_dirty,
            offsets.end_offset,
            bytes_before,
            bytes_after,
            compactor.records_read,
            compactor.records_retained,
        )
        self._count(result)
        _log.info("compacted %s up to offset %d: %d of %d records retained, %d of %d bytes", log.directory.name,
                  result.clean_until, result.records_retained, result.records_read,
                  bytes_after, bytes_before)  # fmt: skip
        return result

    def _count(self, result: Cleaned) -> None:
        counts = self.counts
        counts.compactions += 1
        counts.bytes_read += result.bytes_before
        counts.bytes_removed += max(0, result.bytes_before - result.bytes_after)
        counts.records_removed += max(0, result.records_read - result.records_retained)

    async def _compact_some(
        self,
        log: Log,
        segments: list[Segment],
        compactor: Compactor,
        pace: "_Pace",
        generation: int,
        cipher: LogCipher | None,
    ) -> tuple[int, int]:
        """Replace the first few segments by one, unless the log was truncated since it had this generation; returns how
        many were replaced, and the size of the new one."""

        def prepare() -> tuple[int, Replacement | None]:
            done = rewrite(
                segments, log.files.disk, compactor, pace, max_bytes=log.settings.segment_bytes, cipher=cipher
            )
            if done.path is None:
                return 1, None
            new = Segment.over_cleaned_file(
                done.path, segments[0].base_offset, log.files, log.settings.index_interval_bytes
            )
            if log.is_closed:
                raise CleaningStopped
            replacement = Replacement(log, done.segments, new, compactor.dropped_markers)
            replacement.commit()
            return len(done.segments), replacement

        done, replacement = await self._run(prepare)
        if replacement is None:
            return done, segments[0].size
        if log.generation != generation or not replacement.adopt():
            await self._run(replacement.withdraw)
            raise CleaningStopped
        await self._run(replacement.clear)
        replacement.settle()
        await self._run(replacement.finish)
        return done, replacement.size_bytes

    def _roll_if_overdue(self, log: Log, now_ms: int) -> None:
        """Close an active segment that has waited for `max.compaction.lag.ms`: only closed ones are cleaned."""
        first = log.active.first_timestamp
        if first is not None and 0 <= first < now_ms - log.settings.max_compaction_lag_ms:
            try:
                log.roll()
            except HeadraceError as error:
                _log.warning("rolling %s for compaction: %s", log.directory.name, error)

    def _forget_closed(self) -> None:
        for log in [log for log in self._states if log.is_closed]:
            del self._states[log]

    # How far a log is clean

    async def _state(self, log: Log) -> _State:
        state = self._states.get(log)
        if state is None:
            loaded: _State = await self._run(lambda: _read_checkpoint(log))
            state = self._states.setdefault(log, loaded)
        state.first_dirty = min(max(state.first_dirty, log.start_offset), log.end_offset)
        return state


def _write_snapshots(log: Log, snapshots: Sequence[tuple[int, bytes]]) -> None:
    for offset, data in snapshots:
        log.files.disk.write_atomic(log.directory / offset_name(offset, SNAPSHOT), data)


def _read_checkpoint(log: Log) -> _State:
    try:
        version, *fields = log.files.disk.read_bytes(log.directory / CHECKPOINT).split()
        offset, epoch, horizon_ms = map(int, fields)
        if version == b"0" and log.epochs.epoch_of(offset - 1) == epoch:
            return _State(offset, None if horizon_ms < 0 else horizon_ms)
    except (FileNotFoundError, ValueError):
        pass
    return _State(log.start_offset)


def _write_checkpoint(log: Log, state: _State) -> None:
    offset = state.first_dirty
    horizon_ms = -1 if state.next_horizon_ms is None else state.next_horizon_ms
    text = f"0\n{offset} {log.epochs.epoch_of(offset - 1)} {horizon_ms}\n"
    log.files.disk.write_atomic(log.directory / CHECKPOINT, text.encode())


class _Pace:
    """Limits a worker's use of the interpreter and the disk, and ends its work when the cleaner stops."""

    def __init__(self, clock: Clock, max_bytes_per_s: float, should_stop: Callable[[], bool]) -> None:
        self._clock = clock
        self._max_bytes_per_s = max_bytes_per_s
        self._should_stop = should_stop
        self._started_ms = self._rested_ms = clock.monotonic_ms()
        self._bytes = 0
        self._sleep = Event()

    def __call__(self, size_bytes: int) -> None:
        if self._should_stop():
            raise CleaningStopped
        self._bytes += size_bytes
        now_ms = self._clock.monotonic_ms()
        ahead_ms = 1000 * self._bytes / self._max_bytes_per_s - (now_ms - self._started_ms)
        if ahead_ms > _STRETCH_MS:
            self._sleep.wait(min(ahead_ms, _LONGEST_REST_MS) / 1000)
        elif now_ms - self._rested_ms >= _STRETCH_MS:
            self._sleep.wait(_BREATH_MS / 1000)
        else:
            return
        self._rested_ms = self._clock.monotonic_ms()


def _dirty_range(log: Log, first_dirty: int, limit: int, now_ms: int) -> CleanRange:
    settings = log.settings
    wants_first = settings.max_compaction_lag_ms < _NEVER
    return clean_range(
        [view(segment, first_timestamp=wants_first) for segment in log.segments[:-1]],
        first_dirty=first_dirty,
        limit=limit,
        now_ms=now_ms,
        min_lag_ms=settings.min_compaction_lag_ms,
        max_lag_ms=settings.max_compaction_lag_ms,
    )
