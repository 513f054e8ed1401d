"""Single keys of a terminal, without Enter and without echo."""

import os
import re
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NAMES = {
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b": "escape",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[A": "page up",
    "\x1b[B": "page down",
}

_PIECES = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
"""An escape sequence, or a character: the Escape key comes alone, or before the keys that were pressed after it."""


class Keyboard:
    """Waits for keys; a terminal that ends is an end of input."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.is_at_end = False

    def wait(self, seconds: float) -> list[str]:
        """The keys that were pressed, after at most so many seconds."""
        if not select.select([self._file], [], [], max(0.0, seconds))[0]:
            return []
        try:
            data = os.read(self._file, 1024)
        except OSError:
            data = b""
        if not data:
            self.is_at_end = True
        return keys_of(data.decode(errors="ignore"))


def keys_of(text: str) -> list[str]:
    """The keys in what a terminal sends; escape sequences that are not known are left out."""
    pieces = _PIECES.findall(text)
    return [_NAMES.get(each, each) for each in pieces if each in _NAMES or each.isprintable()]


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read keys until the end of the block; the terminal is then as it was."""
    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield Keyboard(file)
    finally:
        with suppress(termios.error):
            termios.tcsetattr(file, termios.TCSADRAIN, before)
