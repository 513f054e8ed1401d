"""Returns freed memory to the system after a burst, with `malloc_trim`.

glibc returns a freed buffer only if it was mapped separately or is at the top of the heap. After a burst of large
messages, hundreds of MiB are free below some small object still in use, and stay resident until reused. `malloc_trim`
returns every free page. It holds the heap's lock meanwhile, some milliseconds for 100 MiB, so it is called when memory
has grown and the broker is idle, or has been busy for a minute since; and again, at growing intervals, while memory is
above its minimum: memory in use at one trim may be free later.

For a dedicated process on Linux with glibc; a no-op elsewhere. See docs/adr/0013.
"""

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

GROWTH_BYTES = 32 * 1024 * 1024
"""Growth that makes a trim worthwhile."""
IDLE_BELOW = 0.25
"""The share of one CPU below which a broker counts as idle."""
BUSY_SAMPLES_MAX = 30
WAIT_SAMPLES_MAX = 15
_SAMPLE_INTERVAL_S = 2.0
_STATM = Path("/proc/self/statm")


class TrimPolicy:
    """Decides when to trim, from samples at regular intervals. Pure."""

    def __init__(self, resident_bytes: int) -> None:
        self._least_bytes = resident_bytes
        """The least resident memory so far."""
        self._samples = 0
        """Samples above that, since the last trim."""
        self._wait_samples = 1

    def is_due(self, resident_bytes: int, busy_share: float) -> bool:
        """True if it is time to trim; `busy_share` is the CPU time per second since the last sample."""
        self._least_bytes = min(self._least_bytes, resident_bytes)
        if resident_bytes < self._least_bytes + GROWTH_BYTES:
            self._samples, self._wait_samples = 0, 1
            return False
        self._samples += 1
        is_idle = busy_share < IDLE_BELOW
        return (is_idle and self._samples >= self._wait_samples) or self._samples >= BUSY_SAMPLES_MAX

    def trimmed(self) -> None:
        """Double the wait for the next trim: the remaining memory may be in use."""
        self._samples = 0
        self._wait_samples = min(2 * self._wait_samples, WAIT_SAMPLES_MAX)


class HeapTrimmer:
    """A thread that calls `malloc_trim` when its `TrimPolicy` is due."""

    def __init__(self) -> None:
        self._trim = _malloc_trim()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heap-trimmer", daemon=True)

    def start(self) -> None:
        if self._trim is not None:
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        assert self._trim is not None
        policy = TrimPolicy(_resident_bytes())
        sampled_s, used_s = time.monotonic(), time.process_time()
        while not self._stopping.wait(_SAMPLE_INTERVAL_S):
            before_s, used_before_s = sampled_s, used_s
            sampled_s, used_s = time.monotonic(), time.process_time()
            if policy.is_due(_resident_bytes(), (used_s - used_before_s) / (sampled_s - before_s)):
                self._trim(0)
                policy.trimmed()


def _malloc_trim() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`; None without glibc or /proc."""
    if not _STATM.exists():
        return None
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    call: Callable[[int], int] = trim
    return call


def _resident_bytes() -> int:
    return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
