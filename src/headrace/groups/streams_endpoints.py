"""The endpoints of a streams group for interactive queries, with their partitions (KIP-1071). Pure.

Responses to members list the endpoints of all members that have one. The epoch of the list is a hash of it: it changes
when the list does, and is the same after a restart.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from headrace.groups.streams_member import StreamsMember
from headrace.groups.streams_records import TopologyValue
from headrace.groups.streams_tasks import Tasks
from headrace.groups.streams_topology import Configured, read_topics

TopicPartitions = tuple[tuple[str, tuple[int, ...]], ...]


class EndpointPartitions(NamedTuple):
    host: str
    port: int
    active: TopicPartitions
    standby: TopicPartitions


def endpoints(
    members: Iterable[StreamsMember], topology: TopologyValue, configured: Configured
) -> tuple[EndpointPartitions, ...]:
    """Return the partitions in the state stores of each process. Members of a process share one endpoint."""
    active: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    standby: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    reads = {one.subtopology_id: tuple(read_topics(one)) for one in topology.subtopologies}
    for member in members:
        if member.about.endpoint is not None:
            active[member.about.endpoint].update(_partitions(member.assigned.active, reads, configured.counts))
            standby[member.about.endpoint].update(_partitions(member.assigned.standby, reads, configured.counts))
    return tuple(
        EndpointPartitions(*endpoint, _by_topic(active[endpoint]), _by_topic(standby[endpoint]))
        for endpoint in sorted(active)
    )


def endpoints_epoch(known: tuple[EndpointPartitions, ...]) -> int:
    """Return the epoch of a list of endpoints. Never negative: members without a list send -1."""
    if not known:
        return 0
    return int.from_bytes(blake2b(repr(known).encode(), digest_size=4).digest()) & 0x7FFF_FFFF


def _partitions(
    tasks: Tasks, reads: Mapping[str, tuple[str, ...]], counts: Mapping[str, int]
) -> Iterable[tuple[str, int]]:
    for task in tasks:
        for topic in reads.get(task.subtopology, ()):
            if task.partition < counts.get(topic, 0):
                yield topic, task.partition


def _by_topic(partitions: set[tuple[str, int]]) -> TopicPartitions:
    found: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        found[topic].append(partition)
    return tuple((topic, tuple(indexes)) for topic, indexes in found.items())
