"""Making system calls of a running process fail."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def failing_syncs(pid: int, error: str = "EIO") -> Iterator[None]:
    """Every fsync and fdatasync of the process fails from now on."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    calls = "fsync,fdatasync"
    command = ["strace", "-f", "-q", "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}", "-p", str(pid)]
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 30
        while not all(_is_traced(thread) for thread in Path(f"/proc/{pid}/task").iterdir()):
            if tracer.poll() is not None or time.monotonic() > end:
                assert tracer.stderr is not None
                pytest.skip(f"strace cannot attach: {tracer.stderr.read().decode(errors='replace')}")
            time.sleep(0.02)
        yield
    finally:
        tracer.terminate()
        tracer.wait()
        if tracer.stderr is not None:
            tracer.stderr.close()


def _is_traced(thread: Path) -> bool:
    try:
        return "TracerPid:\t0\n" not in (thread / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True  # It has ended meanwhile.
