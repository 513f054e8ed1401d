"""The Dramatiq actors that `run.py` checks, configured by the code of docs/queues.md."""

import os
import sys
import time
from pathlib import Path

import dramatiq
from dramatiq.middleware import CurrentMessage

sys.path.append(str(Path(__file__).resolve().parents[1]))

from page_code import page_code

# Shorter than on the page: what a killed worker had in hand is waited for.
exec(page_code("import dramatiq").replace("visibility_timeout=600", "visibility_timeout=10"))
dramatiq.get_broker().add_middleware(CurrentMessage())


def note(number: int, event: str) -> None:
    file = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{number} {event}\n".encode())
    os.close(file)


class NotYet(Exception):
    pass


@dramatiq.actor(queue_name=os.environ["QUEUE"], max_retries=5, min_backoff=1000, max_backoff=900_000)
def work(number: int, failures: int, not_before_s: float) -> None:
    if time.time() < not_before_s:
        note(number, "early")
    time.sleep(0.03)
    if CurrentMessage.get_current_message().options.get("retries", 0) < failures:
        note(number, "failed")
        raise NotYet
    note(number, "done")
