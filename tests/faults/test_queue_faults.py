"""A queue on three brokers that are harmed in every way there is, while boto3 sends, receives and deletes.

What was acknowledged is received and deleted in the end, what was deleted never comes back, nothing is handed out again
before its time, and poison ends in the dead-letter queue.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.testing.histories import Recorder
from tests.faults.nemesis import FAULTS, Scene, possible
from tests.faults.queue_checks import is_poison, problems
from tests.faults.queue_crowd import Sender, Workers, sending
from tests.faults.queue_work import DEAD, MAX_RECEIVES, POISON, PROBLEMS, WORK, Endpoints, events
from tests.faults.testbed import Testbed
from tests.interop import subject

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not subject.IS_HEADRACE, reason="about a cluster of Headrace"),
]

EPISODES = int(os.environ.get("FAULT_EPISODES", "48"))
SEED = int(os.environ.get("FAULT_SEED", "1"))
VISIBILITY_S = 20
STATE_PARTITIONS = 16
SETTINGS = {"log.segment.bytes": 262_144}
PLACES = [(WORK, 0)] * STATE_PARTITIONS + [("__queue_state", index) for index in range(STATE_PARTITIONS)]
"""As often the leader of the queue as that of some of its state."""
PROGRESS, WITHIN_S = 100, 240.0
MANY = 1_000_000


class Sqs:
    """One more client, which asks until it is answered."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls

    def ask(self, what: Callable[[Endpoints], Any]) -> Any:
        end_s = time.monotonic() + WITHIN_S
        with Endpoints(self._urls, "asking") as endpoints:
            while True:
                try:
                    return what(endpoints)
                except PROBLEMS:
                    assert time.monotonic() < end_s
                    endpoints.next()
                    time.sleep(0.1)

    def create(self) -> None:
        policy = {"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:000000000000:{DEAD}", "maxReceiveCount": MAX_RECEIVES}
        settings = {"VisibilityTimeout": str(VISIBILITY_S), "RedrivePolicy": json.dumps(policy)}
        self.ask(lambda some: some.client.create_queue(QueueName=DEAD))
        self.ask(lambda some: some.client.create_queue(QueueName=WORK, Attributes=settings))

    def count(self, queue: str) -> int:
        names = [f"ApproximateNumberOfMessages{state}" for state in ("", "NotVisible", "Delayed")]
        answer = self.ask(
            lambda some: some.client.get_queue_attributes(QueueUrl=some.url_of(queue), AttributeNames=names)
        )
        return sum(int(answer["Attributes"][name]) for name in names)

    def dead_letters(self) -> set[str]:
        """Everything in the dead-letter queue, which is kept from others."""
        bodies: set[str] = set()
        count, end_s = self.count(DEAD), time.monotonic() + WITHIN_S
        seen: set[str] = set()
        while len(seen) < count and time.monotonic() < end_s:
            got = self.ask(
                lambda some: some.client.receive_message(
                    QueueUrl=some.url_of(DEAD), MaxNumberOfMessages=10, VisibilityTimeout=3600
                )
            )
            for message in got.get("Messages", []):
                seen.add(message["MessageId"])
                bodies.add(message["Body"])
        return bodies


class Progress:
    """Waits until something more is sent and deleted, on a cluster that has nothing wrong with it."""

    def __init__(self, senders: list[Sender], folder: Path) -> None:
        self._senders = senders
        self._folder = folder

    def wait(self) -> None:
        wanted = [count + PROGRESS for count in self._counts()]
        end_s = time.monotonic() + WITHIN_S
        while any(count < goal for count, goal in zip(self._counts(), wanted, strict=True)):
            assert time.monotonic() < end_s, f"sent and deleted are {self._counts()}, not {wanted}"
            time.sleep(0.2)

    def _counts(self) -> tuple[int, int]:
        deleted = sum(path.read_bytes().count(b'"deleted"') for path in self._folder.glob("*.journal"))
        return sum(len(sender.acked) for sender in self._senders), deleted


@pytest.mark.timeout(3600)
def test_a_queue_survives_every_kind_of_fault(tmp_path: Path, say: Callable[[str], None]) -> None:
    say(f"FAULT_SEED={SEED} FAULT_EPISODES={EPISODES}")
    folder = tmp_path / "work"
    folder.mkdir()
    wanted = [f"{POISON}-{number}" if number % 500 == 3 else f"job-{number}" for number in range(MANY)]
    with Testbed(tmp_path, settings=SETTINGS, with_clock=True) as bed:
        names = possible(bed)
        order = (names * (EPISODES // len(names) + 1))[:EPISODES]
        rng = Random(SEED)
        rng.shuffle(order)
        urls = [broker.http_url for broker in bed.cluster.brokers.values()]
        sqs = Sqs(urls)
        sqs.create()
        bed.cluster.await_in_sync()
        with (
            Recorder(tmp_path / "nemesis.jsonl", "nemesis") as record,
            Workers(folder, urls, 4) as workers,
        ):
            with sending(urls, wanted, 2, pause_s=0.1) as senders:
                progress = Progress(senders, folder)
                progress.wait()
                scene = Scene(bed, workers, PLACES, rng, record)
                for number, name in enumerate(order, 1):
                    began_s = time.monotonic()
                    whom = FAULTS[name][0](scene)
                    lasted_s = time.monotonic() - began_s
                    recovered_s = bed.recover()
                    progress.wait()
                    say(f"{number}: {name} ({whom}) for {lasted_s:.1f} s, all in sync after {recovered_s:.1f} s")
            acked = {body for sender in senders for body in sender.acked}
            end_s = time.monotonic() + WITHIN_S
            while (left := sqs.count(WORK)) > 0:
                assert time.monotonic() < end_s, f"{left} messages are never done with"
                time.sleep(0.5)
            dead = sqs.dead_letters()
    done = list(events(folder))
    found = problems(done, acked, VISIBILITY_S)
    got = [event for event in done if event["event"] == "got"]
    say(
        f"{len(acked)} messages acknowledged, {len(got)} receives, {sum(one['count'] > 1 for one in got)} of them not "
        f"the first, {len(dead)} dead letters, {EPISODES} faults, {len(found)} problems"
    )
    assert not found, f"{len(found)} problems: {found[:20]}"
    assert dead >= {body for body in acked if is_poison(body)}
    assert all(map(is_poison, dead))
