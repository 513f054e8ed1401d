"""The state of a mirrored queue: after a takeover only what is not deleted is received, and the home can move back."""

import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import boto3
import pytest
from botocore.exceptions import ClientError

from headrace import Client
from headrace.mirror.reports import MirrorReport
from headrace.model.errors import InvalidLink
from headrace.model.ids import TopicName
from headrace.model.links import Link, LinkSync
from headrace.queues.host.message_cache import MessageCache
from headrace.testing import Broker
from tests.interop.linked import ask, image, link_to, services
from tests.waiting import until

FAST = {"link.refresh.interval.ms": 100, "replica.fetch.wait.max.ms": 100}
QUEUES = LinkSync(queues=True)


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker(settings=FAST) as broker:
        yield broker


@pytest.fixture
def target() -> Iterator[Broker]:
    with Broker(settings=FAST) as broker:
        yield broker


def connect(here: Broker, there: Broker, name: str = "eu") -> None:
    link = Link(name, UUID(int=0), (there.bootstrap,), topics=(".*",), sync=QUEUES)
    ask(here, lambda links: links.create(link))


def report(broker: Broker, queue: str) -> MirrorReport | None:
    topic = image(broker).topics.get(TopicName(queue))
    if topic is None or topic.topic_id not in image(broker).mirrors:
        return None
    return ask(broker, lambda links: links.mirror(queue))


def until_state(broker: Broker, *queues: str) -> None:
    """Wait until the messages and the state that the source has now are here."""
    asked_ms = time.time() * 1000

    def is_copied(queue: str) -> bool:
        found = report(broker, queue)
        if found is None or found.lag_messages != 0:
            return False
        (figures,) = (each.figures for each in found.partitions)
        return figures is not None and figures.has_state_since(asked_ms) and figures.local_end > 0

    for queue in queues:
        until(lambda name=queue: is_copied(name), lambda name=queue: str(report(broker, name)))  # type: ignore[misc]


def sqs_of(broker: Broker) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=broker.http_url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )


def counts_of(queue: Any) -> Any:
    """How many messages it has, once it is loaded."""
    return until(lambda: queue.describe().counts)


def state_error(broker: Broker, queue: str) -> str:
    found = report(broker, queue)
    return "" if found is None else found.state_error


def received(queue: Any, count: int, keep: Collection[str] = ()) -> dict[str, int]:
    """The texts of so many messages, which are acked, with their attempts; those to keep are received and not acked."""
    seen: dict[str, int] = {}

    def receive() -> bool:
        for message in queue.receive(100, wait=1):
            assert message.text not in seen, "no message comes twice"
            if message.text in keep:
                continue
            seen[message.text] = message.attempt
            message.ack()
        return len(seen) >= count

    until(receive, lambda: f"{count} messages, got {seen}")
    queue.flush()
    return seen


def test_after_a_failover_only_what_is_not_deleted_is_received(source: Broker, target: Broker) -> None:
    with Client(source.bootstrap) as there, Client(target.bootstrap) as here:
        jobs = there.queue("jobs").create(visibility=30)
        jobs.send_many([f"{number}" for number in range(1_000)])
        connect(target, source)
        deleted: set[str] = set()
        while len(deleted) < 600:
            for message in jobs.receive(100, wait=5):
                message.ack()
                deleted.add(message.text)
        jobs.flush()
        failed = {message.text for message in jobs.receive(20, wait=5)}
        for message in jobs.receive(10, wait=5, visibility=1):
            message.nack(delay=0)
        jobs.send("later", delay=20)
        in_flight = {message.text for message in jobs.receive(10, wait=5, visibility=3)}
        assert (len(deleted), len(failed), len(in_flight)) == (600, 20, 10)
        until_state(target, "jobs")
        source.stop()

        ask(target, lambda links: links.failover("jobs"))
        mirrored = here.queue("jobs")
        counts = counts_of(mirrored)
        assert (counts.delayed, counts.available + counts.in_flight) == (1, 400)
        mirrored.send("new")
        seen = received(mirrored, 1_000 - 600 - 20 + 1)
        assert not deleted & seen.keys(), "what was deleted at the source never comes again"
        assert seen.keys() | failed | deleted == {*(f"{number}" for number in range(1_000)), "new"}
        assert {seen[text] for text in in_flight} == {2}, "received once there, when its lease there has ended"
        assert sorted(seen.values()).count(2) == 20, "10 were returned, and 10 in flight"
        assert counts_of(mirrored).delayed == 1, "due when it was due there"


def test_boto3_moves_its_fifo_queue(source: Broker, target: Broker) -> None:
    there, here = sqs_of(source), sqs_of(target)
    url = there.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for number in range(30):
        there.send_message(
            QueueUrl=url, MessageBody=f"{number}", MessageGroupId=f"g{number % 3}", MessageDeduplicationId=f"{number}"
        )
    connect(target, source)
    deleted: set[int] = set()
    for message in there.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]:
        if len(deleted) < 6:
            there.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            deleted.add(int(message["Body"]))
        else:
            there.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    until_state(target, "orders.fifo")
    mirrored = url.replace(source.http_url, target.http_url)
    with pytest.raises(ClientError, match=r"its home is another cluster.* headrace link promote orders\.fifo"):
        here.receive_message(QueueUrl=mirrored)

    ask(target, lambda links: links.promote("orders.fifo"))
    left = set(range(30)) - deleted
    groups: dict[int, list[int]] = {0: [], 1: [], 2: []}

    def receive() -> bool:
        for message in here.receive_message(QueueUrl=mirrored, MaxNumberOfMessages=10, WaitTimeSeconds=1).get(
            "Messages", ()
        ):
            number = int(message["Body"])
            groups[number % 3].append(number)
            here.delete_message(QueueUrl=mirrored, ReceiptHandle=message["ReceiptHandle"])
        return sum(map(len, groups.values())) >= len(left)

    until(receive)
    assert all(numbers == sorted(numbers) for numbers in groups.values()), "the order of each group holds"
    assert {number for numbers in groups.values() for number in numbers} == left
    known = min(deleted)
    here.send_message(
        QueueUrl=mirrored, MessageBody="again", MessageGroupId=f"g{known % 3}", MessageDeduplicationId=f"{known}"
    )
    nothing = here.receive_message(QueueUrl=mirrored, WaitTimeSeconds=1)
    assert "Messages" not in nothing, "a duplicate of a message that was sent, and deleted, at the source"


def test_a_dead_letter_is_in_one_of_the_two_queues(source: Broker, target: Broker) -> None:
    with Client(source.bootstrap) as there, Client(target.bootstrap) as here:
        there.queue("failed").create()
        jobs = there.queue("jobs").create(max_receives=1, dead_letter="failed")
        jobs.send_many(["dead", "alive"])
        ask(target, lambda links: links.create(link_to(source, topics=("jobs",), sync=QUEUES)))
        until_state(target, "jobs")
        for message in jobs.receive(2, wait=5):
            if message.text == "dead":
                message.nack().result()
        until(lambda: counts_of(there.queue("failed")).available == 1)
        problem = until(lambda: state_error(target, "jobs"))
        assert "moved to failed" in problem
        assert "headrace link alter eu --topics" in problem

        ask(target, lambda links: links.alter("eu", lambda link: replace(link, topics=(".*",))))
        until_state(target, "jobs", "failed")
        ask(target, lambda links: links.failover("failed"))
        ask(target, lambda links: links.failover("jobs"))
        (letter,) = until(lambda: here.queue("failed").receive(1, wait=1))
        assert letter.text == "dead"
        assert counts_of(here.queue("jobs")).available == 0, "the other one is in flight"


def test_the_home_of_a_queue_moves_there_and_back(source: Broker, target: Broker) -> None:
    with Client(source.bootstrap) as there, Client(target.bootstrap) as here:
        jobs = there.queue("jobs").create(visibility=30)
        jobs.send_many(["a", "b", "c"])
        connect(target, source)
        (first,) = jobs.receive(1, wait=5)
        first.ack().result()
        until_state(target, "jobs")
        ask(target, lambda links: links.pause("eu"))
        jobs.send_many(["never copied", "d"])
        for message in jobs.receive(10, wait=5):
            message.ack()
        jobs.flush()
        ask(target, lambda links: links.failover("jobs"))
        here.queue("jobs").send_many(["x", "y", "z"])

        link = Link("us", UUID(int=0), (target.bootstrap,), topics=("jobs",))
        ask(source, lambda links: links.create(link))
        with pytest.raises(InvalidLink, match="headrace link alter us --sync queues"):
            ask(source, lambda links: links.reverse("us", "jobs"))
        ask(source, lambda links: links.alter("us", lambda each: replace(each, sync=QUEUES)))
        made = ask(source, lambda links: links.reverse("us", "jobs"))
        assert (made.is_complete, made.set_aside) == (True, 2)
        texts = {message.text: message for message in until(lambda: here.queue("jobs").receive(10, wait=1))}
        assert texts.keys() == {"b", "c", "x", "y", "z"}, "what was deleted there and not copied comes again"
        for text in ("b", "x"):
            texts[text].ack().result()
        for text in ("c", "y", "z"):
            texts[text].nack(delay=0).result()
        until_state(source, "jobs")
        ask(source, lambda links: links.promote("jobs"))
        there.queue("jobs").send("home again")
        assert received(there.queue("jobs"), 4) == {"c": 2, "y": 2, "z": 2, "home again": 1}


def test_a_queue_comes_home_with_what_was_deleted_or_received_here_in_vain(
    source: Broker, target: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.queues.service._TRIM_EVERY_S", 0.02)
    monkeypatch.setattr(MessageCache, "offer", lambda *_: None)  # As if it was full.
    with Client(source.bootstrap) as there, Client(target.bootstrap) as here:
        jobs = there.queue("jobs").create(visibility=30)
        jobs.send_many(["a", "b", "c"])
        connect(target, source)
        until_state(target, "jobs")
        ask(target, lambda links: links.pause("eu"))
        ask(target, lambda links: links.failover("jobs"))
        here.queue("jobs").send("x")
        jobs.send_many(["never copied", "nor this"])
        received(jobs, 3, keep={"never copied", "nor this"})
        log = services(source).partitions.get("jobs", 0).log
        until(lambda: log.start_offset == 3)

        ask(source, lambda links: links.create(Link("us", UUID(int=0), (target.bootstrap,), ("jobs",), sync=QUEUES)))
        made = ask(source, lambda links: links.reverse("us", "jobs"))
        assert (made.is_complete, made.set_aside) == (True, 2)
        until_state(source, "jobs")
        ask(source, lambda links: links.promote("jobs"))
        assert received(there.queue("jobs"), 4) == dict.fromkeys("abcx", 1)
