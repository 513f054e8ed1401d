"""One log and a cleaner for it, on a disk in memory or a real one."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headrace.config.topic import TopicSettings
from headrace.records.batch import check_batch
from headrace.records.builder import build_batch
from headrace.records.reader import Record, iter_records
from headrace.runtime.clock import ManualClock
from headrace.runtime.disk import Disk
from headrace.storage.batches import read_batches
from headrace.storage.cleaner import Cleaned, Cleaner
from headrace.storage.log import Log
from headrace.testing.disks import ModelDisk
from headrace.testing.inline_cleaner import drive, inline

DAY = 86_400_000
FOLDER = Path("/data/prices-0")
COMPACT = TopicSettings(cleanup_policy=("compact",), segment_bytes=1000, min_cleanable_dirty_ratio=0.0)
DELETE = TopicSettings(segment_bytes=1000)


class Bench:
    """One log and a cleaner for it, at a clock that is turned by hand."""

    def __init__(self, settings: TopicSettings = COMPACT, disk: Disk | None = None, folder: Path = FOLDER) -> None:
        self.clock = ManualClock()
        self.folder = folder
        if disk is None:
            disk = ModelDisk()
            disk.make_dir(folder)
        self.disk = disk
        self.recovery_point = 0
        self.log = self.open(settings)
        self.cleaner = self.make_cleaner()

    def make_cleaner(self, **options: Any) -> Cleaner:
        return Cleaner(lambda: [self.log], clock=self.clock, run=inline, **options)

    def open(self, settings: TopicSettings) -> Log:
        return Log.open(
            self.folder, settings, disk=self.disk, clock=self.clock, clean=False,
            recovery_point=self.recovery_point, producer_expiry_ms=DAY, persist=self._persist,
        )  # fmt: skip

    def _persist(self, log: Log) -> None:
        self.recovery_point = log.flushed_offset

    def reopen(self) -> None:
        self.log.close()
        self.log = self.open(self.log.settings)
        self.cleaner = self.make_cleaner()

    def put(self, *items: tuple[str, str | None], timestamp: int | None = None, **options: Any) -> None:
        now = self.clock.wall_ms() if timestamp is None else timestamp
        records = [Record(0, now, key.encode(), None if value is None else value.encode()) for key, value in items]
        batch = build_batch(records, **options)
        self.log.append(batch, check_batch(batch), 0)

    def flush(self) -> None:
        ticket = self.log.begin_flush()
        if ticket is not None:
            ticket.sync()
            self.log.complete_flush(ticket)

    def roll(self) -> None:
        self.log.roll()
        self.flush()

    def compact(self) -> Cleaned | None:
        return drive(self.cleaner.compact_dirtiest())

    def retain(self) -> int:
        return drive(self.cleaner.apply_retention())

    def records(self) -> list[Record]:
        return list(read_log(self.log))

    def items(self) -> list[tuple[int, str, str | None]]:
        return [
            (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
            for record in self.records()
        ]


def read_log(log: Log) -> Iterable[Record]:
    """What a consumer sees that fetches from the start to the end."""
    offset = log.start_offset
    while (found := log.slice(offset, 300, log.end_offset, at_least_one=True)) is not None:
        for batch in read_batches(found.file, found.position, found.position + found.length):
            for record in iter_records(batch.data):
                if record.offset >= offset:
                    yield record
            offset = batch.header.next_offset


def names(bench: Bench) -> set[str]:
    return set(bench.disk.files(bench.folder))
