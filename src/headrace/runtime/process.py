"""Process-wide tuning, for a dedicated broker process only: an embedded broker does not touch these."""

import ctypes
import gc
import resource
import sys

from headrace.runtime import time_slice

_THREAD_SWITCH_S = 0.0005
"""How long a worker thread may block the event loop: Python's default of 5 ms would be visible to clients."""
_GC_THRESHOLDS = (2_000, 2, 12_500)
"""Requests create thousands of objects, soon freed, and no cycles: collecting as often as by default finds nothing. But
a collection stops the event loop, 0.15 to 0.45 µs for each object that it looks at, so the two young generations
together have at most 8,000 (2 to 3 ms), also while thousands of partitions or groups are created. The oldest generation
is looked at after 100 million new objects, and only if it has grown by a quarter."""

# Parameters of mallopt(3), and their values in bytes.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MALLOC_OPTIONS = {
    _M_TRIM_THRESHOLD: 16 * 1024 * 1024,
    _M_TOP_PAD: 1024 * 1024,
    _M_MMAP_THRESHOLD: 32 * 1024 * 1024,
}
"""By default glibc returns the end of a heap to the system at 128 KiB of free memory, and raises that only after large
buffers: those of answers are then faulted in page by page again and again, which costs as much as to decrypt what is in
them. `HeapTrimmer` returns what is free when the broker is idle (docs/adr/0013)."""


def tune_process() -> None:
    """Tune threads, garbage collector, memory allocation and the open files limit; once per process."""
    sys.setswitchinterval(_THREAD_SWITCH_S)
    time_slice.shorten()
    gc.set_threshold(*_GC_THRESHOLDS)
    # What is there now stays: modules, classes and functions need not be looked through again and again.
    gc.freeze()
    _reuse_freed_memory()
    raise_open_files_limit()


def _reuse_freed_memory() -> None:
    """Let the C library reuse freed memory instead of returning it at once. A no-op without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in _MALLOC_OPTIONS.items():
            mallopt(option, value)


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard one: each connection and each open segment needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
