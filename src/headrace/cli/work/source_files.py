"""The files of an application, for `--reload`: which were changed since the processes imported them."""

import os
from collections.abc import Iterable

_MOST_FILES = 10_000


class SourceFiles:
    """Compares the times of modification."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._times)

    def watch(self, files: Iterable[str], imported_at_s: float) -> None:
        """Watch more files, which were imported at this time at the earliest: a change after it counts."""
        for each in files:
            if each not in self._times and len(self._times) < _MOST_FILES:
                self._times[each] = min(_modified_s(each), imported_at_s)

    def changed(self) -> list[str]:
        """The files that were changed since the last call."""
        found = []
        for path, before_s in self._times.items():
            now_s = _modified_s(path)
            if now_s > before_s or (now_s == 0.0 != before_s):
                found.append(path)
        for path in found:
            self._times[path] = _modified_s(path)
        return found


def _modified_s(path: str) -> float:
    """0 if the file is gone."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
