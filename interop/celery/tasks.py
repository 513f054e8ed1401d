"""The Celery application that `run.py` checks, configured by the code of docs/queues.md."""

import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from page_code import page_code

exec(page_code("from celery import Celery"))
app = globals()["app"]
# Shorter than on the page: what a killed worker had in hand is waited for.
app.conf.broker_transport_options |= {"visibility_timeout": 10, "wait_time_seconds": 5}
app.conf.update(task_default_queue=os.environ["QUEUE"], task_ignore_result=True)


def note(number: int, event: str) -> None:
    file = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{number} {event}\n".encode())
    os.close(file)


class NotYet(Exception):
    pass


@app.task(bind=True, max_retries=5)
def work(self, number: int, failures: int, not_before_s: float) -> None:
    if time.time() < not_before_s:
        note(number, "early")
    time.sleep(0.03)
    if self.request.retries < failures:
        note(number, "failed")
        raise self.retry(exc=NotYet(), countdown=1)
    note(number, "done")
