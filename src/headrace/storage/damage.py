"""The mark of a damaged log: the first lost offset, in a file of the partition's folder.

The file stays until everything from that offset on has been truncated, so that it can be fetched again from another
replica.
"""

from pathlib import Path

from headrace.runtime.disk import Disk
from headrace.storage.files import DAMAGED, storage_error


class DamageMark:
    """The first lost offset of one log, in memory and on disk."""

    __slots__ = ("_directory", "_disk", "offset")

    def __init__(self, disk: Disk, directory: Path, offset: int | None = None) -> None:
        self._disk = disk
        self._directory = directory
        self.offset = offset
        """None while no damage is known."""

    def note(self, offset: int) -> None:
        """Record that the batch at `offset` is damaged. Durable on return; blocking."""
        if self.offset is None or offset < self.offset:
            try:
                write_damaged_from(self._disk, self._directory, offset)
            except OSError as error:
                raise storage_error(error, f"marking {self._directory.name} as damaged") from error
            self.offset = offset

    def move_to(self, offset: int) -> None:
        """Change the offset in memory, because everything before and after it was truncated."""
        if self.offset is not None:
            self.offset = offset

    def clear_if_truncated(self, end_offset: int) -> None:
        """Remove the mark if the log ends at or before it. Blocking."""
        if self.offset is not None and end_offset <= self.offset:
            try:
                self._disk.unlink(self._directory / DAMAGED)
                self._disk.sync_dir(self._directory)
            except OSError as error:
                raise storage_error(error, f"marking {self._directory.name} as whole") from error
            self.offset = None


def write_damaged_from(disk: Disk, directory: Path, offset: int) -> None:
    disk.write_atomic(directory / DAMAGED, f"{offset}\n".encode())


def read_damaged_from(disk: Disk, directory: Path) -> int:
    """The offset in the file; 0 (the whole log) if the file cannot be parsed."""
    try:
        return int(disk.read_bytes(directory / DAMAGED))
    except ValueError:
        return 0
