"""A link between two clusters whose network is cut, with brokers killed on both sides, until the source is lost.

Three brokers and one etcd on each side, every process on a network node of its own. A round is a new topic and a new
link: faults by the seed while producers and a group work at the source, then a cut and a failover, and then it is
compared. FAULT_SEED and FAULT_EPISODES (rounds) as for other tests of faults.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.records.batch import iter_headers
from tests.faults.link_clients import GroupReader, Load, committed, read
from tests.faults.linked_clusters import BROKERS, LinkedClusters, Region
from tests.interop import subject
from tests.waiting import until

pytestmark = pytest.mark.skipif(not subject.IS_HEADRACE, reason="about clusters of Headrace")

ROUNDS = int(os.environ.get("FAULT_EPISODES", "20"))
SEED = int(os.environ.get("FAULT_SEED", "1"))
PARTITIONS = 3
PER_SECOND = 200
FAULTS_OF_A_ROUND = 3
GROUP = "billing"
CLOCK_SLACK_S = 0.5
"""For the way of the answer to the test."""
_CONTROL = 0x20
SETTINGS: dict[str, object] = {
    "link.refresh.interval.ms": 200,
    "broker.session.timeout.ms": 3000,
    "replica.lag.time.max.ms": 3000,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
}


@dataclass
class Round:
    """What is at work in a round, and what was seen of it."""

    clusters: LinkedClusters
    chance: Random
    number: int
    copied: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    """The highest end of each mirror partition that a broker ever told: nothing below it may be lost."""

    @property
    def topic(self) -> str:
        return f"orders-{self.number}"

    @property
    def link(self) -> str:
        return f"eu-{self.number}"

    def look(self) -> list[dict[str, Any]]:
        """The figures of the mirror's partitions, which are remembered."""
        found = self.clusters.partitions(self.link, self.topic)
        for row in found:
            if row["local_end"] is not None:
                self.copied[row["partition"]] = max(self.copied[row["partition"]], row["local_end"])
        return found


Fault = Callable[[Round], str]


def cut_off(at: Round) -> str:
    at.clusters.cut()
    return "nothing passes"


def cut_one_way(at: Round) -> str:
    at.clusters.cut(both_ways=False)
    return "nothing passes from the source"


def cut_one_broker(at: Round) -> str:
    broker_id = at.chance.choice(BROKERS)
    at.clusters.cut(targets=(broker_id,))
    return f"broker {broker_id} of the target reaches no source"


def kill_one(at: Round, side: Region) -> str:
    broker_id = at.chance.choice(BROKERS)
    side.kill(broker_id)
    return f"{side.side}-{broker_id} is killed"


def cut_and_kill(at: Round) -> str:
    at.clusters.cut()
    return f"nothing passes, {kill_one(at, at.clusters.source)}, {kill_one(at, at.clusters.target)}"


FAULTS: dict[str, Fault] = {
    "cut": cut_off,
    "cut one way": cut_one_way,
    "cut one broker": cut_one_broker,
    "kill at the source": lambda at: kill_one(at, at.clusters.source),
    "kill at the target": lambda at: kill_one(at, at.clusters.target),
    "cut and kill": cut_and_kill,
}


@dataclass(frozen=True)
class Loss:
    """What is missing after a failover, and what the failover said of it."""

    really: int
    said: int | None
    seconds: float | None
    duplicates: int
    """Messages that the group had handled and gets again."""

    def __str__(self) -> str:
        said = "an unknown number" if self.said is None else f"{self.said}"
        return f"{self.really} missing, {said} announced, {self.duplicates} again for the group"


def run_round(clusters: LinkedClusters, number: int, chance: Random, say: Callable[[str], None], faults: int) -> Loss:
    at = Round(clusters, chance, number)
    source, target = clusters.source, clusters.target
    is_quiet, is_held_up = chance.random() < 0.6, chance.random() < 0.6
    create(source, at.topic)
    wanted = {"name": at.link, "bootstrap": source.bootstrap.split(","), "topics": [at.topic]}
    target.call("POST", "/links", wanted)
    target.await_link(at.link)
    load = Load(source.bootstrap, at.topic, PER_SECOND)
    group = GroupReader(source.bootstrap, at.topic, GROUP, PARTITIONS)
    patient = {"transactional.id": at.topic, "transaction.timeout.ms": 600_000, "log_level": 0}
    transaction = Producer({"bootstrap.servers": source.bootstrap, **patient})
    try:
        clusters.await_mirror(at.link, at.topic, PARTITIONS)
        for name in chance.sample(sorted(FAULTS), faults):
            happened = FAULTS[name](at)
            ends_at = time.monotonic() + chance.uniform(1.0, 5.0)
            until(lambda end=ends_at: (at.look(), time.monotonic() > end)[1])  # type: ignore[misc]
            clusters.recover()
            say(f"round {number}: {happened}; {len(load.acked):,} acknowledged, {sum(at.copied):,} copied")
        await_group(at, group)
        if is_held_up:
            hold_up(at, load, transaction)
        if is_quiet:
            load.stop()
            await_announced(at, load)
        loss = fail_over(at, load, group, is_quiet=is_quiet)
        if is_held_up:
            transaction.abort_transaction(60)
    finally:
        load.stop()
        group.stop()
    # A reverse of the link belongs here: the former source has what is missing at the target.
    target.call("DELETE", f"/links/{at.link}")
    for side in (source, target):
        delete(side, at.topic)
    say(f"round {number} ({'quiet' if is_quiet else 'busy'}{', held up' if is_held_up else ''}): {loss}")
    return loss


def await_group(at: Round, group: GroupReader) -> None:
    """Wait until the target has the offsets of all that the group has handled by now."""
    handled = list(group.handled)

    def is_at(side: Region) -> bool:
        found = committed(side.bootstrap, at.topic, GROUP, PARTITIONS)
        return all(offset >= wanted for offset, wanted in zip(found, handled, strict=True))

    until(lambda: is_at(at.clusters.source), "the group commits what it has handled")
    until(lambda: is_at(at.clusters.target), "the offsets of the group are copied")


def hold_up(at: Round, load: Load, transaction: Producer) -> None:
    """Leave a transaction open at the source, so that nothing after it is copied, and wait until that is much."""
    transaction.init_transactions(60)
    transaction.begin_transaction()
    for partition in range(PARTITIONS):
        transaction.produce(at.topic, b"undecided", partition=partition)
    assert transaction.flush(60) == 0
    written = len(load.acked)
    until(lambda: len(load.acked) > written + PER_SECOND, "the source is written to")


def await_announced(at: Round, load: Load) -> None:
    """Wait until the target knows of everything that the source has, copied or not."""

    def is_known() -> bool:
        ends = {row["partition"]: row["local_end"] for row in at.look()}
        if None in ends.values():
            return False
        missing = sum(1 for partition, offset in load.acked if offset >= ends[partition])
        said = at.clusters.target.call("POST", f"/mirrors/{at.topic}/failover", {"dry_run": True})["missing_messages"]
        return said is not None and missing <= said <= missing + PARTITIONS

    until(is_known, "the target knows what it does not have")


def fail_over(at: Round, load: Load, group: GroupReader, *, is_quiet: bool) -> Loss:
    """Cut the source off, fail over and compare."""
    clusters, target = at.clusters, at.clusters.target
    group_before = committed(target.bootstrap, at.topic, GROUP, PARTITIONS)
    clusters.cut()
    if not is_quiet:
        written = len(load.acked)
        until(lambda: len(load.acked) > written + PER_SECOND, "producers of the source go on")
    if at.chance.random() < 0.3:
        kill_one(at, target)
    at.look()
    answer = target.call("POST", f"/mirrors/{at.topic}/failover", {}, within_s=90)
    failed_over_s = time.time()
    load.stop()
    group.stop()
    clusters.recover()

    here = Load(target.bootstrap, at.topic, PER_SECOND)
    try:
        until(lambda: len({place[0] for place in here.acked}) == PARTITIONS, "producers write at the target")
    finally:
        here.stop()
    ends = {index: mirrored_end(target, at.topic, index) for index in range(PARTITIONS)}
    for index, end in ends.items():
        assert end >= at.copied[index], f"partition {index} had {at.copied[index]} and has {end}"
        ours, theirs = (
            mirrored_bytes(target, at.topic, index, end),
            mirrored_bytes(at.clusters.source, at.topic, index, end),
        )
        assert ours == theirs, f"partition {index} of {at.topic} is not the source's below {end}"
    # Every message that was acknowledged here or copied is at its offset.
    expected = {place: each.value for place, each in load.acked.items() if place[1] < ends[place[0]]}
    expected |= {place: each.value for place, each in here.acked.items()}
    last = {index: 1 + max(place[1] for place in here.acked if place[0] == index) for index in range(PARTITIONS)}
    found = read(target.bootstrap, at.topic, [0] * PARTITIONS, last)
    assert {place: found.get(place) for place in expected} == expected
    assert all(place[1] > ends[place[0]] for place in here.acked)

    missing = [each for place, each in load.acked.items() if place[1] >= ends[place[0]]]
    said, seconds = answer["missing_messages"], answer["missing_seconds"]
    if said is not None and seconds is not None:
        # Counted, or of the time since the target had last heard everything of the source.
        heard_s = failed_over_s - float(answer["took_ms"]) / 1000 - seconds - CLOCK_SLACK_S
        counted = len(missing) if is_quiet else sum(1 for each in missing if each.at_s < heard_s)
        assert counted <= said, f"{counted} of {len(missing)} are missing beyond {seconds:.1f} s, {said} were announced"
    return Loss(len(missing), said, seconds, check_group(at, group, group_before, ends))


def check_group(at: Round, group: GroupReader, before: list[int], ends: dict[int, int]) -> int:
    """Check where the group goes on at the target; returns how many messages it gets again."""
    here = committed(at.clusters.target.bootstrap, at.topic, GROUP, PARTITIONS)
    for index, offset in enumerate(here):
        assert before[index] <= offset, f"the group was at {before[index]} of partition {index} and is at {offset}"
        assert offset <= min(group.handled[index], ends[index]), f"partition {index}: the group misses messages"
    again = read(at.clusters.target.bootstrap, at.topic, here, ends)
    assert set(again) == {(index, offset) for index in ends for offset in range(here[index], ends[index])}
    return sum(1 for index, offset in again if offset < group.handled[index])


def mirrored_end(side: Region, topic: str, partition: int) -> int:
    """The offset of the first control batch, which ends what is copied: the load has no transactions."""

    def found() -> list[int]:
        return [header.base_offset for _, header in log_of(side, topic, partition)[1] if header.attributes & _CONTROL]

    return until(found, f"{topic}-{partition} has a reset marker")[0]


def mirrored_bytes(side: Region, topic: str, partition: int, end: int) -> bytes:
    """All batches below an offset, as they are on the disk of a broker."""

    def has_all() -> bool:
        _, batches = log_of(side, topic, partition)
        return end == 0 or any(header.next_offset >= end for _, header in batches)

    until(has_all, f"{topic}-{partition} reaches {end}")
    data, batches = log_of(side, topic, partition)
    return data[: max((at + header.size for at, header in batches if header.next_offset <= end), default=0)]


def log_of(side: Region, topic: str, partition: int) -> tuple[bytes, list[tuple[int, Any]]]:
    return replica(side, topic, partition, BROKERS[0])


def replica(side: Region, topic: str, partition: int, broker_id: int) -> tuple[bytes, list[tuple[int, Any]]]:
    """The bytes of a partition on the disk of a broker, and the batches in them with their positions."""
    files = sorted((side.brokers[broker_id].data_dir / f"{topic}-{partition}").glob("*.log"))
    data = b"".join(file.read_bytes() for file in files)
    return data, list(iter_headers(data))


def create(side: Region, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, len(BROKERS))])[topic].result(60)


def delete(side: Region, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    admin.delete_topics([topic], operation_timeout=60)[topic].result(60)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_network_between_two_clusters_is_cut_until_the_source_is_lost(
    tmp_path: Path, say: Callable[[str], None]
) -> None:
    say(f"FAULT_SEED={SEED} FAULT_EPISODES={ROUNDS}")
    with LinkedClusters(tmp_path, SETTINGS) as clusters:
        losses = [
            run_round(clusters, number, Random(f"{SEED}-{number}"), say, FAULTS_OF_A_ROUND)
            for number in range(1, ROUNDS + 1)
        ]
    known = [loss for loss in losses if loss.said is not None]
    say(
        f"{len(losses)} rounds: {sum(loss.really for loss in losses):,} missing in all, what failovers said was known "
        f"in {len(known)}; at most {max(loss.duplicates for loss in losses):,} messages again for a group"
    )
    assert known, "no failover said how much is missing"
