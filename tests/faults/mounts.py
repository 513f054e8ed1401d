"""Small file systems for tests that fill or cut off a disk. They need root and are never the machine's own disk."""

import fcntl
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.waiting import until

_EXT4_IOC_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSHING_THE_JOURNAL = 2


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(command)}: {done.stderr.decode(errors='replace').strip()}")


def _need_root() -> None:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a file system needs root")


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[Path]:
    """A file system in memory with that much room."""
    _need_root()
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "headrace-test", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def stop_all(pids: Iterable[int]) -> None:
    """SIGSTOP, and wait until no thread runs any more: each is stopped, or in a system call that it does not return
    from before it is."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        until(partial(_is_stopped, pid), f"process {pid} stops")


def _is_stopped(pid: int) -> bool:
    states = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return "T" in states and states <= {"T", "D"}


class LoopDisk:
    """An ext4 file system in a file, whose power can be cut: what was not synced is then gone."""

    def __init__(self, folder: Path, size_mib: int = 256) -> None:
        _need_root()
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("mkfs.ext4 is not installed")
        self._image = folder.with_suffix(".img")
        self.folder = folder
        folder.mkdir()
        with self._image.open("wb") as file:
            file.truncate(size_mib << 20)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.folder))

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.folder)], check=True, capture_output=True)

    def cut_power(self, *pids: int) -> None:
        """From now on nothing reaches the disk any more, and what was not synced never will.

        `pids` are the processes that write to it. They stop before the cut, as they would with the machine: an
        fdatasync that is under way when ext4 is shut down may return success although its data is lost (without any
        broker in 12 of 150 cuts), and must not be acknowledged after the power is gone.
        """
        stop_all(pids)
        at = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(at, _EXT4_IOC_SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_JOURNAL))
        except OSError as error:
            pytest.skip(f"this kernel cannot shut an ext4 file system down: {error}")
        finally:
            os.close(at)

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True)
        self._image.unlink(missing_ok=True)
