"""The processes of the tour: each ends with its block, and with the tour, however that ends."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.cli.children import how_it_ended
from headrace.cli.errors import CommandFailed

_HEADRACE = """
import signal, sys
from headrace.cli.children import ended_with_parent
ended_with_parent(signal.SIGTERM)()
from headrace.cli.main import main
sys.exit(main())
"""
"""`headrace`, which gets SIGTERM when the tour has died. It asks for that itself: this process has threads, and nothing
may be done between its fork and the new program."""
_READY = re.compile(r"ready on (\S+:\d+)")
_READY_S = 60.0
_STOP_S = 30.0
_LOOK_EVERY_S = 0.02


class TourProcess:
    """A `headrace` command whose words go to a file."""

    def __init__(self, name: str, arguments: Sequence[str], log_file: Path) -> None:
        self.name = name
        self._log_file = log_file
        with log_file.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _HEADRACE, *arguments],
                cwd=log_file.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def await_line(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """The first place where its words match; raises `CommandFailed` with them where it ended without."""
        deadline_s = time.monotonic() + _READY_S
        while True:
            code = self._process.poll()
            text = self._log_file.read_text(errors="replace")
            if found := pattern.search(text):
                return found
            if code is not None or time.monotonic() > deadline_s:
                *_, last = ("it gave no reason", *text.split("\n"))[: -1 if text.endswith("\n") else None]
                how = "did not get ready" if code is None else how_it_ended(code)
                raise CommandFailed(f"{self.name} {how}: {last.removeprefix('headrace: ')}")
            time.sleep(_LOOK_EVERY_S)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self, *, signals: int = 1) -> None:
        """SIGTERM, as often as it takes for a command that stops at once when it is asked twice."""
        for _ in range(signals):
            with suppress(ProcessLookupError):
                self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5 if signals > 1 else _STOP_S)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()


class TourBroker:
    """`headrace serve` on free ports of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kafka = "127.0.0.1:0"
        self._process: TourProcess | None = None

    def start(self) -> str:
        """Its address, when it is ready; the same after each start."""
        arguments = ["serve", "--data-dir", str(self._folder / "data"), "--kafka-listen", self._kafka]
        arguments += ["--http-listen", "127.0.0.1:0"]
        self._process = TourProcess("the broker", arguments, self._folder / "broker.log")
        self._kafka = self._process.await_line(_READY)[1]
        return self._kafka

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()


@contextmanager
def lines_of(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[tuple[Iterator[str], subprocess.Popen[str]]]:
    """The lines that a `headrace` command writes, as they come, and its process. `environment` is added to ours."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HEADRACE, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield (line.rstrip("\n") for line in process.stdout), process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(_STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()
