"""Log lines about clients, bounded: a flood of failures must not fill the disk, nor hide other lines.

The first event of a source is logged at once. Further events of that source are counted, and `flush`, called once a
second, logs the last of them with their number. Sources beyond `MAX_SOURCES` share one line.
"""

import logging
from dataclasses import dataclass

MAX_SOURCES = 256
_OTHERS = "other addresses"


@dataclass(slots=True)
class _Repeats:
    was_logged: bool = True
    """True if an event was logged since the last `flush`."""
    count: int = 0
    level: int = logging.INFO
    last: str = ""


class RepeatedLog:
    """Logs at most one line of a source in the time between two calls of `flush`."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._repeats: dict[str, _Repeats] = {}

    def note(self, source: str, text: str, level: int = logging.INFO) -> None:
        """Log an event of a source, or count it."""
        if source not in self._repeats and len(self._repeats) >= MAX_SOURCES:
            source = _OTHERS
        repeats = self._repeats.get(source)
        if repeats is None:
            self._repeats[source] = _Repeats()
            self._logger.log(level, "%s", text)
        else:
            repeats.count += 1
            repeats.level = level
            repeats.last = text

    def flush(self) -> None:
        """Log the events that were counted since the last line of each source."""
        for source, repeats in tuple(self._repeats.items()):
            if repeats.was_logged:
                repeats.was_logged = False
            elif repeats.count:
                others = f" (and {repeats.count - 1} more from {source})" if repeats.count > 1 else ""
                self._logger.log(repeats.level, "%s%s", repeats.last, others)
                self._repeats[source] = _Repeats(was_logged=False)
            else:
                del self._repeats[source]
