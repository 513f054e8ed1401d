"""The audit log as a file: one JSON object per line, renamed when it has reached its size.

`audit.log` becomes `audit.log.1`, that one `audit.log.2` and so on; the oldest is deleted. Only its owner may read it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

_MODE = 0o600


class AuditFile:
    """Called from one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, events: Sequence[bytes], *, max_bytes: int, max_files: int) -> None:
        """Write the events so that they survive a crash of the machine. Raises `OSError`."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data: list[bytes] = []
        size = self._size()
        for event in events:
            if size and size + len(event) + 1 > max_bytes:
                self._write(data)
                self._rotate(max_files)
                data, size = [], 0
            data.append(event)
            size += len(event) + 1
        self._write(data)

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _write(self, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)
        with open(descriptor, "ab", buffering=0) as file:
            file.write(b"".join(line + b"\n" for line in lines))
            os.fsync(file.fileno())

    def _rotate(self, max_files: int) -> None:
        for number in range(max_files, 0, -1):
            older, newer = self._numbered(number), self._numbered(number - 1)
            if newer.exists():
                newer.replace(older)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path
