"""Failing back between two clusters, with brokers killed and cut off on both sides while the former source is reversed.

Three brokers and one etcd on each side, every process on a network node of its own. A round is a new topic and a new
link: a fault while it is mirrored, a failover with the source cut off, writes on both sides, then a reversal with
faults in the middle of it. Then everything is compared: what each producer was told, both topics on all disks, what was
set aside, and where the group goes on. Some rounds move back to where they began, as planned. FAULT_SEED and
FAULT_EPISODES (rounds) as for other tests of faults.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from tests.faults.link_clients import GroupReader, Load, Place, SetAside, committed, read, send, set_aside
from tests.faults.linked_clusters import BROKERS, LinkedClusters, Region
from tests.faults.test_link_network import GROUP, PARTITIONS, PER_SECOND, SETTINGS, create, delete, replica
from tests.interop import subject
from tests.waiting import until

pytestmark = pytest.mark.skipif(not subject.IS_HEADRACE, reason="about clusters of Headrace")

ROUNDS = int(os.environ.get("FAULT_EPISODES", "12"))
SEED = int(os.environ.get("FAULT_SEED", "1"))
BURST, BURST_BYTES = 12_000, 1000
"""Messages that only the former source gets: 4 MB of each partition, so that a fault finds a reversal at work."""
MAX_AGAIN = 2500
"""Messages of a partition that may be set aside twice after a failure: 2 MB of them, and what was read ahead."""
WITHIN_S = 120.0


@dataclass
class Round:
    clusters: LinkedClusters
    chance: Random
    number: int
    say: Callable[[str], None]
    failures: int = 0
    """Faults since the reversal began."""
    amid: int = 0
    """Those of them that found messages being set aside."""
    acked: dict[Place, bytes] = field(default_factory=dict)
    """What was acknowledged at the source, until it became a mirror."""
    acked_there: dict[Place, bytes] = field(default_factory=dict)
    """What was acknowledged where it was taken over."""

    @property
    def topic(self) -> str:
        return f"orders-{self.number}"

    @property
    def link(self) -> str:
        return f"eu-{self.number}"

    @property
    def back(self) -> str:
        """The name of the link from the former source to the cluster that took over."""
        return f"us-{self.number}"

    @property
    def here(self) -> Region:
        """The former source."""
        return self.clusters.source

    @property
    def there(self) -> Region:
        """The cluster that takes over."""
        return self.clusters.target

    def tell(self, words: str) -> None:
        self.say(f"round {self.number}: {words}")


Fault = Callable[[Round], str]


def kill(at: Round, side: Region) -> str:
    broker_id = at.chance.choice(side.running)
    side.kill(broker_id)
    return f"{side.side}-{broker_id} is killed"


def isolate(at: Round, side: Region) -> str:
    broker_id = at.chance.choice(BROKERS)
    at.clusters.isolate(side.side, broker_id)
    return f"{side.side}-{broker_id} is cut off"


def pause(at: Round, side: Region) -> str:
    broker_id = at.chance.choice(side.running)
    side.pause(broker_id)
    return f"{side.side}-{broker_id} is paused"


def cut(at: Round) -> str:
    at.clusters.cut()
    return "nothing passes between the clusters"


def cut_one_way(at: Round) -> str:
    at.clusters.cut(both_ways=False)
    return "nothing passes from the former source"


FAULTS: dict[str, Fault] = {
    "kill here": lambda at: kill(at, at.here),
    "kill here again": lambda at: kill(at, at.here),
    "kill there": lambda at: kill(at, at.there),
    "kill on both sides": lambda at: f"{kill(at, at.here)}, {kill(at, at.there)}",
    "isolate here": lambda at: isolate(at, at.here),
    "isolate there": lambda at: isolate(at, at.there),
    "pause here": lambda at: pause(at, at.here),
    "pause there": lambda at: pause(at, at.there),
    "cut": cut,
    "cut one way": cut_one_way,
    "cut and kill": lambda at: f"{cut(at)}, {kill(at, at.here)}",
}


def run_round(at: Round) -> str:
    here, there, chance = at.here, at.there, at.chance
    create(here, at.topic)
    there.call("POST", "/links", {"name": at.link, "bootstrap": here.bootstrap.split(","), "topics": [at.topic]})
    there.await_link(at.link)
    with ExitStack() as stack:
        load = Load(here.bootstrap, at.topic, PER_SECOND, until_refused=True)
        stack.callback(load.stop)
        group = GroupReader(here.bootstrap, at.topic, GROUP, PARTITIONS)
        stack.callback(group.stop)
        at.clusters.await_mirror(at.link, at.topic, PARTITIONS)
        if chance.random() < 0.5:
            suffer(at, chance.choice(sorted(FAULTS)), chance.uniform(0.5, 3.0))
        fail_over(at)
        new = Load(there.bootstrap, at.topic, PER_SECOND)
        stack.callback(new.stop)
        partings = {index: promotion_offset(at, index) for index in range(PARTITIONS)}
        new_group = follow_group(at) if chance.random() < 0.5 else None
        if new_group is not None:
            stack.callback(new_group.stop)
        write_apart(at)
        until(lambda: any(done > partings[index] for index, done in enumerate(group.handled)), "the group goes on")
        is_busy = chance.random() < 0.5
        if not is_busy:
            load.stop()
        group.stop()
        group_before = committed(here.bootstrap, at.topic, GROUP, PARTITIONS)
        at.clusters.network.heal()
        here.call("POST", "/links", {"name": at.back, "bootstrap": there.bootstrap.split(","), "topics": [at.topic]})
        here.await_link(at.back)
        answer = reverse(at)
        until(lambda: load.is_refused or not is_busy, "producers of the former source are refused")
        load.stop()
        at.acked |= {place: each.value for place, each in load.acked.items()}
        new.stop()
        at.acked_there |= {place: each.value for place, each in new.acked.items()}
        if new_group is not None:
            until(lambda: committed(there.bootstrap, at.topic, GROUP, PARTITIONS) == new_group.handled)
            new_group.stop()
    await_same(at)
    aside = check_set_aside(at, partings, answer)
    check_messages(at, partings)
    check_group(at, partings, group_before)
    is_moved = chance.random() < 0.4
    if is_moved:
        move_back(at)
    clean_up(at, is_moved=is_moved)
    return (
        f"{len(at.acked):,} and {len(at.acked_there):,} acknowledged, {len(aside.values):,} set aside, "
        f"{aside.again:,} of them twice, {at.failures} faults, {at.amid} amid{', moved back' if is_moved else ''}"
    )


def suffer(at: Round, name: str, seconds: float) -> None:
    """Let a fault happen and last."""
    happened = FAULTS[name](at)
    began = time.monotonic()
    time.sleep(seconds)
    at.clusters.recover()
    at.tell(f"{happened} for {seconds:.1f} s, recovered after {time.monotonic() - began:.1f} s")


def fail_over(at: Round) -> None:
    """Cut the source off, let it be written to, and fail over, sometimes with a broker less."""
    at.clusters.cut()
    if at.chance.random() < 0.3:
        kill(at, at.there)
    at.there.call("POST", f"/mirrors/{at.topic}/failover", {}, within_s=90)


def promotion_offset(at: Round, index: int) -> int:
    """Where the log of the cluster that took over begins to be its own: the first batch of a local epoch."""

    def is_promoted() -> list[Any]:
        headers = [header for _, header in replica(at.there, at.topic, index, at.there.running[0])[1]]
        # The reset marker comes last, after the ends of transactions.
        return headers if any(each.is_control and not each.is_transactional for each in headers) else []

    headers, epoch = until(is_promoted, f"{at.topic}-{index} is promoted"), promoted_epoch(at)
    return min(each.base_offset for each in headers if each.leader_epoch >= epoch)


def promoted_epoch(at: Round) -> int:
    settings = at.there.call("GET", f"/topics/{at.topic}/settings")
    text = next(each["value"] for each in settings if each["name"] == "mirror.promotion")
    return int(text.rsplit("/", 1)[1])


def follow_group(at: Round) -> GroupReader:
    """The group goes on where the topic was taken over."""
    first = committed(at.there.bootstrap, at.topic, GROUP, PARTITIONS)
    return GroupReader(at.there.bootstrap, at.topic, GROUP, PARTITIONS, first)


def write_apart(at: Round) -> None:
    """Give the former source messages that the other cluster never gets, transactions among them."""
    at.acked |= send(at.here.bootstrap, at.topic, PARTITIONS, BURST, "apart", BURST_BYTES)
    if at.chance.random() < 0.5:
        at.acked |= transact(at, "settled", is_committed=True)
        transact(at, "withdrawn", is_committed=False)


def transact(at: Round, text: str, *, is_committed: bool) -> dict[Place, bytes]:
    sent: dict[Place, bytes] = {}

    def delivered(error: object, message: Message) -> None:
        assert error is None, error
        sent[message.partition() or 0, message.offset() or 0] = message.value() or b""

    settings = {"bootstrap.servers": at.here.bootstrap, "transactional.id": at.topic, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(30):
        producer.produce(at.topic, f"{text} {number}", partition=number % PARTITIONS, on_delivery=delivered)
    assert producer.flush(60) == 0
    (producer.commit_transaction if is_committed else producer.abort_transaction)(60)
    return sent


def reverse(at: Round) -> dict[str, Any]:
    """Reverse the topic while faults happen; returns the answer when it is complete."""
    wanted = {"topic": at.topic, "timeout_s": 5}
    planned = at.here.call("POST", f"/links/{at.back}/reverse", {**wanted, "dry_run": True}, within_s=WITHIN_S)
    assert planned["set_aside"] >= BURST, planned
    answers: list[dict[str, Any]] = []
    failures: list[BaseException] = []

    def ask() -> None:
        ends_at = time.monotonic() + WITHIN_S
        try:
            while not answers or not answers[-1]["is_complete"]:
                assert time.monotonic() < ends_at, f"the reversal is not complete: {answers[-1:]}"
                answers.append(at.here.call("POST", f"/links/{at.back}/reverse", wanted, within_s=WITHIN_S))
        except BaseException as error:
            failures.append(error)

    began = time.monotonic()
    names = at.chance.sample(sorted(FAULTS), at.chance.choice((0, 1, 1, 1, 2)))
    if names and at.chance.random() < 0.2:
        at.tell(f"before the reversal, {FAULTS[names[0]](at)}")
        names[0] = ""
    thread = threading.Thread(target=ask, name="reverse", daemon=True)
    thread.start()
    for name in names:
        at.failures += 1
        if name:
            until(lambda: not thread.is_alive() or at.here.mirror(at.back, at.topic), "the reversal begins")
            time.sleep(at.chance.uniform(0.0, 0.4))
            at.amid += (at.here.mirror(at.back, at.topic) or {}).get("state") == "reversing"
            suffer(at, name, at.chance.uniform(0.5, 5.0))
        else:
            at.clusters.recover()
    thread.join()
    if failures:
        raise failures[0]
    at.tell(
        f"reversed in {time.monotonic() - began:.1f} s, {len(answers)} calls, {answers[-1]['set_aside']:,} set aside"
    )
    at.clusters.recover()
    return answers[-1]


def await_same(at: Round) -> None:
    """Wait until all six replicas of each partition have the same bytes."""
    for index in range(PARTITIONS):

        def sizes(index: int = index) -> list[int]:
            return [len(data) for data in copies(at, index)]

        until(lambda: len(set(copies(at, index))) == 1, lambda: f"{at.topic}-{index} is the same everywhere: {sizes()}")  # noqa: B023


def copies(at: Round, index: int) -> list[bytes]:
    return [replica(side, at.topic, index, each)[0] for side in (at.here, at.there) for each in BROKERS]


def check_set_aside(at: Round, partings: Mapping[int, int], answer: Mapping[str, Any]) -> SetAside:
    aside = set_aside(at.here.bootstrap, at.topic, PARTITIONS)
    expected = {place: {value} for place, value in at.acked.items() if place[1] >= partings[place[0]]}
    assert {place: aside.values.get(place) for place in expected} == expected, (
        "an acknowledged message is not set aside"
    )
    assert all(len(values) == 1 for values in aside.values.values())
    assert all(offset >= partings[partition] for partition, offset in aside.values)

    def counts() -> dict[str, float]:
        return {
            "the command": answer["set_aside"],
            "describe": (at.here.mirror(at.back, at.topic) or {})["set_aside_messages"],
            "the metric": at.here.metric("headrace_link_set_aside_messages", at.back),
        }

    # Leaders may still move to where they were, and the metric with them.
    is_same = f"of {len(aside.values)} messages that are there all say the same"
    until(lambda: set(counts().values()) == {len(aside.values)}, lambda: f"{is_same}: {counts()}", timeout_s=30)
    assert aside.again <= at.failures * PARTITIONS * MAX_AGAIN
    return aside


def check_messages(at: Round, partings: Mapping[int, int]) -> None:
    """Both sides have what was copied before the failover, and what was acknowledged after it."""
    expected = {place: value for place, value in at.acked.items() if place[1] < partings[place[0]]}
    assert all(offset >= partings[partition] for partition, offset in at.acked_there)
    expected |= at.acked_there
    last = {index: 1 + max(offset for part, offset in expected if part == index) for index in range(PARTITIONS)}
    for side in (at.here, at.there):
        found = read(side.bootstrap, at.topic, [0] * PARTITIONS, last)
        assert {place: found.get(place) for place in expected} == expected, f"messages are missing at {side.side}"


def check_group(at: Round, partings: Mapping[int, int], before: list[int]) -> None:
    """The group goes on here where it is there, and past nothing that it has not seen."""
    there = committed(at.there.bootstrap, at.topic, GROUP, PARTITIONS)
    expected = [max(there[index], min(before[index], partings[index])) for index in range(PARTITIONS)]

    def found() -> list[int]:
        return committed(at.here.bootstrap, at.topic, GROUP, PARTITIONS)

    until(
        lambda: found() == expected, lambda: f"the group is at {expected}: it is at {found()}, {there} there, {before}"
    )


def move_back(at: Round) -> None:
    """Move the producers back as planned: nothing is set aside."""
    at.here.call("POST", f"/mirrors/{at.topic}/promote", {"timeout_s": 9}, within_s=WITHIN_S)
    load = Load(at.here.bootstrap, at.topic, PER_SECOND)
    try:
        until(lambda: len({place[0] for place in load.acked}) == PARTITIONS, "producers write where they began")
        wanted = {"topic": at.topic, "timeout_s": 9}
        answer = at.there.call("POST", f"/links/{at.link}/reverse", wanted, within_s=WITHIN_S)
        assert (answer["set_aside"], answer["is_complete"]) == (0, True), answer
    finally:
        load.stop()
    await_same(at)
    last = {index: 1 + max(place[1] for place in load.acked if place[0] == index) for index in range(PARTITIONS)}
    found = read(at.there.bootstrap, at.topic, [0] * PARTITIONS, last)
    assert all(found.get(place) == each.value for place, each in load.acked.items())
    assert f"{at.topic}.divergent" not in AdminClient({"bootstrap.servers": at.there.bootstrap}).list_topics().topics


def clean_up(at: Round, *, is_moved: bool) -> None:
    mirror = at.there if is_moved else at.here
    mirror.call("POST", f"/mirrors/{at.topic}/failover", {}, within_s=90)
    at.there.call("DELETE", f"/links/{at.link}")
    at.here.call("DELETE", f"/links/{at.back}")
    for side in (at.here, at.there):
        delete(side, at.topic)
    delete(at.here, f"{at.topic}.divergent")


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_source_fails_back_while_brokers_are_killed_and_cut_off(tmp_path: Path, say: Callable[[str], None]) -> None:
    say(f"FAULT_SEED={SEED} FAULT_EPISODES={ROUNDS}")
    with LinkedClusters(tmp_path, SETTINGS) as clusters:
        for number in range(1, ROUNDS + 1):
            began = time.monotonic()
            at = Round(clusters, Random(f"{SEED}-{number}"), number, say)
            at.tell(f"{run_round(at)}; {time.monotonic() - began:.0f} s")
            for side in (clusters.source, clusters.target):
                unexpected = [line for log in side.folder.glob("*.log") for line in alarming(log)]
                assert not unexpected, unexpected[:5]


def alarming(log: Path) -> list[str]:
    """Lines that say that a promise does not hold."""
    marks = ("invariant", "that was committed", "Traceback")
    return [line for line in log.read_text(errors="replace").splitlines() if any(mark in line for mark in marks)]
