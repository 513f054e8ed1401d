"""A child process that a test starts, kills, pauses and restarts."""

import os
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self


class ChildProcess(ABC):
    """`what` is its name in errors. Its stderr is saved over all starts, in `log_file` if given."""

    def __init__(self, what: str, log_file: Path | None = None) -> None:
        self._what = what
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = False
        self._is_ending = False
        self._stderr: IO[bytes] = (
            tempfile.TemporaryFile() if log_file is None else log_file.open("a+b")  # noqa: SIM115 - closed in close()
        )

    @abstractmethod
    def start(self, timeout_s: float = 60.0) -> Self:
        """Start it and wait until it is ready; otherwise `RuntimeError` has its stderr."""

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def has_died(self) -> bool:
        """True if it exited without being stopped or killed by the test."""
        return self._process is not None and not self._is_ending and self._process.poll() is not None

    @property
    def stderr(self) -> str:
        """Everything written to stderr so far, over all starts."""
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode(errors="replace")

    def kill(self) -> None:
        """kill -9; returns when the process is gone. A no-op if it is not running."""
        self._end(signal.SIGKILL, timeout_s=60.0)

    def pause(self) -> None:
        """SIGSTOP: it hangs, and its connections stay open. Returns when every thread is stopped, for until then some
        may still respond."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._is_paused = True

    def resume(self) -> None:
        """SIGCONT; a no-op if it is not paused."""
        if self._is_paused:
            self._is_paused = False
            self._running().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and release its resources."""
        self.kill()
        self._stderr.close()

    def _spawn(self, command: Sequence[str], *, stdout: int, env: Mapping[str, str] | None = None) -> None:
        if self.is_running:
            raise RuntimeError(f"{self._what} is already running")
        self._is_ending = False
        self._process = subprocess.Popen(command, stdout=stdout, stderr=self._stderr, env=env)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self._what} is not running; call start() first")
        return self._process

    def _end(self, number: signal.Signals, timeout_s: float) -> None:
        if self._process is None:
            return
        self._is_ending = True
        self._process.send_signal(number)
        self._process.wait(timeout_s)
        self._is_paused = False
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
