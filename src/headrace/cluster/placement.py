"""Replica placement: which brokers get a partition's replicas. Pure and deterministic.

Three rules, in order of priority:
1. replicas of a partition are on different brokers, and on as many racks as possible (a broker without a rack is a
   rack of its own), and within a rack on as many machines, where these are given;
2. leaders, then replicas, are balanced: within the topic first, then over the whole cluster;
3. among equals the broker with the highest *score* for this partition wins (rendezvous hashing). The score depends only
   on that broker and that partition, so a broker that joins or leaves moves nothing between the others.

`even_out` moves only replicas that a broker below its share is to get: at most its fair share of all replicas.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from headrace.model.ids import BrokerId, PartitionIndex, TopicName, TopicPartition

Racks = Mapping[BrokerId, str | None]
"""The brokers that may get replicas, and the rack of each."""

Machines = Mapping[BrokerId, str]
"""The machine of each broker that may share it with others; any other broker is on a machine of its own."""

Replicas = tuple[BrokerId, ...]
"""The replicas of one partition; the first is the preferred leader."""


def score(partition: TopicPartition, broker: BrokerId) -> int:
    """The rendezvous hash of a partition and a broker."""
    return int.from_bytes(blake2b(f"{partition}@{broker}".encode(), digest_size=8).digest(), "big")


class _Loads:
    """Leaders and replicas per broker, of one topic and of the whole cluster."""

    def __init__(self, topic: Iterable[Replicas], cluster: Mapping[BrokerId, int]) -> None:
        self.leaders: Counter[BrokerId] = Counter()
        self.replicas: Counter[BrokerId] = Counter()
        self.cluster = Counter(cluster)
        for replicas in topic:
            self.leaders.update(replicas[:1])
            self.replicas.update(replicas)

    def add(self, replicas: Replicas) -> None:
        self.leaders.update(replicas[:1])
        self.replicas.update(replicas)
        self.cluster.update(replicas)


def place(
    racks: Racks,
    topic: TopicName,
    count: int,
    replication_factor: int,
    *,
    existing: Sequence[Replicas] = (),
    load: Mapping[BrokerId, int] | None = None,
    machines: Machines | None = None,
) -> list[Replicas]:
    """Place `count` more partitions of a topic that has `existing` ones; `racks` needs at least as many brokers as
    the replication factor.

    `load` is the number of replicas on each broker, over the whole cluster.
    """
    loads = _Loads(existing, load or {})
    placed: list[Replicas] = []
    for index in range(len(existing), len(existing) + count):
        partition = TopicPartition(topic, PartitionIndex(index))
        scores = {broker: score(partition, broker) for broker in racks}
        leader = min(
            racks,
            key=lambda broker: (
                loads.leaders[broker],
                loads.replicas[broker],
                loads.cluster[broker],
                -scores[broker],
            ),
        )
        replicas: Replicas = (leader,)
        while len(replicas) < replication_factor:
            replicas += (_next(racks, replicas, loads, scores, machines),)
        loads.add(replicas)
        placed.append(replicas)
    return placed


def _next(
    racks: Racks,
    replicas: Sequence[BrokerId],
    loads: _Loads,
    scores: Mapping[BrokerId, int],
    machines: Machines | None = None,
) -> BrokerId:
    """The best broker for one more replica beside `replicas`."""
    used = rack_use(racks, replicas)
    machine_use = rack_use(machines or {}, replicas)
    return min(
        (broker for broker in racks if broker not in replicas),
        key=lambda broker: (
            used[_rack(racks, broker)],
            machine_use[_rack(machines or {}, broker)],
            loads.replicas[broker],
            loads.cluster[broker],
            -scores[broker],
        ),
    )


def rack_use(racks: Racks, replicas: Iterable[BrokerId]) -> Counter[str | BrokerId]:
    """The number of these replicas on each rack, or on each machine."""
    return Counter(_rack(racks, broker) for broker in replicas)


def _rack(racks: Racks, broker: BrokerId) -> str | BrokerId:
    return racks.get(broker) or broker


def replaced(
    racks: Racks, partition: TopicPartition, replicas: Replicas, leaving: BrokerId, load: Mapping[BrokerId, int]
) -> Replicas | None:
    """The replicas with `leaving` replaced by another broker; None if there is no other.

    `racks` may lack brokers that already have a replica: those stay, but get no new one.
    """
    staying = [broker for broker in replicas if broker != leaving]
    if all(broker in staying or broker == leaving for broker in racks):
        return None
    candidates = {broker: rack for broker, rack in racks.items() if broker != leaving}
    scores = {broker: score(partition, broker) for broker in candidates}
    successor = _next(candidates, staying, _Loads((), load), scores)
    return tuple(successor if broker == leaving else broker for broker in replicas)


def grown(
    racks: Racks,
    partition: TopicPartition,
    replicas: Replicas,
    replication_factor: int,
    load: Mapping[BrokerId, int],
    machines: Machines | None = None,
) -> Replicas:
    """The replicas with more appended, up to the replication factor or the number of brokers."""
    scores = {broker: score(partition, broker) for broker in racks}
    loads = _Loads((), load)
    while len(replicas) < replication_factor and not racks.keys() <= set(replicas):
        replicas += (_next(racks, replicas, loads, scores, machines),)
    return replicas


def even_out(
    racks: Racks,
    placed: Mapping[TopicPartition, Replicas],
    *,
    keeps_leaders: bool = False,
    others: Mapping[BrokerId, int] | None = None,
) -> dict[TopicPartition, Replicas]:
    """The partitions that need other replicas, or another replica order, to balance the brokers. With `keeps_leaders`
    the first replicas stay. `others` are the numbers of other replicas on the brokers, which stay as well.

    A broker below its share gets the partitions for which its score is highest, from brokers above theirs, and only
    where that does not reduce the number of racks. No replica moves between brokers that have their share. Preferred
    leaders are balanced by reordering replicas, which moves no data.
    """
    now = dict(placed)
    load = Counter(broker for replicas in now.values() for broker in replicas)
    load.update(others or {})
    share = sum(load[broker] for broker in racks) // len(racks) if racks else 0
    for receiver in sorted(racks, key=lambda broker: (load[broker], broker)):
        if load[receiver] >= share:
            break
        for partition in sorted(now, key=lambda partition: -score(partition, receiver)):
            if load[receiver] >= share:
                break
            replicas = now[partition]
            if receiver in replicas:
                continue
            givers = [
                broker
                for broker in (replicas[1:] if keeps_leaders else replicas)
                if broker in racks and load[broker] > share and _keeps_spread(racks, replicas, broker, receiver)
            ]
            if givers:
                giver = max(givers, key=lambda broker: (load[broker], -broker))
                now[partition] = tuple(receiver if broker == giver else broker for broker in replicas)
                load[giver] -= 1
                load[receiver] += 1
    if not keeps_leaders:
        _even_leaders(racks, now)
    return {partition: replicas for partition, replicas in now.items() if replicas != placed[partition]}


def _keeps_spread(racks: Racks, replicas: Replicas, giver: BrokerId, receiver: BrokerId) -> bool:
    before = rack_use(racks, replicas)
    after = rack_use(racks, [receiver if broker == giver else broker for broker in replicas])
    return len(after) >= len(before)


def _even_leaders(racks: Racks, now: dict[TopicPartition, Replicas]) -> None:
    """Reorder replicas until no preferred leader has more than one partition more than another of its replicas."""
    leads = Counter(replicas[0] for replicas in now.values())
    order = sorted(now, key=str)
    is_even = False
    while not is_even:  # Terminates: each change makes the sum of squares smaller.
        is_even = True
        for partition in order:
            replicas = now[partition]
            leader = replicas[0]
            heir = min(filter(racks.__contains__, replicas), key=lambda broker: (leads[broker], broker), default=leader)
            if leads[leader] > leads[heir] + 1:
                leads[leader] -= 1
                leads[heir] += 1
                now[partition] = (heir, *(broker for broker in replicas if broker != heir))
                is_even = False
