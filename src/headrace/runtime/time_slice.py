"""Short time slices for threads that clients wait for, by sched_setattr(2).

A thread that wakes up while every processor is busy waits until the scheduler takes one away from another thread, which
may be at the next tick, some milliseconds later. Linux 6.12 and newer give it one at once if it has asked for a shorter
slice than the thread that runs; its share of the processors stays the same. Older kernels ignore the request.
"""

import ctypes
import os
import platform
from contextlib import suppress

_SHORT_NS = 100_000
"""The shortest slice that there is: the event loop and the syncs of logs run for less between two waits."""
_USUAL_NS = 0
_NUMBERS = {"x86_64": 314, "aarch64": 274}
"""The system call's number by architecture."""


class _Attributes(ctypes.Structure):
    """`struct sched_attr`, in its first version."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime_ns", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_uint64),
        ("period_ns", ctypes.c_uint64),
    )


def shorten() -> None:
    """Ask for short slices for this thread, and for those that it starts."""
    _ask_for(_SHORT_NS)


def reset() -> None:
    """Let this thread have the usual slices again: for work that takes long."""
    _ask_for(_USUAL_NS)


def _ask_for(slice_ns: int) -> None:
    """Does nothing where it is not possible, or where the administrator chose another kind of scheduling."""
    number = _NUMBERS.get(platform.machine())
    with suppress(OSError, AttributeError):
        if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
            return
        asked = _Attributes(
            ctypes.sizeof(_Attributes), os.SCHED_OTHER, 0, os.getpriority(os.PRIO_PROCESS, 0), 0, slice_ns, 0, 0
        )
        ctypes.CDLL(None).syscall(number, 0, ctypes.byref(asked), 0)
