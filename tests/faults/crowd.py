"""The clients of a workload as processes: started, killed, started again under new names, and stopped in the end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import TracebackType

from tests.faults import workload

_STOP_WITHIN_S = 150.0

SENDERS = ("produce:producer-1", "produce:producer-2")
OTHERS = (
    "read:reader-1",
    "transact:banker-1",
    "transact:banker-2",
    "consume:member-1",
    "consume:member-2",
    "copy:copier-1",
    "copy:copier-2",
)


class _Worker:
    """One process with some roles. Each start has a number, which is part of the names in the histories."""

    def __init__(self, crowd: "Crowd", roles: Sequence[str]) -> None:
        self._crowd = crowd
        self.roles = roles
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.is_stopping = False

    def start(self) -> None:
        self.starts += 1
        names = [f"{role}.{self.starts}" for role in self.roles]
        command = [sys.executable, "-m", workload.__name__, self._crowd.bootstrap, str(self._crowd.folder)]
        with self._crowd.log.open("ab") as log:
            self.process = subprocess.Popen([*command, str(self._crowd.per_second), *names], stdout=log, stderr=log)

    @property
    def has_given_up(self) -> bool:
        return not self.is_stopping and self.process is not None and self.process.poll() is not None

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


class Crowd:
    """`senders` make events; `others` read, copy and transact, and are needed until everything is copied."""

    def __init__(self, bootstrap: str, folder: Path, *, per_second: float, is_small: bool = False) -> None:
        self.bootstrap = bootstrap
        self.folder = folder / "histories"
        self.folder.mkdir()
        self.log = folder / "clients.log"
        self.per_second = per_second
        self.ended_count = 0
        """How many ended without being killed, since a client could not go on."""
        self._counted: dict[Path, int] = {}
        self._acked_count = 0
        self._senders = [_Worker(self, SENDERS)]
        # On a small machine one process for all: each has to be started, and Python is not quick at that.
        self._others = (
            [_Worker(self, OTHERS)] if is_small else [_Worker(self, OTHERS[::2]), _Worker(self, OTHERS[1::2])]
        )

    @property
    def workers(self) -> list[_Worker]:
        return self._senders + self._others

    def keep_running(self) -> None:
        for worker in self.workers:
            if worker.has_given_up:
                self.ended_count += 1
                worker.start()

    def kill_one(self, rng: Random) -> str:
        """SIGKILL to some, and successors for them."""
        worker = rng.choice(self.workers)
        worker.kill()
        worker.start()
        return ", ".join(worker.roles)

    def stop_senders(self) -> None:
        self._stop(self._senders)

    def stop_others(self) -> None:
        self._stop(self._others)

    def _stop(self, workers: list[_Worker]) -> None:
        """SIGTERM, so that they finish what they have begun; whoever cannot in time is killed."""
        for worker in workers:
            worker.is_stopping = True
            worker.signal(signal.SIGTERM)
        until = time.monotonic() + _STOP_WITHIN_S
        for worker in workers:
            if worker.process is not None:
                try:
                    worker.process.wait(max(0.0, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    worker.kill()

    def acked_count(self) -> int:
        """How many of the producers' messages have been acknowledged so far."""
        for path in self.folder.glob("producer-*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._counted.get(path, 0))
                lines, end, _ = file.read().rpartition(b"\n")
                self._counted[path] = self._counted.get(path, 0) + len(lines) + len(end)
            self._acked_count += lines.count(b'"fate":"ok"')
        return self._acked_count

    def what_they_said(self, lines: int = 60) -> str:
        """The end of their log, without librdkafka's lines about connections."""
        if not self.log.exists():
            return ""
        said = [line for line in self.log.read_text(errors="replace").splitlines() if "|FAIL|" not in line]
        return os.linesep.join(said[-lines:])

    def __enter__(self) -> "Crowd":
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
        if kind is not None:
            sys.stderr.write(self.what_they_said())
