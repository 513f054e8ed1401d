"""What the terminal of a command can do."""

import os
import sys


def is_screen() -> bool:
    """Whether the output is a terminal on which lines can be changed later."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
