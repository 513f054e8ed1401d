"""What this process uses of the machine, from `/proc`; where there is none, what the standard library knows."""

import os
import resource
from typing import NamedTuple

_STAT = "/proc/self/stat"
_BOOT = "/proc/stat"
_FILES = "/proc/self/fd"
_START_TICKS, _VIRTUAL_BYTES, _RESIDENT_PAGES = 19, 20, 21
"""Fields of `/proc/self/stat`, counted after the name of the program."""


class ProcessUsage(NamedTuple):
    cpu_s: float
    """Processor time since the start, of all threads."""
    resident_bytes: int
    virtual_bytes: int
    open_files: int
    max_open_files: int
    started_at_s: float
    """Seconds since the epoch; 0 if it is not known."""
    threads: int


def process_usage() -> ProcessUsage:
    """Read the usage. It takes a few milliseconds when tens of thousands of files are open: run it in a thread."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with open(_STAT, encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        started_at_s = _booted_at_s() + int(fields[_START_TICKS]) / ticks
        resident, virtual = int(fields[_RESIDENT_PAGES]) * os.sysconf("SC_PAGE_SIZE"), int(fields[_VIRTUAL_BYTES])
        open_files, threads = len(os.listdir(_FILES)), int(fields[17])
    except (OSError, ValueError, IndexError):
        return ProcessUsage(own.ru_utime + own.ru_stime, own.ru_maxrss * 1024, 0, 0, soft, 0.0, 0)
    return ProcessUsage(own.ru_utime + own.ru_stime, resident, virtual, open_files, soft, started_at_s, threads)


def _booted_at_s() -> int:
    with open(_BOOT, encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("btime"))
