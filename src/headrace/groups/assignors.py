"""Server-side assignors of consumer groups (KIP-848) and share groups (KIP-932). Pure.

Every assignor is deterministic. It assigns every partition of a subscribed topic to exactly one of the topic's
subscribers, and nothing else.

- `uniform` balances partitions and is sticky: no member has two partitions more than another one that could take one of
  them, and as few partitions move as possible. Members may subscribe to different topics.
- `range` assigns each subscriber of a topic a contiguous range of its partitions, so that members that subscribe to two
  topics with the same number of partitions get the same partitions of both. Members are ordered by instance id, or by
  member id if they have none: a static member that restarts gets the same range.

`assign_shared` is for share groups, where several members may have the same partition.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple
from uuid import UUID


class TopicIdPartition(NamedTuple):
    """One partition of one incarnation of a topic."""

    topic_id: UUID
    partition: int


Assignment = frozenset[TopicIdPartition]
"""The partitions of one member."""


class Subscriber(NamedTuple):
    topics: frozenset[UUID]
    held: Assignment = frozenset()
    """Its previous assignment."""
    instance_id: str | None = None


Assignor = Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], dict[str, Assignment]]
"""Computes the assignment of each member from the members by id and the partition count of each topic."""


def assign_range(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    order = sorted(members, key=lambda member_id: (members[member_id].instance_id or member_id, member_id))
    assigned: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
    for topic_id, subscribers in _subscribers(order, members, partition_counts).items():
        share, extra = divmod(partition_counts[topic_id], len(subscribers))
        at = 0
        for number, member_id in enumerate(subscribers):
            size = share + (number < extra)
            assigned[member_id].update(TopicIdPartition(topic_id, partition) for partition in range(at, at + size))
            at += size
    return {member_id: frozenset(places) for member_id, places in assigned.items()}


def assign_uniform(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Retain valid assignments, assign free partitions to the least loaded members, then balance the loads.

    Topics with the same subscribers are one pool. A partition moves only if the giver is left with no fewer than the
    taker, so the sum of squares of the loads falls with every move: the loop terminates.
    """
    pools = _pools(members, partition_counts)
    owned: dict[str, dict[int, list[TopicIdPartition]]] = {member_id: defaultdict(list) for member_id in members}
    loads = dict.fromkeys(members, 0)
    free = _retain_assignments(members, pools, owned, loads)
    # Pools with few subscribers first: the others have more members to balance with.
    by_choice = sorted(range(len(pools)), key=lambda number: (len(pools[number].subscribers), number))
    for number in by_choice:
        _give(pools[number].subscribers, free[number], number, owned, loads)
    while any(_even_out(pools[number].subscribers, number, owned, loads) for number in by_choice):
        pass
    return {
        member_id: frozenset(place for places in by_pool.values() for place in places)
        for member_id, by_pool in owned.items()
    }


def assign_shared(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Assign partitions as `uniform` does, then assign a shared partition to each member left without one.

    Members are left without one where there are more members than partitions. As a result every partition has a member,
    every member whose topics exist has a partition, and shared partitions have balanced numbers of members.
    """
    assigned = assign_uniform(members, partition_counts)
    crowds: dict[TopicIdPartition, int] = defaultdict(int)
    for places in assigned.values():
        for place in places:
            crowds[place] += 1
    left_out = [member_id for member_id in sorted(members) if not assigned[member_id]]
    # Members with a previous assignment choose first, and retain it if no candidate has fewer members.
    for member_id in sorted(left_out, key=lambda member_id: not members[member_id].held):
        topics = sorted(topic_id for topic_id in members[member_id].topics if topic_id in partition_counts)
        candidates = [TopicIdPartition(topic_id, at) for topic_id in topics for at in range(partition_counts[topic_id])]
        if candidates:
            held = members[member_id].held
            place = min(candidates, key=lambda place: (crowds[place], place not in held, place))
            crowds[place] += 1
            assigned[member_id] = frozenset([place])
    return assigned


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


class _Pool(NamedTuple):
    """Topics with the same set of subscribers."""

    subscribers: tuple[str, ...]
    topics: tuple[UUID, ...]
    places: frozenset[TopicIdPartition]


def _subscribers(
    order: Iterable[str], members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]
) -> dict[UUID, list[str]]:
    """The subscribers of each topic that exists, in this order."""
    subscribers: dict[UUID, list[str]] = defaultdict(list)
    for member_id in order:
        for topic_id in members[member_id].topics:
            if topic_id in partition_counts:
                subscribers[topic_id].append(member_id)
    return subscribers


def _pools(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> list[_Pool]:
    topics: dict[tuple[str, ...], list[UUID]] = defaultdict(list)
    by_topic = _subscribers(sorted(members), members, partition_counts)
    for topic_id in sorted(by_topic):
        topics[tuple(by_topic[topic_id])].append(topic_id)
    return [
        _Pool(
            subscribers,
            tuple(pooled),
            frozenset(
                TopicIdPartition(topic_id, at) for topic_id in pooled for at in range(partition_counts[topic_id])
            ),
        )
        for subscribers, pooled in topics.items()
    ]


def _retain_assignments(
    members: Mapping[str, Subscriber],
    pools: list[_Pool],
    owned: dict[str, dict[int, list[TopicIdPartition]]],
    loads: dict[str, int],
) -> list[list[TopicIdPartition]]:
    """Retain previous assignments that are still valid. Returns the unassigned partitions by pool."""
    pool_of = {topic_id: number for number, pool in enumerate(pools) for topic_id in pool.topics}
    taken: set[TopicIdPartition] = set()
    for member_id in sorted(members):
        subscriber = members[member_id]
        for place in sorted(subscriber.held):
            number = pool_of.get(place.topic_id)
            if (
                number is not None
                and place.topic_id in subscriber.topics
                and place in pools[number].places
                and place not in taken
            ):
                taken.add(place)
                owned[member_id][number].append(place)
                loads[member_id] += 1
    return [sorted(pool.places - taken) for pool in pools]


def _give(
    subscribers: tuple[str, ...],
    free: list[TopicIdPartition],
    number: int,
    owned: dict[str, dict[int, list[TopicIdPartition]]],
    loads: dict[str, int],
) -> None:
    if not free:
        return
    least = [(loads[member_id], member_id) for member_id in subscribers]
    heapify(least)
    for place in free:
        load, member_id = heappop(least)
        owned[member_id][number].append(place)
        loads[member_id] = load + 1
        heappush(least, (load + 1, member_id))


def _even_out(
    subscribers: tuple[str, ...],
    number: int,
    owned: dict[str, dict[int, list[TopicIdPartition]]],
    loads: dict[str, int],
) -> bool:
    """Move partitions of one pool until no subscriber has two more than another. Returns whether any moved."""
    moved = False
    least = [(loads[member_id], member_id) for member_id in subscribers]
    most = [(-loads[member_id], member_id) for member_id in subscribers if owned[member_id][number]]
    heapify(least)
    heapify(most)
    while least and most:
        low, taker = least[0]
        high, giver = -most[0][0], most[0][1]
        # Heap entries that are stale because a member's load changed are dropped when they reach the top.
        if low != loads[taker]:
            heappop(least)
        elif high != loads[giver] or not owned[giver][number]:
            heappop(most)
        elif high - low < 2:
            break
        else:
            owned[taker][number].append(owned[giver][number].pop())
            loads[giver], loads[taker] = high - 1, low + 1
            for member_id in (giver, taker):
                heappush(least, (loads[member_id], member_id))
                heappush(most, (-loads[member_id], member_id))
            moved = True
    return moved
