"""Freed memory goes back to the system after a burst.

glibc gives back a freed buffer only if it was mapped by itself or is at the top of the heap. After a burst of large
messages hundreds of MiB are free below some small object that is still in use, and stay resident until they are used
again. `malloc_trim` gives back every free page. It holds the heap's lock while it does so, some milliseconds for
100 MiB, so it is called when memory has grown and the broker has become idle, or has been busy for a minute since; and
again, less and less often, for as long as there is more than at the start: what was in use at a trim may be free later.

For a process of its own, on Linux with glibc; anywhere else nothing happens. See docs/adr/0013.
"""

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

GROWTH_BYTES = 32 * 1024 * 1024
"""Less than this is not worth the trouble."""
IDLE_BELOW = 0.25
"""The share of one processor below which a broker is idle."""
BUSY_LOOKS_MAX = 30
WAIT_LOOKS_MAX = 15
_LOOK_EVERY_S = 2.0
_STATM = Path("/proc/self/statm")


class TrimPolicy:
    """Decides when memory is given back, from looks at regular intervals. Pure."""

    def __init__(self, resident_bytes: int) -> None:
        self._least_bytes = resident_bytes
        """The least resident memory so far."""
        self._looks = 0
        """How often there was more than that, since the last trim."""
        self._wait_looks = 1

    def is_due(self, resident_bytes: int, busy_share: float) -> bool:
        """Whether to trim now; `busy_share` is the processor time since the last look, per second."""
        self._least_bytes = min(self._least_bytes, resident_bytes)
        if resident_bytes < self._least_bytes + GROWTH_BYTES:
            self._looks, self._wait_looks = 0, 1
            return False
        self._looks += 1
        is_idle = busy_share < IDLE_BELOW
        return (is_idle and self._looks >= self._wait_looks) or self._looks >= BUSY_LOOKS_MAX

    def trimmed(self) -> None:
        """What is left may be in use: the next trim waits for longer."""
        self._looks = 0
        self._wait_looks = min(2 * self._wait_looks, WAIT_LOOKS_MAX)


class HeapTrimmer:
    """A thread that calls `malloc_trim` when a `TrimPolicy` says so."""

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
        looked_s, used_s = time.monotonic(), time.process_time()
        while not self._stopping.wait(_LOOK_EVERY_S):
            before_s, used_before_s = looked_s, used_s
            looked_s, used_s = time.monotonic(), time.process_time()
            if policy.is_due(_resident_bytes(), (used_s - used_before_s) / (looked_s - before_s)):
                self._trim(0)
                policy.trimmed()


def _malloc_trim() -> Callable[[int], int] | None:
    """None where there is no glibc, or nothing that tells how much memory is resident."""
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
