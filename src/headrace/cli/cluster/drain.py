"""The work of `headrace cluster drain` and `undrain`: move all replicas off a broker, or allow replicas on it again.

A drain that cannot end is refused before anything is changed, with what would help. One that was begun is the cluster's
work: it goes on when the command is interrupted, and `headrace cluster status` shows it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.cli.cluster.moves import Situation, copied_bytes, largest_bytes
from headrace.cli.cluster.plans import ReplicaMove
from headrace.cli.cluster.transfer import Transfer
from headrace.cli.cluster.view import connected, named, stored
from headrace.cli.errors import CommandFailed
from headrace.cli.output import count, say
from headrace.wire import Cluster, Partition, PartitionInfo, Topic, WireError

DRAINING = "broker.draining"
_LOOK_EVERY_S = 0.5
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Obstacles:
    """The reasons why a broker cannot be drained."""

    lost: tuple[Partition, ...]
    """Partitions without a leader: there is no replica to copy from."""
    tight: tuple[Partition, ...]
    """Partitions that every other broker has already: no broker is left for this broker's replica."""


def obstacles(hosted: Mapping[Partition, PartitionInfo], others: set[int]) -> Obstacles:
    """`others` are the brokers that may get replicas."""
    lost = tuple(sorted(where for where, part in hosted.items() if part.leader < 0))
    tight = tuple(sorted(where for where, part in hosted.items() if part.leader >= 0 and others <= set(part.replicas)))
    return Obstacles(lost, tight)


def drain(bootstrap: str, broker_id: int, *, fewer_replicas: bool, wait: bool) -> None:
    """Let the cluster take everything from a broker, and give it nothing new."""
    with connected(bootstrap) as cluster:
        situation = Situation(cluster)
        _check_broker(situation, broker_id)
        hosted = _hosted(situation.topics, broker_id)
        others = set(situation.racks) - {broker_id}
        found = obstacles(hosted, others)
        _refuse(broker_id, found, others, fewer_replicas=fewer_replicas)
        dropped = {
            where: tuple(broker for broker in hosted[where].replicas if broker != broker_id) for where in found.tight
        }
        _begin(cluster, broker_id, dropped, was_draining=broker_id in situation.draining)
        if not wait:
            print(f"Broker {broker_id} is being drained; `headrace cluster status` shows how far it is")
            return
        total = sum(situation.size_bytes(where) for where in hosted if where not in dropped)
        try:
            _watch(cluster, broker_id, len(hosted), total)
        except KeyboardInterrupt:
            say(
                f"The cluster goes on with it: `headrace cluster status` shows it, "
                f"`headrace cluster undrain {broker_id}` ends it"
            )
            raise
    if situation.info.brokers[broker_id].is_fenced:
        print(f"Broker {broker_id} has no partitions any more, and the cluster forgets it, since it is away")
    else:
        print(f"Broker {broker_id} has no partitions any more and gets no new ones; it can be stopped")
        print(f"To keep it instead: headrace cluster undrain {broker_id}")


def _refuse(broker_id: int, found: Obstacles, others: set[int], *, fewer_replicas: bool) -> None:
    """`CommandFailed` where the drain could not end."""
    head = f"broker {broker_id} cannot be drained, and nothing was changed"
    if not others:
        raise CommandFailed(f"{head}: no other broker is active to take its partitions; start one")
    if found.lost:
        raise CommandFailed(
            f"{head}: no broker that is there has all of {_list(found.lost)}. Start a broker that had "
            f"{_them(found.lost)}, or delete the topics with `headrace topic delete`"
        )
    if found.tight and not fewer_replicas:
        raise CommandFailed(
            f"{head}: {_list(found.tight)} {_have(found.tight)} a replica on every other active broker, so none is "
            f"left to take this one. Start another broker, or let {_them(found.tight)} have one replica fewer with "
            f"`headrace cluster drain {broker_id} --fewer-replicas`"
        )


def _list(partitions: tuple[Partition, ...]) -> str:
    shown = ", ".join(map(named, partitions[:_SHOWN]))
    more = len(partitions) - _SHOWN
    return f"{shown} and {count(more, 'more partition')}" if more > 0 else shown


def _them(partitions: tuple[Partition, ...]) -> str:
    return "it" if len(partitions) == 1 else "them"


def _have(partitions: tuple[Partition, ...]) -> str:
    return "has" if len(partitions) == 1 else "have"


def _begin(
    cluster: Cluster, broker_id: int, dropped: Mapping[Partition, tuple[int, ...]], *, was_draining: bool
) -> None:
    """Mark the broker first: the cluster gives its internal topics the replicas again that they lack otherwise."""
    cluster.set_broker_settings(broker_id, {DRAINING: "true"})
    try:
        refused = cluster.reassign(dropped) if dropped else {}
        if refused:
            where, error = sorted(refused.items())[0]
            raise CommandFailed(f"broker {broker_id} is not drained: {named(where)} cannot be changed: {error}")
    except (CommandFailed, WireError):
        if not was_draining:
            cluster.set_broker_settings(broker_id, {DRAINING: None})
        raise


def _watch(cluster: Cluster, broker_id: int, count_total: int, bytes_total: int) -> None:
    with Transfer(f"draining broker {broker_id}", count_total, bytes_total) as shown:
        while True:
            left = list(_hosted(cluster.metadata(), broker_id))
            in_progress = cluster.reassignments()
            dirs = stored(cluster, cluster.describe())
            wanted = [
                ReplicaMove(where, (), tuple(in_progress[where].adding)) for where in left if where in in_progress
            ]
            left_bytes = sum(largest_bytes(dirs, where) for where in left) - copied_bytes(wanted, dirs)
            shown.update(len(left), max(0, left_bytes))
            if not left:
                return
            time.sleep(_LOOK_EVERY_S)


def undrain(bootstrap: str, broker_id: int) -> None:
    with connected(bootstrap) as cluster:
        _check_broker(Situation(cluster), broker_id)
        cluster.set_broker_settings(broker_id, {DRAINING: None})
    print(f"Broker {broker_id} gets partitions again; `headrace cluster rebalance --move` gives it its share")


def _check_broker(situation: Situation, broker_id: int) -> None:
    if broker_id not in situation.info.brokers:
        known = ", ".join(map(str, situation.info.brokers))
        raise CommandFailed(f"there is no broker {broker_id} in this cluster, only {known}")


def _hosted(topics: Mapping[str, Topic], broker_id: int) -> dict[Partition, PartitionInfo]:
    return {
        (name, part.partition): part
        for name, topic in topics.items()
        for part in topic.partitions
        if broker_id in part.replicas
    }
