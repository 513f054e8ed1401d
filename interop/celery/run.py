"""Celery with kombu's transport for SQS against a real `headrace serve` process.

    python interop/celery/run.py [--seed N]

pip fetches Celery into an environment of its own in `.cache/` the first time. One line for each check, and an exit code
of 1 if one failed. Where Celery cannot be fetched, it says so and ends well.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from task_queue import Framework, main

_HERE = Path(__file__).resolve().parent
# These want a fanout exchange, which SQS alone has not.
_WORKER = ["-m", "celery", "-A", "tasks", "worker", "--concurrency", "4", "--loglevel", "WARNING"]
_WITHOUT = ["--without-gossip", "--without-mingle", "--without-heartbeat"]

if __name__ == "__main__":
    main(Framework("Celery", _HERE, [*_WORKER, *_WITHOUT]))
