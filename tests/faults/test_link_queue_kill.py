"""Brokers on both sides of a link, killed again and again while a queue is used (invariants 96 and 97): after a
failover no message is lost, and what was deleted before the last copy of the state does not come again."""

import random
import time
from pathlib import Path

import pytest

from headrace import Client, ClientError
from headrace.model.ids import TopicName
from headrace.model.links import LinkSync
from headrace.testing import Broker
from headrace.testing.process import BrokerProcess
from tests.interop.linked import ask, image, link_to
from tests.interop.test_link_queue_state import until_state
from tests.waiting import until

FAST = {"link.refresh.interval.ms": 100, "replica.fetch.wait.max.ms": 100}
KILLS = 8
QUEUES = ("jobs", "failed")


class Use:
    """A sender and a receiver of the queue at home, and what each was answered."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.sent: set[str] = set()
        self.deleted: set[str] = set()
        """Those whose deletion was answered."""
        self.maybe_deleted: set[str] = set()
        self.steps = 0

    def step(self, client: Client) -> None:
        try:
            jobs = client.queue("jobs")
            self.steps += 1
            texts = [f"{self.steps}-{number}" for number in range(20)]
            jobs.send_many(texts)
            self.sent.update(texts)
            for message in jobs.receive(30, wait=0, visibility=2):
                if self.chance.random() < 0.7:
                    self.maybe_deleted.add(message.text)
                    message.ack().result(5)
                    self.deleted.add(message.text)
                elif self.chance.random() < 0.5:
                    message.nack(delay=0).result(5)
        except (ClientError, TimeoutError):
            pass  # The outcome is unknown.

    def work(self, client: Client, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self.step(client)


def drained(client: Client, queue: str) -> list[str]:
    """All messages of a queue, acked; those in flight at the source when their leases have ended."""
    seen: list[str] = []

    def is_empty() -> bool:
        for message in client.queue(queue).receive(1_000, wait=1):
            seen.append(message.text)
            message.ack()
        client.queue(queue).flush()
        counts = client.queue(queue).describe().counts
        return counts is not None and counts.available + counts.in_flight + counts.delayed == 0

    until(is_empty)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_no_message_is_lost_by_kills_on_both_sides_and_a_failover(tmp_path: Path, seed: int) -> None:
    use = Use(seed)
    source = BrokerProcess(tmp_path / "source")
    target = BrokerProcess(tmp_path / "target", settings=FAST)
    try:
        source.start()
        with Client(source.bootstrap) as client:
            client.queue("failed").create()
            client.queue("jobs").create(max_receives=3, dead_letter="failed")
            with Broker(target.data_dir, settings=FAST) as here:
                wanted = link_to(source, topics=(".*",), sync=LinkSync(queues=True))
                ask(here, lambda links: links.create(wanted))
                until(lambda: all(TopicName(each) in image(here).topics for each in QUEUES))
            target.start()
            for _ in range(KILLS):
                use.work(client, 0.5 + use.chance.random())
                use.chance.choice((source, target)).restart(kill=True)
            use.work(client, 1.0)
            target.restart(kill=True)
            target.terminate()
            with Broker(target.data_dir, settings=FAST) as here:
                until_state(here, "jobs")
                before, sent = set(use.deleted), set(use.sent)
                use.work(client, 1.0)
                source.close()  # Killed while it is used: some of the last second is copied.
                for queue in reversed(QUEUES):
                    ask(here, lambda links, name=queue: links.failover(name))  # type: ignore[misc]
                with Client(here.bootstrap) as client_here:
                    left = drained(client_here, "jobs")
                    dead = drained(client_here, "failed")
        assert len(left) == len(set(left)), "no message of the queue comes twice"
        assert sent - set(left) - set(dead) <= use.maybe_deleted, "every copied message is here unless it was deleted"
        assert not before & set(left), "what was deleted before the last copy does not come again"
        assert not before & set(dead)
        assert len(before) > 100
    finally:
        source.close()
        target.close()
