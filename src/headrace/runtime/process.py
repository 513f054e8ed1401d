"""What a broker asks of its process. For a process of its own only: an embedded broker leaves these alone."""

import gc
import resource
import sys

_THREAD_SWITCH_S = 0.0005
"""How long a worker thread may keep the event loop from running: Python's own 5 ms would be seen by clients."""
_GC_THRESHOLDS = (50_000, 20, 100)
"""Requests make short-lived objects by the thousand and no cycles: looking for cycles so often finds nothing."""


def tune_process() -> None:
    """Once, when a process becomes a broker."""
    sys.setswitchinterval(_THREAD_SWITCH_S)
    gc.set_threshold(*_GC_THRESHOLDS)
    raise_open_files_limit()


def raise_open_files_limit() -> None:
    """Take as many open files as the system allows: each connection and each partition written to needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
