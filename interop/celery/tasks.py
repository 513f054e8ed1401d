"""The Celery application that `run.py` checks, configured as docs/queues.md says."""

import os
import time

from celery import Celery
from kombu.transport.SQS import Channel, Transport


class SteadyChannel(Channel):
    """Polls on when the broker did not answer: kombu 5.7 gives [] for {} then, and never polls again."""

    def _on_messages_ready(self, queue_url, queue, answer):
        return super()._on_messages_ready(queue_url, queue, answer or {})


Transport.Channel = SteadyChannel

app = Celery("tasks", broker=f"sqs://key:secret@{os.environ['SQS_HOST']}:{os.environ['SQS_PORT']}//")
app.conf.update(
    broker_transport_options={
        "region": "us-east-1",
        "visibility_timeout": 10,
        "wait_time_seconds": 5,
        "polling_interval": 0.1,
        "client-config": {"retries": {"mode": "standard", "max_attempts": 10}},
    },
    broker_connection_retry_on_startup=True,
    task_default_queue=os.environ["QUEUE"],
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
)


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
