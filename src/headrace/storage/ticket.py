"""The work of one flush of a log, passed from the event loop to a worker thread and back."""

from collections.abc import Callable
from pathlib import Path

from headrace.model.errors import LogClosed, StorageFailed
from headrace.runtime.disk import Disk, DiskFile
from headrace.storage.files import is_disk_full, is_out_of_handles, storage_error
from headrace.storage.segment import Segment


class FlushTicket:
    """One flush: made by `Log.begin_flush`, run by a worker with `sync`, returned to `Log.complete_flush`."""

    __slots__ = (
        "aborted",
        "closed",
        "directory",
        "disk",
        "end_offset",
        "epochs",
        "files",
        "generation",
        "is_closed",
        "new_names",
        "snapshots",
    )

    def __init__(
        self, disk: Disk, directory: Path, end_offset: int, generation: int, *, is_closed: Callable[[], bool]
    ) -> None:
        """`is_closed` says whether the log was closed meanwhile: its folder may then belong to another log."""
        self.disk = disk
        self.is_closed = is_closed
        self.directory = directory
        self.end_offset = end_offset
        self.generation = generation
        self.files: list[DiskFile] = []
        """Log files with bytes that may not be on disk, oldest first."""
        self.closed: list[Segment] = []
        """Segments closed since the last flush, whose indexes must be synced too."""
        self.new_names = False
        """Whether segments were created, so that the directory must be synced too."""
        self.aborted: list[tuple[Path, bytes]] = []
        """The aborted-transaction indexes of the closed segments."""
        self.epochs: tuple[Path, bytes] | None = None
        self.snapshots: list[tuple[Path, bytes]] = []

    def sync(self) -> None:
        """Blocking. When it returns, every record below `end_offset` survives a power failure.

        Raises `StorageFailed` when a sync fails, which is final: the kernel may have dropped the dirty pages, and a
        second sync may succeed without them. `LogClosed` when the log was closed. `DiskFull` when there was no room for
        the epoch checkpoint or an index, or no descriptor to sync one with: nothing is lost, and the flush may be
        retried.
        """
        try:
            for file in self.files:
                file.sync_data()
            for segment in self.closed:
                segment.sync_indexes()
            if self.new_names:
                self.disk.sync_dir(self.directory)
        except OSError as error:
            if is_out_of_handles(error):
                raise storage_error(error, f"syncing {self.directory}") from error
            raise StorageFailed(f"syncing {self.directory} failed: {error}") from error
        needed = self.aborted if self.epochs is None else [*self.aborted, self.epochs]
        for path, data in needed:
            try:
                self._write(path, data)
            except OSError as error:
                raise storage_error(error, f"writing {path}") from error
        for path, data in self.snapshots:
            try:
                self._write(path, data)
            except OSError as error:
                if not (is_disk_full(error) or is_out_of_handles(error)):
                    raise StorageFailed(f"writing {path} failed: {error}") from error

    def _write(self, path: Path, data: bytes) -> None:
        if self.is_closed():
            raise LogClosed(f"{self.directory.name} was closed during a flush")
        self.disk.write_atomic(path, data)
