"""The Dramatiq actors that `run.py` checks, configured as docs/queues.md says."""

import os
import time

import dramatiq
from botocore.config import Config
from dramatiq.middleware import CurrentMessage
from dramatiq_sqs import SQSBroker

broker = SQSBroker(
    endpoint_url=f"http://{os.environ['SQS_HOST']}:{os.environ['SQS_PORT']}",
    region_name="us-east-1",
    aws_access_key_id="key",
    aws_secret_access_key="secret",
    config=Config(retries={"mode": "standard", "max_attempts": 10}),
    visibility_timeout=10,
)
broker.add_middleware(CurrentMessage())
dramatiq.set_broker(broker)


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
