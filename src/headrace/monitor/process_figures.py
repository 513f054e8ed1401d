"""Figures of this process and of its volumes, from the operating system."""

import os
import resource
import threading
from pathlib import Path

from headrace.monitor.snapshots import DiskStat
from headrace.runtime.volume import volume_size

_PAGE_BYTES = resource.getpagesize()
_STATM, _OPEN_FILES = Path("/proc/self/statm"), "/proc/self/fd"


def cpu_seconds() -> float:
    """The processor time that this process has used, in all of its threads."""
    times = os.times()
    return times.user + times.system


def memory_bytes() -> int | None:
    """The resident memory; None if the system does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


def open_files() -> int | None:
    try:
        return len(os.listdir(_OPEN_FILES))
    except OSError:
        return None


def thread_count() -> int:
    return threading.active_count()


def disk(broker_id: int, path: str, full_in_s: float | None = None) -> DiskStat | None:
    """The volume of a data directory; None if it cannot be read."""
    try:
        size = volume_size(Path(path))
    except OSError:
        return None
    return DiskStat(broker_id, path, size.usable_bytes, size.total_bytes, full_in_s)
