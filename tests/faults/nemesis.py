"""What is done to a cluster. Each fault lasts for a while and says to whom it was done.

What it stops and cuts is started and healed again by `Testbed.recover`, which comes after every one.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from headrace.testing.checkers import POWER_CUT
from headrace.testing.histories import Recorder
from tests.faults.mounts import stop_all
from tests.faults.networks import CLIENTS
from tests.faults.strace import failing_syncs
from tests.faults.testbed import BROKERS, CLOCK, DISKS, NETWORK, STRACE, Testbed, node

MOVED_WITHIN_S = 60.0


class Clients(Protocol):
    """The clients, as far as faults are concerned."""

    def kill_one(self, rng: Random) -> str:
        """SIGKILL to some, and successors for them: to whom it was done."""
        ...


@dataclass
class Scene:
    """What a fault may use."""

    bed: Testbed
    clients: Clients
    places: Sequence[tuple[str, int]]
    """The partitions that it is about."""
    rng: Random
    record: Recorder
    flipped: set[tuple[int, str]] = field(default_factory=set)
    """Brokers, and the partitions of which they have a copy with a wrong bit."""

    def any_broker(self) -> int:
        return self.rng.choice(BROKERS)

    def some_leader(self) -> tuple[int, tuple[str, int]]:
        """A broker that leads a partition, and that partition."""
        where = self.rng.choice(self.places)
        leader = self.bed.leader(*where)
        return (leader if leader > 0 else self.any_broker()), where

    def await_moved(self, where: tuple[str, int], former: int) -> None:
        """Wait until another broker leads; after a while go on all the same, for the cluster may not be able to."""
        end = time.monotonic() + MOVED_WITHIN_S
        while time.monotonic() < end and self.bed.leader(*where, not_by=former) in (former, -1):
            time.sleep(0.1)

    def hold(self, least_s: float = 0.5, most_s: float = 3.0) -> None:
        """Let it last for a while."""
        time.sleep(self.rng.uniform(least_s, most_s))


Fault = Callable[[Scene], str]


def kill_leader(scene: Scene) -> str:
    leader, where = scene.some_leader()
    scene.bed.cluster.kill(leader)
    scene.await_moved(where, leader)
    return f"broker {leader}"


def kill_and_start_at_once(scene: Scene) -> str:
    """It is back before anybody has missed it."""
    leader, _ = scene.some_leader()
    scene.bed.cluster.kill(leader)
    scene.bed.start_stopped()
    return f"broker {leader}"


def kill_two(scene: Scene) -> str:
    """One after the other, so that the last one is alone in sync for some partitions."""
    victims = scene.rng.sample(BROKERS, 2)
    for broker_id in victims:
        scene.bed.cluster.kill(broker_id)
        scene.hold(0.0, 2.0)
    scene.hold(1.0, scene.bed.session_s + 2)
    return f"brokers {victims}"


def kill_all(scene: Scene) -> str:
    for broker_id in scene.rng.sample(BROKERS, len(BROKERS)):
        scene.bed.cluster.kill(broker_id)
    scene.hold(0.0, scene.bed.session_s + 1)
    return "all brokers"


def stop_and_start(scene: Scene) -> str:
    leader, _ = scene.some_leader()
    scene.bed.cluster.stop(leader)
    return f"broker {leader}"


def stop(broker_id: int) -> Fault:
    def stop_this(scene: Scene) -> str:
        return f"exit code {scene.bed.cluster.stop(broker_id)}"

    return stop_this


def pause(scene: Scene) -> str:
    """A leader hangs until long after its lease has ended, and goes on where it was."""
    leader, where = scene.some_leader()
    scene.bed.cluster.pause(leader)
    scene.await_moved(where, leader)
    scene.hold(0.5, 2.0)
    return f"broker {leader}"


def pause_kill_swap(scene: Scene) -> str:
    """A leader hangs; when another one leads, that one is killed, and the first goes on and finds that out."""
    leader, where = scene.some_leader()
    cluster = scene.bed.cluster
    cluster.pause(leader)
    scene.await_moved(where, leader)
    successor = scene.bed.leader(*where, not_by=leader)
    if successor > 0 and successor != leader:
        cluster.kill(successor)
    cluster.resume(leader)
    scene.hold(1.0, scene.bed.session_s + 1)
    return f"broker {leader}, then {successor}"


def kill_etcd(scene: Scene) -> str:
    scene.bed.cluster.etcd.kill()
    scene.hold(1.0, 2 * scene.bed.session_s)
    return "etcd"


def pause_etcd(scene: Scene) -> str:
    scene.bed.cluster.etcd.pause()
    try:
        scene.hold(1.0, 2 * scene.bed.session_s)
    finally:
        scene.bed.cluster.etcd.resume()
    return "etcd"


def kill_client(scene: Scene) -> str:
    return scene.clients.kill_one(scene.rng)


def _cut(scene: Scene, source: str, target: str, *, both_ways: bool = True) -> None:
    assert scene.bed.network is not None
    scene.bed.network.cut(source, target, both_ways=both_ways)


def cut_from_etcd(scene: Scene) -> str:
    """Only from etcd: a leader that clients and followers still reach."""
    leader, where = scene.some_leader()
    _cut(scene, node(leader), "etcd")
    scene.await_moved(where, leader)
    scene.hold(0.5, 2.0)
    return f"broker {leader}"


def cut_from_etcd_one_way(scene: Scene) -> str:
    leader, where = scene.some_leader()
    ends = scene.rng.choice([(node(leader), "etcd"), ("etcd", node(leader))])
    _cut(scene, *ends, both_ways=False)
    scene.await_moved(where, leader)
    return " to ".join(ends)


def cut_from_brokers(scene: Scene) -> str:
    """A leader whose followers hear nothing of it, though it has its lease."""
    leader, _ = scene.some_leader()
    for other in BROKERS:
        if other != leader:
            _cut(scene, node(leader), node(other))
    scene.hold(2.0, 6.0)
    return f"broker {leader}"


def cut_pair(scene: Scene) -> str:
    """Two brokers from each other, one way or both."""
    one, other = scene.rng.sample(BROKERS, 2)
    both_ways = scene.rng.random() < 0.5
    _cut(scene, node(one), node(other), both_ways=both_ways)
    scene.hold(2.0, 6.0)
    return f"broker {one} {'and' if both_ways else 'to'} {other}"


def isolate(scene: Scene) -> str:
    """From everybody, clients included."""
    leader, where = scene.some_leader()
    assert scene.bed.network is not None
    scene.bed.network.isolate(node(leader))
    scene.await_moved(where, leader)
    return f"broker {leader}"


def isolate_with_clients(scene: Scene) -> str:
    """From etcd and the other brokers, on the side of the clients."""
    leader, _ = scene.some_leader()
    assert scene.bed.network is not None
    scene.bed.network.isolate(node(leader), but=(CLIENTS,))
    scene.hold(scene.bed.session_s + 1, scene.bed.session_s + 3)
    return f"broker {leader}"


def cut_from_clients(scene: Scene) -> str:
    leader, _ = scene.some_leader()
    _cut(scene, node(leader), CLIENTS, both_ways=scene.rng.random() < 0.5)
    scene.hold(1.0, 4.0)
    return f"broker {leader}"


def _cut_power(scene: Scene, names: list[str]) -> None:
    """The processes stop, then the disks take nothing any more, then what was not synced is gone."""
    bed = scene.bed
    writers = {node(broker_id): bed.cluster.brokers[broker_id] for broker_id in BROKERS} | {"etcd": bed.cluster.etcd}
    stop_all(writers[name].pid for name in names)
    for name in names:
        bed.disks[name].cut_power()
    scene.record.note(POWER_CUT, ", ".join(names))
    if "etcd" in names:
        bed.cluster.etcd.kill()
    for broker_id in BROKERS:
        if node(broker_id) in names:
            bed.cluster.kill(broker_id)
    for name in names:
        bed.disks[name].unmount()
        bed.disks[name].mount()


def power_cut_of_one(scene: Scene) -> str:
    leader, where = scene.some_leader()
    _cut_power(scene, [node(leader)])
    scene.await_moved(where, leader)
    return f"broker {leader}"


def power_cut_of_two(scene: Scene) -> str:
    victims = scene.rng.sample(BROKERS, 2)
    _cut_power(scene, list(map(node, victims)))
    scene.hold(0.0, scene.bed.session_s)
    return f"brokers {victims}"


def power_cut_of_all(scene: Scene) -> str:
    _cut_power(scene, ["etcd", *map(node, BROKERS)])
    return "everything"


def full_disk(scene: Scene) -> str:
    leader, _ = scene.some_leader()
    ballast = scene.bed.disks[node(leader)].folder / "ballast"
    status = os.statvfs(ballast.parent)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, status.f_bavail * status.f_frsize))
    try:
        scene.hold(1.0, 4.0)
    finally:
        ballast.unlink()
    return f"broker {leader}"


def failed_sync(scene: Scene) -> str:
    """A disk fails to sync, once and then always: the broker gives up what it leads, and is then replaced."""
    leader, where = scene.some_leader()
    try:
        with failing_syncs(scene.bed.cluster.brokers[leader].pid):
            scene.await_moved(where, leader)
    except pytest.skip.Exception as reason:
        return f"not possible: {reason}"
    scene.bed.cluster.kill(leader)
    return f"broker {leader}"


def flipped_bit(scene: Scene) -> str:
    """One bit of a closed segment of one broker, while it is down."""
    broker_id = scene.any_broker()
    scene.bed.cluster.kill(broker_id)
    segment = _flip(scene, broker_id)
    return f"broker {broker_id}: {segment}"


def _flip(scene: Scene, broker_id: int) -> str:
    data_dir = scene.bed.data_dir(broker_id)
    closed: list[Path] = []
    for topic, partition in scene.places:
        closed += sorted((data_dir / f"{topic}-{partition}").glob("*.log"))[:-1]
    if not closed:
        return "nothing is closed yet"
    segment = scene.rng.choice(closed)
    with segment.open("r+b") as file:
        at = scene.rng.randrange(segment.stat().st_size)
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ (1 << scene.rng.randrange(8))]))
        file.flush()
        os.fsync(file.fileno())
    scene.flipped.add((broker_id, segment.parent.name))
    return f"{segment.parent.name}/{segment.name} at {at}"


def clock_jump(scene: Scene) -> str:
    broker_id, ahead_s = scene.any_broker(), scene.rng.choice([-7200, -60, 60, 7200])
    scene.bed.set_clock(broker_id, ahead_s)
    scene.hold(2.0, 4.0)
    scene.bed.set_clock(broker_id, 0)
    return f"broker {broker_id} by {ahead_s} s"


FAULTS: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "kill leader": (kill_leader, ()),
    "kill and start at once": (kill_and_start_at_once, ()),
    "kill two": (kill_two, ()),
    "kill all": (kill_all, ()),
    "stop": (stop_and_start, ()),
    "pause": (pause, ()),
    "pause, kill, swap": (pause_kill_swap, ()),
    "kill etcd": (kill_etcd, ()),
    "pause etcd": (pause_etcd, ()),
    "kill client": (kill_client, ()),
    "cut from etcd": (cut_from_etcd, (NETWORK,)),
    "cut from etcd, one way": (cut_from_etcd_one_way, (NETWORK,)),
    "cut from brokers": (cut_from_brokers, (NETWORK,)),
    "cut a pair": (cut_pair, (NETWORK,)),
    "isolate": (isolate, (NETWORK,)),
    "isolate with clients": (isolate_with_clients, (NETWORK,)),
    "cut from clients": (cut_from_clients, (NETWORK,)),
    "power cut of one": (power_cut_of_one, (DISKS,)),
    "power cut of two": (power_cut_of_two, (DISKS,)),
    "power cut of all": (power_cut_of_all, (DISKS,)),
    "full disk": (full_disk, (DISKS,)),
    "failed sync": (failed_sync, (STRACE,)),
    "flipped bit": (flipped_bit, ()),
    "clock jump": (clock_jump, (CLOCK,)),
}
"""Each with what the testbed must have for it."""
ROLLING: dict[str, tuple[Fault, tuple[str, ...]]] = {f"stop broker {one}": (stop(one), ()) for one in BROKERS}


def possible(bed: Testbed) -> list[str]:
    return [name for name, (_, needs) in FAULTS.items() if not any(need in bed.lacks for need in needs)]
