"""The file system interface of the storage code.

Production uses `OsDisk`. Tests wrap it to fail, fill up or kill the process at the n-th operation, so every
write, sync, rename, truncate and unlink of storage code goes through here, and nothing else does.

Errors are plain `OSError`s; storage code maps ENOSPC/EDQUOT to `DiskFull` and the rest to `StorageFailed`.
"""

import contextlib
import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from headrace.runtime import page_cache

Buffer = bytes | bytearray | memoryview


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OPEN_FILES = Path("/proc/self/fd")

# Constants of renameat2(2), which Python does not wrap.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)


class DiskFile(Protocol):
    """An open file that is appended to, read at positions, synced and truncated.

    It is closed by `close`, or with its last reference: a cache may drop a file that a reader in another thread still
    uses.
    """

    path: Path

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Append all buffers, in one system call where possible; return the number of bytes.

        On `OSError` some bytes may have been written; the caller truncates them.
        """
        ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes at `position`; fewer at the end of the file. May block on the device."""
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Like `read`, into a buffer; returns the number of bytes, fewer at the end of the file."""
        ...

    def read_cached(self, position: int, length: int) -> Buffer | None:
        """Like `read`, but only from the page cache; None means to read in a worker thread instead."""
        ...

    def is_cached(self, position: int, length: int) -> bool:
        """True if the page cache seems to have all of these bytes: sending them will not wait for the device."""
        ...

    def send_to(self, socket_fd: int, position: int, length: int) -> int:
        """Send bytes to a non-blocking socket by sendfile; the number sent. `BlockingIOError` if none."""
        ...

    def disable_read_ahead(self) -> None:
        """Make reads of this file read no more from the device than was asked for, however they follow each other."""
        ...

    def read_ahead(self, position: int, length: int) -> None:
        """Start to read bytes into the page cache, without waiting for them. May block if the device is busy."""
        ...

    def bring_in(self, position: int, length: int) -> int:
        """Read bytes into the page cache and wait for them; returns their number, fewer at the end of the file."""
        ...

    def has_any_cached(self, position: int, length: int) -> bool:
        """True if the page cache seems to have any of these bytes."""
        ...

    def drop_cached(self, position: int, length: int) -> None:
        """Remove bytes from the page cache, as far as they are on the device and not in use."""
        ...

    def reopened_in_order(self) -> "DiskFile":
        """Another handle of the same file, to read it from front to back: the kernel reads ahead for it."""
        ...

    def sync_data(self) -> None: ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class FileStamp(NamedTuple):
    """Identifies a file and its content: equal stamps mean the same, unchanged file."""

    size: int
    modified_ns: int
    inode: int


class Disk(Protocol):
    def open(self, path: Path, *, create: bool = False) -> DiskFile: ...

    def open_read_only(self, path: Path) -> DiskFile: ...

    def read_bytes(self, path: Path) -> bytes: ...

    def files(self, path: Path) -> dict[str, int]:
        """The plain files in a directory: sizes in bytes by name."""
        ...

    def folders(self, path: Path) -> list[str]:
        """The names of the directories in a directory."""
        ...

    def stamp(self, path: Path) -> FileStamp: ...

    def boot_id(self) -> str:
        """The id of the current boot of the operating system; empty if unknown.

        While it is the same, everything written is there, synced or not, even if the process was killed.
        """
        ...

    def write_atomic(self, path: Path, data: bytes) -> None:
        """Replace `path` with `data`: write a temporary, fsync it, rename it over, fsync the directory."""
        ...

    def write_cache(self, path: Path, data: bytes) -> None:
        """Replace `path` without syncing: for caches that can be rebuilt. Readers never see a half-written file."""
        ...

    def rename(self, source: Path, target: Path, *, sync: bool = True) -> None:
        """Rename and fsync the target's directory; without `sync` the caller does that later."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Create a hard link; an existing one is fine. The caller syncs the directory."""
        ...

    def exchange(self, one: Path, other: Path) -> None:
        """Swap two directories atomically, and fsync their parents.

        Raises `OSError` (EINVAL) if the file system does not support it.
        """
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def make_dir(self, path: Path) -> None:
        """Create a directory in an existing one and fsync the parent; an existing directory is fine."""
        ...

    def remove_tree(self, path: Path) -> None: ...

    def sync_dir(self, path: Path) -> None: ...

    def free_bytes(self, path: Path) -> int: ...


class OsFile:
    __slots__ = ("_fd", "_kernel_reads_ahead", "path")

    def __init__(self, path: Path, flags: int, *, opened_as: Path | None = None) -> None:
        self._fd = -1
        self._kernel_reads_ahead = True
        self.path = path
        self._fd = os.open(opened_as or path, flags | os.O_CLOEXEC, 0o644)

    def append(self, buffers: Sequence[Buffer]) -> int:
        fd = self._fd
        expected = sum(map(len, buffers))
        written = os.writev(fd, buffers)
        if written == expected:
            return written
        # A short write: the device is nearly full, or a signal arrived. Write the rest; ENOSPC raises by itself.
        rest = memoryview(b"".join(buffers))[written:]
        while rest:
            rest = rest[os.write(fd, rest) :]
        return expected

    def read(self, position: int, length: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length:
            data = os.pread(self._fd, length - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_into(self, position: int, buffer: memoryview) -> int:
        got = 0
        while got < len(buffer):
            count = os.preadv(self._fd, [buffer[got:]], position + got)
            if not count:
                break
            got += count
        return got

    def read_cached(self, position: int, length: int) -> Buffer | None:
        buffer = bytearray(length)
        try:
            got = os.preadv(self._fd, [buffer], position, os.RWF_NOWAIT)
        except OSError:
            return None
        return memoryview(buffer) if got == length else None

    def is_cached(self, position: int, length: int) -> bool:
        return page_cache.is_cached(self._fd, position, length)

    def send_to(self, socket_fd: int, position: int, length: int) -> int:
        return os.sendfile(socket_fd, self._fd, position, length)

    def disable_read_ahead(self) -> None:
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
        self._kernel_reads_ahead = False

    def read_ahead(self, position: int, length: int) -> None:
        os.posix_fadvise(self._fd, position, length, os.POSIX_FADV_WILLNEED)

    def bring_in(self, position: int, length: int) -> int:
        if not self._kernel_reads_ahead:
            # In one piece: it would else be read by the 64 KiB that the kernel takes at a time.
            self.read_ahead(position, length)
        return page_cache.bring_in(self._fd, position, length)

    def has_any_cached(self, position: int, length: int) -> bool:
        return page_cache.has_any(self._fd, position, length)

    def drop_cached(self, position: int, length: int) -> None:
        os.posix_fadvise(self._fd, position, length, os.POSIX_FADV_DONTNEED)

    def reopened_in_order(self) -> "OsFile":
        # By the descriptor: the path may have got another file since, or none.
        return OsFile(self.path, os.O_RDONLY, opened_as=_OPEN_FILES / str(self._fd))

    def sync_data(self) -> None:
        os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class OsDisk:
    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        return OsFile(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0))

    def open_read_only(self, path: Path) -> DiskFile:
        return OsFile(path, os.O_RDONLY)

    def read_bytes(self, path: Path) -> bytes:
        return path.read_bytes()

    def files(self, path: Path) -> dict[str, int]:
        with os.scandir(path) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file(follow_symlinks=False)}

    def folders(self, path: Path) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]

    def stamp(self, path: Path) -> FileStamp:
        found = os.stat(path)
        return FileStamp(found.st_size, found.st_mtime_ns, found.st_ino)

    def boot_id(self) -> str:
        try:
            return _BOOT_ID.read_text().strip()
        except OSError:
            return ""

    def write_atomic(self, path: Path, data: bytes) -> None:
        temporary = self._write_temporary(path, data, sync=True)
        os.rename(temporary, path)
        self.sync_dir(path.parent)

    def write_cache(self, path: Path, data: bytes) -> None:
        os.rename(self._write_temporary(path, data, sync=False), path)

    def rename(self, source: Path, target: Path, *, sync: bool = True) -> None:
        os.rename(source, target)
        if sync:
            self.sync_dir(target.parent)

    def link(self, source: Path, target: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.link(source, target)

    def exchange(self, one: Path, other: Path) -> None:
        if _libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(one))
        self.sync_dir(one.parent)
        self.sync_dir(other.parent)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_dir(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.sync_dir(path.parent)

    def remove_tree(self, path: Path) -> None:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self.remove_tree(Path(entry.path))
                else:
                    os.unlink(entry.path)
        os.rmdir(path)

    def sync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: Path) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    @staticmethod
    def _write_temporary(path: Path, data: bytes, *, sync: bool) -> Path:
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        return temporary
