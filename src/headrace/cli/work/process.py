"""One process of a pool, as `headrace work` sees it: it starts, loads, runs, and stops or is killed."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from headrace.client.work.messages import (
    MAX_LINE_BYTES,
    ApplicationLoaded,
    Command,
    Ended,
    LoadFailed,
    Message,
    Report,
    decode_message,
    encode_line,
)

_CHILD = "headrace.client.work.child"

State = Literal["loading", "loaded", "running", "stopping", "ended"]


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """How long a process may take."""

    start_s: float = 60.0
    """To import the application."""
    grace_s: float = 60.0
    """To finish its messages when it stops."""


class PoolProcess:
    """A process with the socket to it. `heard` gets every message, `printed` every line that it prints; without it the
    process writes to the terminal or file of the command itself."""

    def __init__(
        self,
        number: int,
        target: str,
        limits: "ProcessLimits",
        heard: Callable[["PoolProcess", Message], None],
        printed: Callable[["PoolProcess", str], None] | None = None,
    ) -> None:
        self.number = number
        self.state: State = "loading"
        self.report: Report | None = None
        self.reported_s = 0.0
        self.problem = ""
        """Why it could not be loaded, or what ended it."""
        self.started_s = time.monotonic()
        self.started_at_s = time.time()
        """The same by the wall clock, as files have it."""
        self.running_s = 0.0
        self.loaded: asyncio.Future[ApplicationLoaded | None] = asyncio.get_running_loop().create_future()
        """None if it could not be loaded, or ended before that."""
        self._target = target
        self._limits = limits
        self._start_timer: asyncio.TimerHandle | None = None
        self._heard = heard
        self._printed = printed
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._readers: list[asyncio.Task[None]] = []

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        ours, its = socket.socketpair()
        pipe = asyncio.subprocess.PIPE if self._printed is not None else None
        with its:
            command = (sys.executable, "-m", _CHILD, str(its.fileno()), str(self._limits.grace_s), self._target)
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                pass_fds=(its.fileno(),),
                # Ctrl-C is for the pool, which stops its processes in order. Each is a process group, which is killed
                # with all that it has started.
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                limit=MAX_LINE_BYTES,
            )
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        loop = asyncio.get_running_loop()
        self._start_timer = loop.call_later(self._limits.start_s, self._start_timed_out)
        self._readers = [loop.create_task(self._listen(reader))]
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                self._readers.append(loop.create_task(self._pass_on(stream)))

    def _start_timed_out(self) -> None:
        if not self.loaded.done():
            self.problem = (
                f"{self._target} was not imported within {self._limits.start_s:g} s: see what its modules wait for "
                "when they are imported, or raise --start-timeout"
            )
            self._settle_loaded(None)
            self.kill()

    def _settle_loaded(self, loaded: ApplicationLoaded | None) -> None:
        if not self.loaded.done():
            self.loaded.set_result(loaded)

    def run(self) -> None:
        """Let it handle messages; it must be loaded."""
        self.state = "running"
        self.running_s = time.monotonic()
        self._send(Command("run"))

    def look(self) -> None:
        """Ask for the backlog; the answer is heard."""
        self._send(Command("look"))

    async def stop(self) -> bool:
        """Let it finish its messages, and kill it after the grace time; whether it ended by itself in time."""
        if not self.is_alive:
            return True
        self.state = "stopping"
        self._send(Command("stop"))
        try:
            await asyncio.wait_for(self.wait(), self._limits.grace_s)
        except TimeoutError:
            self.kill()
            await self.wait()
            return False
        return True

    def kill(self) -> None:
        """End it at once, and the processes that it has started in its group."""
        if self._process is not None and self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> int:
        """Its exit code, or minus the signal that ended it, after all that it said was read."""
        assert self._process is not None
        code = await self._process.wait()
        if self._start_timer is not None:
            self._start_timer.cancel()
        if self._readers:
            # A process that it started may hold its pipes open: do not wait for that.
            await asyncio.wait(self._readers, timeout=1.0)
        for task in self._readers:
            task.cancel()
        if self._writer is not None:
            self._writer.close()
        self.state = "ended"
        return code

    def _send(self, command: Command) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode_line(command))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while line := await _next_line(reader):
                with contextlib.suppress(msgspec.MsgspecError):
                    self._note(decode_message(line))
        self._settle_loaded(None)

    def _note(self, message: Message) -> None:
        match message:
            case ApplicationLoaded() if self.state == "loading":
                self.state = "loaded"
                self._settle_loaded(message)
            case LoadFailed():
                self.problem = message.text
                self._settle_loaded(None)
            case Report():
                self.report, self.reported_s = message, time.monotonic()
            case Ended():
                self.problem = message.text
        self._heard(self, message)

    async def _pass_on(self, stream: asyncio.StreamReader) -> None:
        assert self._printed is not None
        while line := await _next_line(stream):
            self._printed(self, line.decode(errors="replace").rstrip("\n"))


async def _next_line(stream: asyncio.StreamReader) -> bytes:
    """The next line, empty at the end. What is longer than `MAX_LINE_BYTES` is left out."""
    while True:
        try:
            return await stream.readline()
        except ValueError:
            continue
