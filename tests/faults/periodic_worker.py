"""A worker of periodic functions that writes down each run.

    python -m tests.faults.periodic_worker BOOTSTRAP FILE PERIOD_MS VISIBILITY_S

Each line of the file is a run that has ended: due time, offset of its message, attempt and process. It runs until it is
stopped or killed.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

from headrace import Client, QueueMessage
from headrace.client.schedules import due_time

NAME = "ticks"


def run(bootstrap: str, file: str, period_ms: str, visibility_s: str) -> None:
    with Client(bootstrap, connect_timeout=30) as client, Path(file).open("ab", buffering=0) as book:

        @client.every(timedelta(milliseconds=int(period_ms)), name=NAME, missed="all", visibility=float(visibility_s))
        def tick() -> None: ...

        def note(message: QueueMessage) -> None:
            due_ms = round(due_time(message).timestamp() * 1000)
            book.write(b"%d %d %d %d\n" % (due_ms, message.offset, message.attempt, os.getpid()))

        client._workers[-1] = client._workers[-1].calling(note)
        client.run()


if __name__ == "__main__":
    run(*sys.argv[1:])
