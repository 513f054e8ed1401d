"""The work of `headrace cluster reassign`, `rebalance` and `throttle`: show a plan, apply it, watch it happen.

The cluster does the work. A command that is interrupted has changed nothing about that: what was begun goes on, and
`headrace cluster status` shows it.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.cli.cluster.plans import Racks, ReplicaMove, balanced, chosen, onto, with_factor
from headrace.cli.cluster.queue_moves import queue_ids
from headrace.cli.cluster.transfer import Transfer
from headrace.cli.cluster.view import connected, named, stored
from headrace.cli.errors import CommandFailed
from headrace.cli.output import count, human_bytes, say, table
from headrace.model.image import QUEUE_STATE_TOPIC
from headrace.wire import Cluster, ClusterInfo, LogDir, Partition, PartitionInfo, Topic, WireError

THROTTLES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LIMIT_STAYS = "The limit on its speed stays: `headrace cluster throttle off` takes it away"
_LOOK_EVERY_S = 0.5
_SHOWN = 40


class Situation:
    """A cluster as a plan sees it."""

    def __init__(self, cluster: Cluster) -> None:
        self.info: ClusterInfo = cluster.describe()
        self.topics: Mapping[str, Topic] = cluster.metadata()
        self.dirs = stored(cluster, self.info)
        self.draining = {
            broker_id for broker_id, dirs in self.dirs.items() if dirs and any(each.is_cordoned for each in dirs)
        }

    @property
    def parts(self) -> dict[Partition, PartitionInfo]:
        return {(name, part.partition): part for name, topic in self.topics.items() for part in topic.partitions}

    @property
    def racks(self) -> Racks:
        """The brokers that may get replicas."""
        return {
            broker_id: node.rack
            for broker_id, node in self.info.brokers.items()
            if not node.is_fenced and broker_id not in self.draining
        }

    @property
    def load(self) -> Counter[int]:
        return Counter(broker for part in self.parts.values() for broker in part.replicas)

    def size_bytes(self, partition: Partition) -> int:
        """What the largest replica of a partition has, which is what a new one will have to copy."""
        sizes = (each.replicas.get(partition) for dirs in self.dirs.values() for each in dirs or ())
        return max((replica.size_bytes for replica in sizes if replica is not None), default=0)


# -- reassign


def reassign(
    bootstrap: str,
    targets: Sequence[str] | None,
    *,
    replicas: tuple[int, ...] | None,
    factor: int | None,
    throttle_bytes: int | None,
    dry_run: bool,
    wait: bool,
) -> None:
    with connected(bootstrap) as cluster:
        situation = Situation(cluster)
        parts = chosen(targets, situation.topics)
        if replicas is not None:
            moves = onto(parts, replicas, situation.info.brokers)
        else:
            moves = with_factor(parts, factor or 1, situation.racks, situation.load)
        if not moves:
            print(f"Nothing to do: {count(len(parts), 'partition')} are where they should be already")
            return
        _show(moves, situation)
        if dry_run:
            print("\nThis is a plan only: without --dry-run it is carried out")
            return
        _apply(cluster, moves, situation, throttle_bytes=throttle_bytes, wait=wait)


def cancel(bootstrap: str, targets: Sequence[str] | None) -> None:
    with connected(bootstrap) as cluster:
        wanted = set(chosen(targets, cluster.metadata()))
        in_progress = wanted & set(cluster.reassignments())
        if not in_progress:
            print("Nothing to cancel: no reassignment of these is in progress")
            return
        _complain(cluster.reassign(dict.fromkeys(in_progress)), "cancelled")
        print(f"Cancelled: {count(len(in_progress), 'partition')} go back to the replicas they had")


# -- rebalance


def elect(bootstrap: str) -> None:
    """Leadership back to the first replica of every partition."""
    with connected(bootstrap) as cluster:
        before = _leaders(cluster)
        refused = cluster.elect_preferred()
        after = _leaders(cluster)
    changed = [where for where, leader in after.items() if before.get(where, leader) != leader]
    print(f"{count(len(changed), 'partition')} changed their leader")
    table(None, [("BROKER", "right"), ("LED", "right"), ("LEADS", "right")], _lead_rows(before, after))
    for where, error in sorted(refused.items())[:_SHOWN]:
        say(f"{named(where)}: {error}")


def _leaders(cluster: Cluster) -> dict[Partition, int]:
    return {
        (name, part.partition): part.leader
        for name, topic in cluster.metadata().items()
        for part in topic.partitions
        if part.leader >= 0
    }


def _lead_rows(before: Mapping[Partition, int], after: Mapping[Partition, int]) -> list[tuple[Any, ...]]:
    led, leads = Counter(before.values()), Counter(after.values())
    return [(broker, led[broker], leads[broker]) for broker in sorted({*led, *leads})]


def move(bootstrap: str, *, yes: bool, throttle_bytes: int | None, wait: bool) -> None:
    """Replicas spread evenly over the brokers, and queues led with their state; only shown unless `yes`."""
    with connected(bootstrap) as cluster:
        situation = Situation(cluster)
        busy = cluster.reassignments()
        parts = {where: part for where, part in situation.parts.items() if where not in busy}
        queues = queue_ids(cluster, situation.topics)
        state = situation.topics.get(QUEUE_STATE_TOPIC)
        moves = balanced(parts, situation.racks, queues, 0 if state is None else len(state.partitions))
        if busy:
            say(f"{count(len(busy), 'partition')} that are being reassigned now are left out")
        if not moves:
            print("Nothing to do: replicas and leaders are even, and queues are led with their state")
            return
        _show(moves, situation)
        if followed := [each for each in moves if each.partition[0] in queues and each.before[0] != each.after[0]]:
            print(f"{count(len(followed), 'queue')} will be led by the brokers that lead their state")
        if not yes:
            print("\nThis is a plan only: --yes carries it out")
            return
        _apply(cluster, moves, situation, throttle_bytes=throttle_bytes, wait=wait)


# -- carrying a plan out


def _show(moves: Sequence[ReplicaMove], situation: Situation) -> None:
    rows = [
        (
            named(each.partition),
            ",".join(map(str, each.before)),
            ",".join(map(str, each.after)),
            human_bytes(situation.size_bytes(each.partition) * len(each.adding)) if each.adding else "-",
        )
        for each in moves[:_SHOWN]
    ]
    table(None, [("PARTITION", "left"), ("NOW", "left"), ("THEN", "left"), ("TO COPY", "right")], rows)
    if len(moves) > _SHOWN:
        print(f"… and {len(moves) - _SHOWN:,} more")
    total = sum(situation.size_bytes(each.partition) * len(each.adding) for each in moves)
    copies = sum(len(each.adding) for each in moves)
    what = f"{count(copies, 'new replica')}, {human_bytes(total)} to copy" if copies else "no data is copied"
    print(f"\n{count(len(moves), 'partition')}: {what}")


def _apply(
    cluster: Cluster, moves: Sequence[ReplicaMove], situation: Situation, *, throttle_bytes: int | None, wait: bool
) -> None:
    there = {broker_id for broker_id, node in situation.info.brokers.items() if not node.is_fenced}
    if away := {broker for each in moves for broker in each.adding} - there:
        say(f"Broker {', '.join(map(str, sorted(away)))} is away: this ends when it is there again")
    if throttle_bytes is not None:
        _throttle(cluster, throttle_bytes)
    refused = cluster.reassign({each.partition: each.after for each in moves})
    if throttle_bytes and len(refused) == len(moves):
        _throttle(cluster, 0)
    _complain(refused, "begun")
    if not wait:
        print("The cluster is at it; `headrace cluster status` shows how far it is")
        if throttle_bytes:
            print(_LIMIT_STAYS)
        return
    try:
        _watch(cluster, moves, situation)
    except KeyboardInterrupt:
        say("The cluster goes on with it: `headrace cluster status` shows it, `reassign --cancel` stops it")
        if throttle_bytes:
            say(_LIMIT_STAYS)
        raise
    if throttle_bytes:
        _throttle(cluster, 0)
    cluster.elect_preferred([each.partition for each in moves])
    print(f"Done: {count(len(moves), 'partition')} have their new replicas")


def _watch(cluster: Cluster, moves: Sequence[ReplicaMove], situation: Situation) -> None:
    total = sum(situation.size_bytes(each.partition) * len(each.adding) for each in moves)
    with Transfer("reassigning", len(moves), total) as shown:
        while True:
            in_progress = cluster.reassignments()
            left = [each for each in moves if each.partition in in_progress]
            if not left:
                break
            dirs = stored(cluster, situation.info)
            to_copy = sum(situation.size_bytes(each.partition) * len(each.adding) for each in left)
            shown.update(len(left), max(0, to_copy - copied_bytes(left, dirs)))
            time.sleep(_LOOK_EVERY_S)
    now = {where: part.replicas for where, part in Situation(cluster).parts.items()}
    undone = [each for each in moves if now.get(each.partition) not in (None, each.after)]
    if undone:
        raise CommandFailed(
            f"{count(len(undone), 'partition')} did not get there, {named(undone[0].partition)} for one: another "
            "reassignment or a cancel has replaced this one"
        )


def copied_bytes(moves: Iterable[ReplicaMove], dirs: Mapping[int, list[LogDir] | None]) -> int:
    """How much of what these moves copy is there already."""
    return sum(
        replica.size_bytes
        for each in moves
        for broker in each.adding
        for found in dirs.get(broker) or ()
        if (replica := found.replicas.get(each.partition)) is not None
    )


def largest_bytes(dirs: Mapping[int, list[LogDir] | None], partition: Partition) -> int:
    sizes = (found.replicas.get(partition) for each in dirs.values() for found in each or ())
    return max((replica.size_bytes for replica in sizes if replica is not None), default=0)


def _throttle(cluster: Cluster, rate_bytes: int) -> None:
    """A limit for the copies that reassignments make, on each broker; 0 takes it away."""
    cluster.set_broker_settings(None, {name: str(rate_bytes) if rate_bytes else None for name in THROTTLES})


def throttle(bootstrap: str, rate_bytes: int) -> None:
    with connected(bootstrap) as cluster:
        _throttle(cluster, rate_bytes)
    if rate_bytes:
        print(f"Each broker sends and fetches at most {human_bytes(rate_bytes)}/s for reassignments")
    else:
        print("Reassignments go as fast as they can")


def _complain(refused: Mapping[Partition, WireError], done: str) -> None:
    if refused:
        where, error = sorted(refused.items())[0]
        raise CommandFailed(f"{count(len(refused), 'reassignment')} were not {done}, {named(where)} for one: {error}")
