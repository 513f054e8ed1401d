"""`headrace work` as a process, with what it prints."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

from headrace.testing import Broker
from tests.waiting import until

_START = "import os\nfrom headrace import Client\n\nclient = Client()\n"


class WorkCommand:
    """Runs `headrace work app:client` in a folder with an `app.py`."""

    def __init__(self, folder: Path, broker: Broker, app: str, *options: str) -> None:
        self.folder = folder
        self.write(app)
        self._broker = broker
        self._options = options
        self.lines: list[str] = []

    def write(self, app: str) -> None:
        """Replace the application."""
        new = self.folder / "app.py.new"
        new.write_text(_START + app)
        new.rename(self.folder / "app.py")

    def __enter__(self) -> "WorkCommand":
        env = {**os.environ, "HEADRACE_BOOTSTRAP": self._broker.bootstrap, "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "work", "app:client", *self._options],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.stop()
        self.process.wait(90)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def said(self, text: str) -> str:
        """The line with this text, once it was printed."""
        return until(lambda: next((each for each in self.lines if text in each), ""), lambda: f"{text}: {self.lines}")

    @property
    def children(self) -> list[int]:
        """The processes that it has started and that are alive."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(each) for each in found]

    @property
    def sizes(self) -> list[int]:
        """The numbers of processes that it decided on."""
        return [int(found[1]) for line in self.lines if (found := re.search(r"-> (\d+) process", line))]
