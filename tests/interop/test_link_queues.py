"""Queues over a link: their mirrors are read-only topics until they are taken over, and then queues."""

from collections.abc import Iterator

import pytest

from headrace import Client, NoSuchQueue, QueueFailed
from headrace.model.ids import TopicName
from headrace.model.links import LinkSync
from headrace.testing import Broker
from tests.interop.linked import ask, image, link_to
from tests.waiting import until

JOBS, FAILED = TopicName("eu.jobs"), TopicName("eu.failed")


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def target() -> Iterator[Broker]:
    with Broker(settings={"link.refresh.interval.ms": 100}) as broker:
        yield broker


def queue_of(target: Broker, topic: TopicName) -> dict[str, str]:
    found = image(target).topics.get(topic)
    mirror = None if found is None else image(target).mirrors.get(found.topic_id)
    return {} if mirror is None else dict(mirror.queue)


def copied(target: Broker) -> int:
    (part,) = ask(target, lambda links: links.mirror(JOBS)).partitions
    return part.figures.local_end if part.figures else 0


def test_a_mirrored_queue_is_one_after_a_failover(source: Broker, target: Broker) -> None:
    with Client(source.bootstrap) as there, Client(target.bootstrap) as here:
        there.queue("failed").create()
        jobs = there.queue("jobs").create(dead_letter="failed", max_receives=1, visibility=5)
        for number in range(10):
            jobs.send(f"{number}")
        chosen = LinkSync(queues=True)
        ask(target, lambda links: links.create(link_to(source, topics=(".*",), prefix="eu.", sync=chosen)))
        until(lambda: queue_of(target, JOBS) and queue_of(target, FAILED) and copied(target) >= 10)
        assert queue_of(target, JOBS)["queue.dead.letter"] == "eu.failed"
        assert "queue.type" not in image(target).topics[JOBS].settings, "a topic for now"
        mirrored = here.queue(JOBS)
        for refused in (lambda: mirrored.send("here"), mirrored.receive):
            with pytest.raises(
                NoSuchQueue,
                match=r"home is another cluster.* failover eu\.jobs does if that cluster is lost$",
            ):
                refused()

        with pytest.raises(QueueFailed, match=r"exists, but not here: its home is another cluster"):
            mirrored.create()

        there.queue("jobs").alter(visibility=7)
        until(lambda: queue_of(target, JOBS)["queue.visibility.timeout.ms"] == "7000")
        ask(target, lambda links: links.failover(FAILED))
        ask(target, lambda links: links.failover(JOBS))
        mirrored.send("10")
        seen: dict[str, int] = {}

        def receive() -> bool:
            for message in mirrored.receive(10, wait=1):
                seen[message.text] = seen.get(message.text, 0) + 1
                if message.text != "3":
                    message.ack()
            return len(seen) == 11

        until(receive)
        assert seen == {f"{number}": 1 for number in range(11)}
        (dead,) = until(lambda: here.queue(FAILED).receive(1, wait=1))
        assert dead.text == "3", "the dead-letter queue is the mirror of that of the source"
        assert image(target).topics[JOBS].settings["queue.visibility.timeout.ms"] == "7000"


def test_a_queue_is_a_topic_unless_its_definition_is_copied(source: Broker, target: Broker) -> None:
    with Client(source.bootstrap) as there, Client(target.bootstrap) as here:
        there.queue("jobs").create()
        ask(target, lambda links: links.create(link_to(source, topics=(".*",), prefix="eu.")))
        until(lambda: JOBS in image(target).topics)
        ask(target, lambda links: links.failover(JOBS))
        with pytest.raises(NoSuchQueue):
            here.queue(JOBS).receive()
