"""Supervises child processes of a command: starts them, restarts those that die, and stops them in order.

The stderr of a child goes to a log file, to a callback, or to both; a line on its stdout reports that it is ready.
Children do not receive Ctrl-C: the command stops them in the right order. They end with their parent, however it ends.
"""

import asyncio
import contextlib
import ctypes
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from headrace.model.backoff import ExponentialDelay

READY_MARK = "ready on "
_MAX_LINE_BYTES = 1024 * 1024
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_RESTART_DELAY_S = ExponentialDelay(1.0, 30.0)
_STEADY_S = 60.0
"""A child that ran for so long is started again soon, however often it died before."""


def ended_with_parent(number: signal.Signals) -> Callable[[], None]:
    """For a process to call when it begins: it gets this signal when its parent ends."""

    def arrange() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, number)

    return arrange


class Child:
    """One process, which may be restarted. `on_line` gets each line of its stderr, `became_ready` its ready line.

    `orphaned` is the signal that it gets when its parent has died.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log_file: Path | None = None,
        on_line: Callable[["Child", str], None] | None = None,
        became_ready: Callable[["Child", str], None] | None = None,
        orphaned: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.last_line = ""
        """The last line of its stderr: what it said before it ended, if it has."""
        self.has_been_ready = False
        self._log_file = log_file
        self._on_line = on_line
        self._became_ready = became_ready
        self._orphaned = orphaned
        self._process: asyncio.subprocess.Process | None = None
        self._output: asyncio.Future[tuple[None, None]] | None = None
        self._started_s = 0.0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def ran_s(self) -> float:
        """How long it has been since it was started."""
        return time.monotonic() - self._started_s

    async def start(self) -> None:
        self._started_s = time.monotonic()
        self.last_line = ""
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MAX_LINE_BYTES,
            start_new_session=True,
            preexec_fn=ended_with_parent(self._orphaned),
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._output = asyncio.gather(
            self._read(self._process.stdout, None, self._on_stdout),
            self._read(self._process.stderr, self._log_file, self._on_stderr),
        )

    async def wait(self) -> int:
        """Its exit code, or minus the signal that ended it, once it has ended and all that it wrote was read."""
        assert self._process is not None
        code = await self._process.wait()
        if self._output is not None:
            # A grandchild may hold the pipe open: do not wait for it.
            await asyncio.wait((self._output,), timeout=1.0)
            self._output.cancel()
        return code

    async def stop(self, timeout_s: float) -> bool:
        """SIGTERM, and SIGKILL when that takes too long; whether it ended by itself in time."""
        if not self.is_running:
            return True
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.wait(), timeout_s)
        except TimeoutError:
            await self.kill()
            return False
        return True

    async def kill(self) -> None:
        if self.is_running:
            self._signal(signal.SIGKILL)
            await self.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            assert self._process is not None
            self._process.send_signal(number)

    async def _read(self, stream: asyncio.StreamReader, log: Path | None, on_line: Callable[[str], None]) -> None:
        with contextlib.ExitStack() as stack:
            file: IO[str] | None = None
            if log is not None:
                file = stack.enter_context(log.open("a", buffering=1, errors="replace"))
            while True:
                try:
                    line = await stream.readline()
                except ValueError:
                    continue  # too long to show
                if not line:
                    return
                text = line.decode(errors="replace").rstrip("\n")
                if file is not None:
                    file.write(text + "\n")
                on_line(text)

    def _on_stdout(self, line: str) -> None:
        if READY_MARK in line:
            self.has_been_ready = True
            if self._became_ready is not None:
                self._became_ready(self, line)

    def _on_stderr(self, line: str) -> None:
        if line.strip():
            self.last_line = line.strip()
        if self._on_line is not None:
            self._on_line(self, line)


async def keep_running(
    child: Child, died: Callable[[Child, int, float], None], *, may_restart: Callable[[Child, int], bool]
) -> int:
    """Restart a child for as long as `may_restart` allows; returns its last exit code.

    `died` is called for each exit, with the delay in seconds before the restart (-1: no restart). Cancel this before
    stopping the child.
    """
    failures = 0
    while True:
        code = await child.wait()
        failures = 0 if child.ran_s > _STEADY_S else failures + 1
        if not may_restart(child, code):
            died(child, code, -1.0)
            return code
        wait_s = _RESTART_DELAY_S.after(max(failures, 1))
        died(child, code, wait_s)
        await asyncio.sleep(wait_s)
        await child.start()


def how_it_ended(code: int) -> str:
    """An exit code as words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"
