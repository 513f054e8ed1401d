"""The archiver: copies the committed records of a topic to a table, continuously. It needs no Spark.

    with Cluster("localhost:9092") as cluster, Archiver(cluster, ArchiveOptions(topic="orders", path="…")) as archiver:
        archiver.run_once()               # everything that is committed now; or
        archiver.run(stop)                # until the event is set

Guarantees:

- A committed record is in the table exactly once: files and their end offsets change in one commit. An archiver that is
  killed before the commit leaves files that belong to no commit; the next archiver removes them.
- Only one archiver at a time writes to a directory.
- Records that retention deleted before they were archived are reported (`say`), recorded as a gap, and skipped.
- A topic that was deleted and recreated is refused: its offsets would be confused with those of the old topic.
- Small files are merged: by tiers as they arrive, and more thoroughly when a day is over.
"""

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import date, timedelta
from pathlib import Path
from types import TracebackType

import msgspec

from headrace.pipelines.archive.copy_range import copy_range
from headrace.pipelines.archive.layout import (
    PARTITION_BY,
    SCHEMA,
    ArchivePosition,
    Gap,
    day_in,
    file_name,
    open_archive,
    partition_in,
    position_of,
)
from headrace.pipelines.tables.compaction import compact
from headrace.pipelines.tables.store import (
    KEEP_REMOVED_MS,
    TableChanged,
    TableError,
    TableFile,
    TableState,
    TableStore,
    table_lock,
)
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.disk import Disk, OsDisk
from headrace.wire import EARLIEST, LATEST, PASSING, READ_COMMITTED, Cluster, Topic, TopicNotFound

_CLOSED_DAY_FAN_IN = 4
_CLOSED_AFTER = timedelta(days=2)


class ArchiveOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: str
    path: str
    iceberg: bool = False
    table: str = ""
    """The name of the Iceberg table, `namespace.table`; `headrace.` and the topic's if empty."""
    catalog: str = ""
    """An Iceberg catalog that is not in the directory: a REST catalog's address, or a name that pyiceberg knows."""
    every_s: float = 60.0
    """Seconds between two runs; a run writes one file per partition and day."""
    target_file_bytes: int = 128 * 1024 * 1024
    compact_after: int = 8
    """Merge when there are this many adjacent small files; 0: never."""
    keep_replaced_ms: int = KEEP_REMOVED_MS
    """How long merged files stay on disk, for readers that have them open."""


class ArchiveProgress(msgspec.Struct):
    """Totals of an archiver since it started."""

    records: int = 0
    size_bytes: int = 0
    """Bytes of the files, before they were merged."""
    commits: int = 0
    behind: int = 0
    """Lag: committed offsets that were not archived at the last check."""


class Archiver:
    """See the module. `say` receives messages for the user; `on_progress` is called after each commit."""

    def __init__(
        self,
        cluster: Cluster,
        options: ArchiveOptions,
        *,
        say: Callable[[str], None] = lambda text: None,
        on_progress: Callable[[ArchiveProgress], None] = lambda progress: None,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._say = say
        self._on_progress = on_progress
        self._disk = disk or OsDisk()
        self._clock = clock or SystemClock()
        self._root = Path(options.path).absolute()
        self._exit = ExitStack()
        self._store: TableStore
        self._state = TableState()
        self._position = ArchivePosition()
        self._pending: list[TableFile] = []
        self.progress = ArchiveProgress()

    def __enter__(self) -> "Archiver":
        # Before any file is created: a mistyped name leaves no directory behind.
        self._topic()
        with ExitStack() as stack:
            stack.enter_context(table_lock(self._root, f"the archiver of {self._options.topic}"))
            self._store = open_archive(
                self._root,
                self._options.topic,
                iceberg=self._options.iceberg,
                table=self._options.table,
                catalog=self._options.catalog,
                disk=self._disk,
                clock=self._clock,
                keep_removed_ms=self._options.keep_replaced_ms,
            )
            stack.callback(self._store.close)
            self._recover()
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def run(self, stop: threading.Event) -> None:
        """Archive new records until `stop` is set. Retries while no broker answers; any other error is raised."""
        is_away = False
        while not stop.is_set():
            try:
                self.run_once(stop)
                is_away = False
            except PASSING as error:
                if not is_away:
                    self._say(f"{error}; trying again every {self._options.every_s:g} seconds")
                is_away = True
                # Files that were written and not committed are removed, and their records copied again.
                self._recover()
            stop.wait(self._options.every_s)

    def run_once(self, stop: threading.Event | None = None) -> None:
        """Archive what is committed now. When `stop` is set it ends early; what it has committed stays."""
        ends = self._look()
        for partition, end in sorted(ends.items()):
            while self._position.offsets[partition] < end and not (stop and stop.is_set()):
                done = copy_range(
                    self._cluster,
                    self._store,
                    self._disk,
                    self._options.topic,
                    partition,
                    self._position.offsets[partition],
                    end,
                    target_bytes=self._options.target_file_bytes,
                )
                self._advance(partition, done.next_offset)
                self._pending += done.files
                self.progress.behind = sum(end - self._position.offsets[each] for each, end in ends.items())
                if done.records_lost:
                    self._look()
                if sum(file.size_bytes for file in self._pending) >= self._options.target_file_bytes // 2:
                    self._commit()
        self._commit()
        if self._options.compact_after:
            self._compact()

    def _recover(self) -> None:
        self._pending = []
        for name in self._store.recover():
            self._say(f"removed {name}, which an archiver wrote and did not commit")
        self._store.prepare(SCHEMA, PARTITION_BY)
        self._state = self._store.state()
        self._position = position_of(self._state)
        if self._position.topic not in ("", self._options.topic):
            raise TableError(f"{self._root} is the archive of {self._position.topic}, not of {self._options.topic}")

    def _topic(self) -> Topic:
        name = self._options.topic
        topic = self._cluster.metadata([name]).get(name)
        if topic is None:
            raise TopicNotFound(f"there is no topic {name}; `headrace topic list` shows those there are")
        return topic

    def _look(self) -> dict[int, int]:
        """The offset up to which to archive each partition; positions are moved past deleted records."""
        name, topic = self._options.topic, self._topic()
        topic_id = str(topic.topic_id or "")
        if self._position.topic_id and topic_id and topic_id != self._position.topic_id:
            raise TableError(
                f"{name} is not the topic that {self._root} is the archive of: it was deleted and recreated; "
                "archive it to another directory"
            )
        self._position = msgspec.structs.replace(self._position, topic=name, topic_id=topic_id)
        where = [(name, info.partition) for info in topic.partitions]
        starts = self._cluster.list_offsets(dict.fromkeys(where, EARLIEST))
        ends = self._cluster.list_offsets(dict.fromkeys(where, LATEST), isolation=READ_COMMITTED)
        for _, partition in where:
            self._check(partition, starts[name, partition].offset, ends[name, partition].offset)
        found = {partition: ends[name, partition].offset for _, partition in where}
        self.progress.behind = sum(end - self._position.offsets[partition] for partition, end in found.items())
        return found

    def _check(self, partition: int, start: int, end: int) -> None:
        at = self._position.offsets.get(partition, 0)
        if at > end:
            raise TableError(
                f"{self._options.topic}-{partition} ends at offset {end}, and {self._root} has it up to {at}: it is "
                "not the topic that was archived; archive it to another directory"
            )
        if at < start:
            gap = Gap(partition, at, start, self._clock.wall_ms())
            self._say(f"{gap} of {self._options.topic} were deleted before they were archived: they are lost")
            self._position = msgspec.structs.replace(self._position, gaps=(*self._position.gaps, gap))
        self._advance(partition, max(at, start))

    def _advance(self, partition: int, offset: int) -> None:
        self._position = msgspec.structs.replace(self._position, offsets={**self._position.offsets, partition: offset})

    def _commit(self) -> None:
        if not self._pending:
            return
        self._state = self._store.commit(
            self._state, add=self._pending, remove=[], properties=self._position.properties()
        )
        self.progress.commits += 1
        self.progress.records += sum(file.rows for file in self._pending)
        self.progress.size_bytes += sum(file.size_bytes for file in self._pending)
        self._pending = []
        self._on_progress(self.progress)

    def _compact(self) -> None:
        newest: dict[int, str] = {}
        for file in self._state.files:
            partition = partition_in(file.name)
            newest[partition] = max(newest.get(partition, ""), day_in(file.folder))

        def fan_in(folder: str) -> int:
            partition = int(folder.partition("/")[0].removeprefix("p="))
            closed = _is_closed(day_in(folder), newest.get(partition, ""))
            return min(_CLOSED_DAY_FAN_IN, self._options.compact_after) if closed else self._options.compact_after

        try:
            self._state = compact(
                self._store,
                self._state,
                self._disk,
                target_bytes=self._options.target_file_bytes,
                fan_in=fan_in,
                name=_merged_name,
            )
        except TableChanged:
            # Another writer has merged files of the Iceberg table: read its state again, and merge the next time.
            self._recover()


def _is_closed(day: str, newest: str) -> bool:
    try:
        return date.fromisoformat(day) + _CLOSED_AFTER <= date.fromisoformat(newest)
    except ValueError:
        return False


def _merged_name(files: Sequence[TableFile]) -> str:
    _, partition, first, _ = files[0].name.split("-")
    return file_name(int(partition.removeprefix("p")), int(first), uuid.uuid4().hex[:8])
