"""Log lines for the person who runs a broker: time, level, sentence."""

import logging
import sys
from typing import TextIO

_FORMAT = "%(asctime)s %(levelname)-7s %(message)s"


def configure(level: str, stream: TextIO | None = None) -> None:
    """Send the broker's log lines to `stream`, standard error by default."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger("headrace")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
