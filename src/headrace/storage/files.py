"""The pool of open files of closed segments, and the names of the files in a partition's folder."""

import errno
from pathlib import Path
from threading import Lock

from headrace.model.errors import DiskFull, StorageFailed
from headrace.runtime.disk import Disk, DiskFile

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
CORRUPT = ".corrupt"
REPAIRING = ".repairing"
REPAIRED = ".repaired"
TEMPORARY = ".tmp"
EPOCHS = "leader-epoch-checkpoint"
DAMAGED = "damaged-from-offset"
"""The file with a log's first lost offset: exists until that part is removed, or fetched again from another replica."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_HANDLE = (errno.EMFILE, errno.ENFILE)


def offset_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log`: an offset in twenty digits, as Kafka names its files."""
    return f"{offset:020d}{suffix}"


def parse_offset(name: str, suffix: str) -> int | None:
    """The offset in a file's name, or None if the file is something else."""
    stem = name[: -len(suffix)]
    return int(stem) if name.endswith(suffix) and len(stem) == 20 and stem.isdecimal() else None


def is_disk_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def is_out_of_handles(error: BaseException) -> bool:
    """Whether a file could not be opened because too many are open. Says nothing about the content of any file."""
    return isinstance(error, OSError) and error.errno in _NO_HANDLE


def storage_error(error: OSError, what: str) -> DiskFull | StorageFailed:
    """The domain error for a disk error while doing `what`: `DiskFull` if it is transient."""
    if is_out_of_handles(error):
        return DiskFull(f"{what} is not possible now: too many files are open, raise the limit (ulimit -n)")
    if is_disk_full(error):
        return DiskFull(f"the disk is full: {what} is not possible until there is room again")
    return StorageFailed(f"{what} failed: {error}")


class FilePool:
    """Read-only handles of closed segments and their indexes, shared by the logs of a broker.

    Holds at most `capacity` handles and evicts the least recently used. An evicted handle is closed when its last
    reader releases it, so a read in progress in another thread never uses a closed or reused descriptor.

    The kernel does not read ahead for them: it would start to read megabytes in the thread that needs a few bytes, and
    the event loop reads headers and sends ranges of these files.
    """

    __slots__ = ("_capacity", "_disk", "_lock", "_open")

    def __init__(self, disk: Disk, capacity: int = 256) -> None:
        self._disk = disk
        self._capacity = capacity
        self._open: dict[Path, DiskFile] = {}
        self._lock = Lock()

    @property
    def disk(self) -> Disk:
        return self._disk

    def get(self, path: Path) -> DiskFile:
        with self._lock:
            file = self._open.pop(path, None)
            if file is None:
                file = self._open_file(path)
                if len(self._open) >= self._capacity:
                    del self._open[next(iter(self._open))]
            self._open[path] = file
            return file

    def _open_file(self, path: Path) -> DiskFile:
        try:
            file = self._disk.open_read_only(path)
        except OSError as error:
            if error.errno not in _NO_HANDLE or not self._open:
                raise
            # The rest of the process needs more handles than expected: these can be opened again.
            self._open.clear()
            file = self._disk.open_read_only(path)
        file.disable_read_ahead()
        return file

    def forget(self, path: Path) -> None:
        """Drop the handle of a file that was renamed, removed or replaced: the next reader opens a new one."""
        with self._lock:
            self._open.pop(path, None)

    def __len__(self) -> int:
        return len(self._open)
