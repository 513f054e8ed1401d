"""A log on a model disk, opened as in a broker: for tests of storage."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from headrace.config.topic import TopicSettings
from headrace.model.ids import BrokerId, PartitionIndex, TopicName, TopicPartition
from headrace.records.batch import iter_headers, read_header
from headrace.records.builder import build_batch
from headrace.records.markers import Marker
from headrace.records.reader import Record, iter_records
from headrace.runtime.clock import ManualClock
from headrace.runtime.disk import Disk
from headrace.security.encryption.data_keys import UnwrappedKeys
from headrace.storage.appender import AppendResult
from headrace.storage.datadir import DataDir
from headrace.storage.encryption import LogCipher
from headrace.storage.log import Log
from headrace.storage.manager import LogManager, WantedPartition
from headrace.testing.disks import ModelDisk

PARTITION = TopicPartition(TopicName("orders"), PartitionIndex(0))
TOPIC_ID = UUID(int=7)
SMALL = TopicSettings(segment_bytes=1000, index_interval_bytes=150, file_delete_delay_ms=0)
"""Settings under which a few records make several segments with several index entries each."""
DATA_KEYS = UnwrappedKeys({1: bytes(range(32))}, 1)
"""The data key of an encrypted log."""


def cipher_of(keys: UnwrappedKeys, *, encrypts: bool = True) -> LogCipher:
    """A cipher of `PARTITION` with these data keys."""
    return LogCipher(keys, PARTITION.topic, TOPIC_ID, PARTITION.partition, encrypts=encrypts)


class LogBench:
    """One partition of a data directory, opened as in a broker; `reopen` continues on another disk or the same."""

    def __init__(
        self,
        disk: Disk | None = None,
        settings: TopicSettings = SMALL,
        *,
        root: Path = Path("/data"),
        clock: ManualClock | None = None,
        is_replicated: bool = False,
        keys: UnwrappedKeys | None = None,
        partition: TopicPartition = PARTITION,
    ) -> None:
        """With data `keys` the log is encrypted."""
        self.disk: Disk = disk or ModelDisk(root)
        self.settings = settings
        self.root = root
        self.is_replicated = is_replicated
        self.keys = keys
        self.partition = partition
        self.clock = clock or ManualClock()
        self.manager = self._start()

    def _start(self) -> LogManager:
        data_dir = DataDir(self.root, "cluster", BrokerId(1))
        manager = LogManager(data_dir, disk=self.disk, clock=self.clock)
        manager.start()
        failed = manager.open_logs({self.partition: WantedPartition(TOPIC_ID, self.settings, self.is_replicated)})
        if failed:
            raise failed[self.partition]
        if self.keys is not None:
            manager.logs[self.partition].cipher = cipher_of(self.keys)
        return manager

    @property
    def log(self) -> Log:
        return self.manager.logs[self.partition]

    @property
    def folder(self) -> Path:
        return self.root / str(self.partition)

    def reopen(self, disk: Disk | None = None) -> "LogBench":
        """Open the log again, on `disk` or on this one, without closing the one before."""
        return LogBench(
            disk or self.disk,
            self.settings,
            root=self.root,
            clock=self.clock,
            is_replicated=self.is_replicated,
            keys=self.keys,
        )

    def reopen_cleanly(self) -> "LogBench":
        self.manager.stop()
        return self.reopen()

    def append(
        self,
        *values: bytes,
        timestamp: int | None = None,
        epoch: int = 0,
        producer: int = -1,
        sequence: int = -1,
        producer_epoch: int = 0,
        transactional: bool = False,
        key: bytes | None = None,
    ) -> AppendResult:
        """Append one batch of these values."""
        time_ms = self.clock.wall_ms() if timestamp is None else timestamp
        batch = build_batch(
            [Record(0, time_ms, key, value) for value in values],
            producer_id=producer,
            producer_epoch=producer_epoch if producer >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        return self.log.append(batch, read_header(batch), epoch)

    def end_transaction(
        self, producer: int, *, committed: bool, producer_epoch: int = 0, epoch: int = 0
    ) -> AppendResult:
        """Append the marker that ends a producer's open transaction."""
        return self.log.append_marker(producer, producer_epoch, Marker(committed, 0), epoch)

    def flush(self) -> None:
        ticket = self.log.begin_flush()
        if ticket is not None:
            ticket.sync()
            self.log.complete_flush(ticket)

    def checkpoint(self) -> None:
        """Write the checkpoints, as a broker does periodically."""
        self.log.summarize()
        self.manager.write_checkpoints()

    def records(self, from_offset: int | None = None, max_bytes: int = 700) -> Iterator[Record]:
        """Read every record from an offset (by default the start) on, as a consumer does."""
        log = self.log
        offset = log.start_offset if from_offset is None else from_offset
        while offset < log.end_offset:
            part = log.slice(offset, max_bytes, log.end_offset, at_least_one=True)
            if part is None:
                return
            data = part.read()
            whole = 0
            for position, header in iter_headers(data):
                whole += 1
                for record in iter_records(data[position : position + header.size]):
                    if record.offset >= offset:
                        yield record
                offset = max(offset, header.next_offset)
            if not whole:
                raise AssertionError(f"the slice at {offset} has no whole batch")


def position_of(log: Log, offset: int) -> int:
    """Where the batch with an offset begins in the file of its segment."""
    part = log.slice(offset, 1, log.end_offset, at_least_one=True)
    assert part is not None
    return part.position
