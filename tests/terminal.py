"""A script in a terminal of its own, as somebody types it: it asks, is answered, and ends with Ctrl-C."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from pathlib import Path

_CTRL_C = b"\x03"
_ROWS, _COLUMNS = 50, 200
_INTERRUPTED = (130, -signal.SIGINT)


class Terminal:
    """Runs `script` with bash. `where` names it in errors, and every wait ends after `patience_s`."""

    def __init__(
        self, script: str, where: str, folder: Path, environment: Mapping[str, str], patience_s: float
    ) -> None:
        self._where = where
        self._patience_s = patience_s
        self._is_interrupted = False
        self._printed = b""
        self._controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        # The terminal has a size of its own, which these would override.
        outer = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        # The first terminal that the leader of a session opens is the one whose Ctrl-C it gets.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec < "$0" > "$0" 2>&1\nset -e\n{script}', os.ttyname(terminal)],
            cwd=folder,
            env={**outer, **environment, "TERM": "dumb"},
            start_new_session=True,
        )
        self._held: int | None = terminal

    @property
    def printed(self) -> str:
        return self._printed.decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, text: str, start: int = 0) -> int:
        """Where `text` ends in what was printed, once it is there."""
        deadline_s = time.monotonic() + self._patience_s
        while (found := self.printed.find(text, start)) < 0:
            # What is printed over and over again must not keep this waiting.
            assert time.monotonic() < deadline_s, f"{self._where} did not print {text}, but: {self.printed[start:]}"
            assert self._read(), f"{self._where} ended and did not print {text}, but: {self.printed}"
        return found + len(text)

    def type(self, text: str) -> None:
        os.write(self._controller, f"{text}\n".encode())

    def press(self, keys: str) -> None:
        """Type without Enter."""
        os.write(self._controller, keys.encode())

    def interrupt(self) -> None:
        self._is_interrupted = True
        os.write(self._controller, _CTRL_C)

    def finish(self) -> str:
        """What it printed by its end, which must be a good one."""
        while self._read():
            pass
        code = self._process.wait(self._patience_s)
        good = (0, *_INTERRUPTED) if self._is_interrupted else (0,)
        assert code in good, f"{self._where} failed with {code}, and printed: {self.printed}"
        return self.printed

    def close(self) -> None:
        """Everything that still runs in it ends. A second call does nothing."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._release()
        if self._controller >= 0:
            os.close(self._controller)
            self._controller = -1

    def _read(self) -> bool:
        """Waits for more. False once nothing can come any more."""
        deadline_s = time.monotonic() + self._patience_s
        while not select.select([self._controller], [], [], 0.05)[0]:
            assert time.monotonic() < deadline_s, f"{self._where} is not done, and printed: {self.printed}"
            if self._process.poll() is not None:
                self._release()
        try:
            piece = os.read(self._controller, 65_536)
        except OSError:  # the other end is closed
            return False
        self._printed += piece
        return bool(piece)

    def _release(self) -> None:
        """This process held the terminal open until bash had it: it is closed with the last that uses it."""
        if self._held is not None:
            os.close(self._held)
            self._held = None
