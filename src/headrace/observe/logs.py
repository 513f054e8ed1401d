"""The log format for operators: time, level, message."""

import logging
import sys
from typing import TextIO

_FORMAT = "%(asctime)s %(levelname)-7s %(message)s"


def configure(level: str, stream: TextIO | None = None) -> None:
    """Log to `stream`, by default to standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger("headrace")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
