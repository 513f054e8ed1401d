"""The taskiq tasks that `run.py` checks, configured as docs/queues.md says."""

import asyncio
import os
import time

from taskiq import Context, SmartRetryMiddleware, TaskiqDepends
from taskiq_aio_sqs import SQSBroker

broker = SQSBroker(
    os.environ["QUEUE"],
    endpoint_url=f"http://{os.environ['SQS_HOST']}:{os.environ['SQS_PORT']}",
    region_name="us-east-1",
    aws_access_key_id="key",
    aws_secret_access_key="secret",
    max_number_of_messages=10,
    visibility_timeout=10,
    wait_time_seconds=5,
).with_middlewares(SmartRetryMiddleware(default_retry_count=5, default_retry_label=True, default_delay=1))


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
