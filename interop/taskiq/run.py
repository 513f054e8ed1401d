"""taskiq with the broker of taskiq-aio-sqs against a real `headrace serve` process.

    python interop/taskiq/run.py [--seed N]

pip fetches taskiq into an environment of its own in `.cache/` the first time. One line for each check, and an exit code
of 1 if one failed. Where taskiq cannot be fetched, it says so and ends well.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from task_queue import Framework, main

_HERE = Path(__file__).resolve().parent
_WORKER = ["-m", "taskiq", "worker", "tasks:broker", "--workers", "2", "--max-async-tasks", "4"]

if __name__ == "__main__":
    main(Framework("taskiq", _HERE, _WORKER, creates_queue=False))
