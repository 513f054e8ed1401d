"""Process-wide tuning, for a dedicated broker process only: an embedded broker does not touch these."""

import gc
import resource
import sys

_THREAD_SWITCH_S = 0.0005
"""How long a worker thread may block the event loop: Python's default of 5 ms would be visible to clients."""
_GC_THRESHOLDS = (50_000, 20, 100)
"""Requests create thousands of objects, soon freed, and no cycles: collecting as often as by default finds nothing."""


def tune_process() -> None:
    """Tune the thread switch interval, the garbage collector and the open files limit; once per process."""
    sys.setswitchinterval(_THREAD_SWITCH_S)
    gc.set_threshold(*_GC_THRESHOLDS)
    raise_open_files_limit()


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard one: each connection and each open segment needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
