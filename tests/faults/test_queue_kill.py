"""A queue whose broker is killed again and again while boto3 sends, receives and deletes.

Every message is received and deleted in the end, one that was deleted never comes back, none is given to a second
worker before its time, and poison ends in the dead-letter queue, from where it can be brought back.
"""

import json
import random
import threading
import time
import urllib.request
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from headrace.model.queue_wire import Counts
from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import free_port, is_installed
from headrace.testing.process import BrokerProcess
from tests.faults.queue_checks import is_poison, problems
from tests.faults.queue_crowd import PATIENCE_S, Sender, Workers, sending
from tests.faults.queue_work import DEAD, MAX_RECEIVES, POISON, PROBLEMS, WORK, Endpoints, Journal, events, work

_LONGEST_RECEIVE_S = 1.5
Say = Callable[[str], None]


class Killed(Protocol):
    """What is killed: one broker, or one of three."""

    @property
    def urls(self) -> list[str]: ...

    def kill_one(self, chance: random.Random) -> None:
        """kill -9, and start again."""
        ...


class OneBroker:
    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    @property
    def urls(self) -> list[str]:
        return [self._broker.http_url]

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def kill_one(self, chance: random.Random) -> None:
        self._broker.kill()
        time.sleep(chance.random() * 0.5)
        self._broker.start(PATIENCE_S)


class ThreeBrokers:
    def __init__(self, cluster: ClusterProcesses) -> None:
        self._cluster = cluster

    @property
    def urls(self) -> list[str]:
        return [broker.http_url for broker in self._cluster.brokers.values()]

    def kill_one(self, chance: random.Random) -> None:
        broker_id = chance.choice(sorted(self._cluster.brokers))
        self._cluster.kill(broker_id)
        time.sleep(chance.random() * 8)
        self._cluster.start_broker(broker_id, PATIENCE_S)
        self._cluster.await_in_sync(PATIENCE_S)


class Show:
    """Queues, workers and what they did."""

    def __init__(self, killed: Killed, folder: Path, *, visibility_s: int, say: Say) -> None:
        self.killed = killed
        self.folder = folder
        self.say = say
        self._visibility_s = visibility_s
        folder.mkdir()
        self._until_works(self._create)

    def _create(self, endpoints: Endpoints) -> None:
        client = endpoints.client
        client.create_queue(QueueName=DEAD)
        client.create_queue(
            QueueName=WORK,
            Attributes={
                "VisibilityTimeout": str(self._visibility_s),
                "RedrivePolicy": json.dumps({"deadLetterTargetArn": self._arn(DEAD), "maxReceiveCount": MAX_RECEIVES}),
            },
        )

    @staticmethod
    def _arn(queue: str) -> str:
        return f"arn:aws:sqs:us-east-1:000000000000:{queue}"

    def _until_works(self, ask: Callable[[Endpoints], Any]) -> Any:
        deadline_s = time.monotonic() + PATIENCE_S
        with Endpoints(self.killed.urls, "asking") as endpoints:
            while True:
                try:
                    return ask(endpoints)
                except PROBLEMS:
                    assert time.monotonic() < deadline_s
                    endpoints.next()
                    time.sleep(0.1)

    # -- looking

    def counts(self, queue: str) -> Counts:
        answer = self._call("Count", {"queue": queue})
        return Counts(answer["available"], answer["in_flight"], answer["delayed"])

    def dead_letters(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["offset"] if found else -1
            page = self._call("Peek", {"queue": DEAD, "after_offset": after, "wanted": {"limit": 1000}})["messages"]
            if not page:
                return found
            found += [{"body": each[1], "offset": each[2], "origin": json.loads(each[9])} for each in page]

    def _call(self, name: str, call: dict[str, Any]) -> Any:
        deadline_s = time.monotonic() + PATIENCE_S
        for attempt in range(10_000):
            url = self.killed.urls[attempt % len(self.killed.urls)]
            request = urllib.request.Request(
                url,
                json.dumps(call).encode(),
                {"X-Amz-Target": f"Headrace.{name}", "Content-Type": "application/json"},
            )
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.loads(answer.read())
            except OSError:
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
        raise AssertionError("nobody answers")

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline_s, f"waited in vain: {what}; {self.counts(WORK)}, {self.counts(DEAD)}"
            time.sleep(0.1)

    def received(self) -> set[str]:
        return {event["body"] for event in events(self.folder) if event["event"] == "got"}

    def is_empty(self, queue: str) -> bool:
        counts = self.counts(queue)
        return (counts.available, counts.in_flight, counts.delayed) == (0, 0, 0)

    # -- checking

    def check(self, acked: set[str], since_s: float = 0.0) -> None:
        """What was done since then. A message that came back from the dead-letter queue is counted anew."""
        done = (event for event in events(self.folder) if event["at"] > since_s)
        found = problems(done, acked, self._visibility_s)
        assert not found, f"{len(found)} problems: {found[:20]}"

    def check_dead_letters(self, poison: set[str]) -> None:
        """Each is there, and was received as often as it may be.

        A receive whose worker was killed before the answer is undone: its attempt has a number, and does not count.
        """
        self.wait("the poison is dead", lambda: {_text(each["body"]) for each in self.dead_letters()} >= poison)
        letters = self.dead_letters()
        assert min(letter["origin"]["attempts"] for letter in letters) == MAX_RECEIVES
        receives = Counter(event["id"] for event in events(self.folder) if event["event"] == "got")
        assert max(receives.values()) <= MAX_RECEIVES
        assert {_text(letter["body"]) for letter in letters} == poison
        # One that was sent twice, since its sender did not hear of the first time, is there twice.
        offsets = [(letter["origin"]["topic_id"], letter["origin"]["offset"]) for letter in letters]
        assert len(offsets) == len(set(offsets))

    def redrive(self) -> None:
        self._until_works(lambda endpoints: endpoints.client.start_message_move_task(SourceArn=self._arn(DEAD)))


def _text(body: str) -> str:
    """JSON has bytes in base64."""
    return b64decode(body).decode()


def bodies(count: int, poison_every: int) -> list[str]:
    return [f"{POISON}-{number}" if number % poison_every == 3 else f"job-{number}" for number in range(count)]


@contextmanager
def threads_working(show: Show, count: int) -> Iterator[None]:
    """Workers in this process, which are not killed."""
    journals = [Journal(show.folder / f"thread-{number}.journal") for number in range(count)]
    workers = [
        threading.Thread(
            target=work,
            args=(f"thread-{number}", show.killed.urls, journal),
            kwargs={"stopped": (show.folder / "stop").exists, "healed": (show.folder / "healed").exists},
        )
        for number, journal in enumerate(journals)
    ]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        (show.folder / "stop").touch()
        for worker in workers:
            worker.join(PATIENCE_S)
        for journal in journals:
            journal.close()


def finish(show: Show, wanted: list[str], senders: list[Sender]) -> None:
    """Everything is sent and, but for the poison, deleted; that is in the dead-letter queue, and then is not."""
    for sender in senders:
        sender.join(PATIENCE_S)
    acked = {body for sender in senders for body in sender.acked}
    assert acked == set(wanted)
    poison = {body for body in wanted if is_poison(body)}
    show.wait("the queue is empty", lambda: show.is_empty(WORK))
    show.check(acked)
    show.check_dead_letters(poison)
    show.say(f"{len(wanted)} messages are done, {len(poison)} of them dead letters; now these come back")
    (show.folder / "healed").touch()
    # A receive that was asked before may still take poison for poison.
    time.sleep(_LONGEST_RECEIVE_S)
    healed_s = time.monotonic()
    show.redrive()
    show.wait("both queues are empty", lambda: show.is_empty(DEAD) and show.is_empty(WORK))
    show.check(poison, healed_s)


@contextmanager
def one_broker(tmp_path: Path) -> Iterator[OneBroker]:
    broker = BrokerProcess(tmp_path / "data", port=free_port(), settings={"http.listen": f"127.0.0.1:{free_port()}"})
    try:
        broker.start()
        yield OneBroker(broker)
    finally:
        broker.kill()
        broker.close()


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_comes_back_when_the_broker_is_killed(tmp_path: Path, say: Say) -> None:
    chance = random.Random(6)
    wanted = bodies(500, poison_every=100)
    with one_broker(tmp_path) as killed:
        show = Show(killed, tmp_path / "work", visibility_s=2, say=say)
        with threads_working(show, 3), sending(show.killed.urls, wanted, 2) as senders:
            for _ in range(2):
                time.sleep(0.2 + chance.random())
                killed.kill_one(chance)
            finish(show, wanted, senders)


def kill_for_long(
    show: Show, chance: random.Random, *, count: int, workers: int, broker_kills: int, worker_kills: int
) -> None:
    """Kill brokers and workers again and again, spread over the time that it takes to send everything."""
    wanted = bodies(count, poison_every=500)
    began_s = time.monotonic()
    kills = ["a broker"] * broker_kills + ["a worker"] * worker_kills
    chance.shuffle(kills)
    with Workers(show.folder, show.killed.urls, workers) as crowd, sending(show.killed.urls, wanted, 4) as senders:
        for number, what in enumerate(kills, 1):
            goal = count * number // (len(kills) + 1)
            show.wait(f"{goal} are sent", lambda goal=goal: sum(len(each.acked) for each in senders) >= goal)  # type: ignore[misc]
            if what == "a worker":
                crowd.kill_one(chance)
            else:
                show.killed.kill_one(chance)
            show.say(f"{time.monotonic() - began_s:.0f} s: killed {what} after {goal} messages, {show.counts(WORK)}")
        finish(show, wanted, senders)
    got = [event for event in events(show.folder) if event["event"] == "got"]
    again = sum(event["count"] > 1 for event in got)
    show.say(
        f"{count} messages in {time.monotonic() - began_s:.0f} s, {len(got)} receives, {again} of them not the first; "
        f"{broker_kills} kills of brokers, {worker_kills} of {workers} workers"
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_workers_and_a_hundred_thousand_messages(tmp_path: Path, say: Say) -> None:
    with one_broker(tmp_path) as killed:
        show = Show(killed, tmp_path / "work", visibility_s=20, say=say)
        kill_for_long(show, random.Random(7), count=100_000, workers=20, broker_kills=10, worker_kills=20)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not is_installed(), reason="needs etcd")
def test_the_same_on_three_brokers(tmp_path: Path, say: Say) -> None:
    with ClusterProcesses(tmp_path / "cluster", brokers=3) as cluster:
        show = Show(ThreeBrokers(cluster), tmp_path / "work", visibility_s=20, say=say)
        kill_for_long(show, random.Random(8), count=100_000, workers=20, broker_kills=10, worker_kills=20)
