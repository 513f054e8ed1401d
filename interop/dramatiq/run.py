"""Dramatiq with its broker for SQS against a real `headrace serve` process.

    python interop/dramatiq/run.py [--seed N]

pip fetches Dramatiq into an environment of its own in `.cache/` the first time. One line for each check, and an exit
code of 1 if one failed. Where Dramatiq cannot be fetched, it says so and ends well.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from task_queue import Framework, main

_HERE = Path(__file__).resolve().parent
_WORKER = ["-m", "dramatiq", "tasks", "--processes", "2", "--threads", "2"]

if __name__ == "__main__":
    main(Framework("Dramatiq", _HERE, _WORKER))
