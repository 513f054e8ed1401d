"""Queues of a data set, with messages in every state, written by the SDK and by boto3."""

import json
from datetime import UTC, datetime

from headrace import Client
from tests.upgrade.inventory import sqs_client
from tests.waiting import until

YEARS_S = 365 * 86_400
RETENTION_S = 10 * YEARS_S
"""The longest that a queue may have."""
FAR = datetime(2100, 1, 1, tzinfo=UTC)
LEASE_S = 300
"""Long enough that messages are in flight when the broker ends."""


def write_queues(client: Client, http_url: str) -> None:
    _write_standard(client)
    _write_priorities(client)
    _write_fifo(client)
    _write_dead_letters(client)
    _write_sqs(client, http_url)
    gone = client.queue("gone").create()
    gone.send("gone with its queue")
    gone.delete()
    purged = client.queue("purged").create(retention=RETENTION_S)
    purged.send_many(["purged", "purged too"])
    purged.purge()
    purged.send("after the purge")


def _write_standard(client: Client) -> None:
    """Available, acknowledged, in flight, given back, delayed to another century, and with a time to live."""
    queue = client.queue("jobs").create(retention=RETENTION_S, visibility=LEASE_S, backoff=60, jitter=0.0)
    queue.send_many([f"job {number}" for number in range(12)])
    taken = queue.receive(max=8, wait=10)
    assert len(taken) == 8
    for message in taken[:4]:
        message.ack().result()
    taken[4].nack(delay=0, reason="busy").result()
    (again,) = queue.receive(max=1, wait=10)
    again.nack(delay=LEASE_S, reason="still busy").result()
    taken[5].nack(reason="by the retry policy").result()
    taken[6].extend(LEASE_S)
    queue.send({"kind": "json"}, headers={"tenant": "7", "trace": b"\x00\x01"})
    queue.send("not in this century", at=FAR, headers={"when": "2100"})
    queue.send("of no use after a while", ttl=LEASE_S)
    queue.send("of use for a hundred years", ttl=100 * YEARS_S)
    queue.send("in a while", delay=LEASE_S)


def _write_priorities(client: Client) -> None:
    queue = client.queue("urgent").create(retention=RETENTION_S)
    for number, priority in enumerate((4, 0, 9, 4, 7, 9, 1)):
        queue.send(f"priority {priority}, number {number}", priority=priority)


def _write_fifo(client: Client) -> None:
    """Three groups; the first message of one is done, that of another in flight."""
    queue = client.queue("orders.fifo").create(type="fifo", retention=RETENTION_S, visibility=LEASE_S)
    for number in range(9):
        group = f"order-{number % 3}"
        queue.send(f"{group}, step {number // 3}", group=group, dedupe=f"{group}-{number // 3}")
    queue.send("order-0, step 0, sent again", group="order-0", dedupe="order-0-0")
    done, _ = queue.receive(max=1, wait=10)[0], queue.receive(max=1, wait=10)[0]
    done.ack().result()


def _write_dead_letters(client: Client) -> None:
    """Dead letters with their reasons; and messages that become some when their last lease ends."""
    dead = client.queue("mails-dead").create(retention=RETENTION_S)
    mails = client.queue("mails").create(
        retention=RETENTION_S, max_receives=2, dead_letter="mails-dead", visibility=LEASE_S
    )
    mails.send_many([f"mail {number}" for number in range(6)], headers={"tenant": "7"})
    for attempt in range(2):
        for message in mails.receive(max=4, wait=10):
            reason = "Timeout of the server" if message.text in ("mail 0", "mail 1") else "no such address"
            message.nack(delay=0, reason=f"{reason}, attempt {attempt + 1}").result()
    until(lambda: len(dead.peek(10)) == 4, "dead letters")
    first, second = mails.receive(max=2, wait=10)
    first.nack(delay=0, reason="the first failure of two").result()
    (again,) = mails.receive(max=1, wait=10)
    assert (again.id, again.attempt, second.attempt) == (first.id, 2, 1)


def _write_sqs(client: Client, http_url: str) -> None:
    """What the SQS API stores of a queue beside its messages, and attributes of messages."""
    sqs = sqs_client(http_url)
    policy = {"Version": "2012-10-17", "Statement": [{"Sid": "all", "Effect": "Allow", "Principal": "*"}]}
    url = sqs.create_queue(
        QueueName="sqs-mail",
        Attributes={
            "MessageRetentionPeriod": "1209600",
            "VisibilityTimeout": "77",
            "Policy": json.dumps(policy),
            "RedrivePolicy": json.dumps(
                {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:mails-dead", "maxReceiveCount": 9}
            ),
        },
        tags={"team": "blue", "stage": "prod"},
    )["QueueUrl"]
    attributes = {
        "Author": {"DataType": "String", "StringValue": "Zoë"},
        "Count": {"DataType": "Number", "StringValue": "6"},
        "Raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    sqs.send_message(QueueUrl=url, MessageBody="with attributes", MessageAttributes=attributes)
    # The SQS API allows two weeks.
    client.queue("sqs-mail").alter(retention=RETENTION_S)


def start_move(client: Client) -> None:
    """A move of dead letters; the broker is stuck, and so it never ends."""
    client.queue("rescued").create(retention=RETENTION_S)
    move = client.queue("mails-dead").redrive(to="rescued", reason_contains="no such address")
    until(lambda: len(client.queue("rescued").peek(10)) == 2, "messages at the destination of the move")
    assert move.look().status == "RUNNING"
