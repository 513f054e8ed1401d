"""Processes that the harness starts: each is stopped by its id at the end, and watched through /proc."""

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class ProcessFailed(Exception):
    """A process ended or did not get ready; the message quotes the end of its output."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Process:
    """A started process in a session of its own, so that Ctrl-C reaches the harness first and only."""

    running: ClassVar["list[Process]"] = []

    def __init__(
        self, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.command = list(command)
        self._log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
                preexec_fn=Process.die_with_parent,  # noqa: PLW1509 - the harness has one thread
            )
        self.pid = self._popen.pid
        Process.running.append(self)

    @staticmethod
    def die_with_parent() -> None:
        """If the harness is killed so hard that it cannot clean up, the kernel still ends what it started."""
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    def is_running(self) -> bool:
        return self._popen.poll() is None

    def check(self) -> None:
        if not self.is_running():
            raise ProcessFailed(f"{self.command[0]} ended with code {self._popen.returncode}: {self.last_output()}")

    def last_output(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return " | ".join(line.strip() for line in lines[-4:]) or "it said nothing"

    def stop(self, *, timeout_s: float = 30.0) -> float:
        """Ask it to end, wait, and kill it if it does not; return the seconds it took."""
        begin = time.monotonic()
        family = family_of(self.pid)
        if self.is_running():
            self._popen.terminate()
            try:
                self._popen.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait()
        for pid in family:
            if pid != self.pid and Path(f"/proc/{pid}").exists():
                _signal(pid, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while any(Path(f"/proc/{pid}").exists() for pid in family[1:]):
            if time.monotonic() > deadline:
                for pid in family[1:]:
                    _signal(pid, signal.SIGKILL)
                break
            time.sleep(0.05)
        if self in Process.running:
            Process.running.remove(self)
        return time.monotonic() - begin

    @classmethod
    def stop_all(cls) -> None:
        for process in reversed(cls.running[:]):
            process.stop(timeout_s=15)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def family_of(pid: int) -> list[int]:
    """A process and all its descendants, itself first."""
    family = [pid]
    for member in family:
        for task in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                family += [int(child) for child in task.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue
    return family


def cpu_s(pid: int) -> float:
    """User and system time of a process and its descendants so far, all threads included."""
    total = 0
    for member in family_of(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS_PER_S


def rss_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants."""
    total = 0
    for member in family_of(pid):
        try:
            status = Path(f"/proc/{member}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
    return total
