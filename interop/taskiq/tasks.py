"""The taskiq tasks that `run.py` checks, configured by the code of docs/queues.md."""

import asyncio
import os
import sys
import time
from pathlib import Path

from taskiq import Context, TaskiqDepends

sys.path.append(str(Path(__file__).resolve().parents[1]))

from page_code import page_code

# Shorter than on the page: what a killed worker had in hand is waited for.
_CODE = page_code("from taskiq import SmartRetryMiddleware").replace("visibility_timeout=600", "visibility_timeout=10")
exec(_CODE)
broker = globals()["broker"]


def note(number: int, event: str) -> None:
    file = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{number} {event}\n".encode())
    os.close(file)


class NotYet(Exception):
    pass


@broker.task
async def work(number: int, failures: int, not_before_s: float, context: Context = TaskiqDepends()) -> None:  # noqa: B008
    if time.time() < not_before_s:
        note(number, "early")
    await asyncio.sleep(0.03)
    if int(context.message.labels.get("_retries", 0)) < failures:
        note(number, "failed")
        raise NotYet
    note(number, "done")
