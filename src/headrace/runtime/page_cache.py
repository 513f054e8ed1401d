"""What the page cache has of a file: cachestat(2) where the kernel has it (Linux 6.5), probes elsewhere.

cachestat answers for a whole range in one call. It also counts pages that are still being read from the device, so one
byte at the end of the range is probed as well: reading ahead goes from the front to the back.

What is to be brought in is sent to /dev/null: the kernel reads it as for any `sendfile`, and copies nothing.
"""

import ctypes
import errno
import os
from functools import cache
from mmap import PAGESIZE

_CACHESTAT = 451
"""The system call's number, the same on every architecture that got it after its numbering was unified."""
_PROBE_EVERY_BYTES = 64 * 1024
_COPY_BYTES = 128 * 1024
_NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMFILE, errno.ENFILE)
"""Errors of sendfile(2), and of opening where it sends to, after which bytes are copied."""


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


# PyDLL holds the interpreter's lock: the call takes about a microsecond, and another thread might hold the lock longer.
_syscall = ctypes.PyDLL(None).syscall
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.POINTER(_Range), ctypes.POINTER(_Counts), ctypes.c_uint)
_syscall.restype = ctypes.c_long


def is_cached(fd: int, position: int, length: int) -> bool:
    """True if the page cache seems to have all of these bytes: reading them will not wait for the device."""
    if length <= 0:
        return True
    found = _cached_pages(fd, position, length)
    if found is None:
        return all(_has(fd, at) for at in range(position, position + length, _PROBE_EVERY_BYTES)) and _has(
            fd, position + length - 1
        )
    pages = (position + length - 1) // PAGESIZE - position // PAGESIZE + 1
    return found >= pages and _has(fd, position + length - 1)


def has_any(fd: int, position: int, length: int) -> bool:
    """True if the page cache has any of these bytes, or is being given them; also if the kernel does not tell."""
    found = _cached_pages(fd, position, length)
    return found is None or found > 0


def bring_in(fd: int, position: int, length: int) -> int:
    """Wait until the page cache has these bytes; returns how many it has, fewer at the end of the file."""
    got = 0
    try:
        while got < length and (count := os.sendfile(_null(), fd, position + got, length - got)):
            got += count
    except OSError as error:
        if error.errno not in _NO_SENDFILE:
            raise
        buffer = memoryview(bytearray(_COPY_BYTES))
        while got < length and (count := os.preadv(fd, [buffer[: length - got]], position + got)):
            got += count
    return got


@cache
def _null() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _cached_pages(fd: int, position: int, length: int) -> int | None:
    """How many pages of the range are cached; None where the kernel does not tell."""
    counts = _Counts()
    if _syscall(_CACHESTAT, fd, _Range(position, length), counts, 0) != 0:
        return None
    cached: int = counts.cached
    return cached


def _has(fd: int, position: int) -> bool:
    try:
        return bool(os.preadv(fd, [bytearray(1)], position, os.RWF_NOWAIT))
    except OSError:
        return False
