"""The records of a streams group (KIP-1071) in `__consumer_offsets`, at feature level 2 and above.

key                           value                      meaning
["group", group]              ["streams-1", …]           the group: its epochs, and the inputs of its target
["topology", group]           ["streams-topology-1", …]  the source, repartition and changelog topics
["member", group, member]     ["streams-member-1", …]    a member: its identity and its process
["target", group, member]     ["streams-target-1", …]    the target assignment of the member
["current", group, member]    ["streams-current-1", …]   the current assignment of the member, and tasks to revoke
"""

import msgspec

from headrace.groups.streams_tasks import StoredTasks


class TopologyKey(msgspec.Struct, array_like=True, frozen=True, tag="topology"):
    group: str


class InternalTopic(msgspec.Struct, array_like=True, frozen=True):
    """An internal topic (repartition or changelog) of the application, which the broker creates."""

    name: str
    partitions: int = 0
    """0 if it is derived from the source topics."""
    replication_factor: int = 0
    """0 for the broker's default."""
    settings: tuple[tuple[str, str], ...] = ()


class Subtopology(msgspec.Struct, array_like=True, frozen=True):
    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    changelog_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[tuple[str, ...], ...] = ()
    """Names of topics that must have the same number of partitions."""


class TopologyValue(msgspec.Struct, array_like=True, frozen=True, tag="streams-topology-1"):
    epoch: int
    subtopologies: tuple[Subtopology, ...]


class StreamsValue(msgspec.Struct, array_like=True, frozen=True, tag="streams-1"):
    epoch: int = 1
    """Incremented whenever members, the topology, its topics or the number of standbys change."""
    target_epoch: int = 1
    """The epoch for which the target assignment was computed."""
    topics_hash: bytes = b""
    """A hash of the ids and partition counts of the topics of the topology, to detect changes."""
    is_ready: bool = False
    """Whether all topics of the topology exist with matching partition counts: otherwise no tasks are assigned."""
    standby_replicas: int = 0


class StreamsMemberValue(msgspec.Struct, array_like=True, frozen=True, tag="streams-member-1"):
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    """Members with the same process id share a state directory."""
    endpoint: tuple[str, int] | None = None
    """Host and port for interactive queries."""
    tags: tuple[tuple[str, str], ...] = ()


class StreamsTargetValue(msgspec.Struct, array_like=True, frozen=True, tag="streams-target-1"):
    active: StoredTasks
    standby: StoredTasks


class StreamsCurrentValue(msgspec.Struct, array_like=True, frozen=True, tag="streams-current-1"):
    epoch: int
    previous_epoch: int
    phase: str
    active: StoredTasks
    standby: StoredTasks
    revoking_active: StoredTasks
    revoking_standby: StoredTasks
    since: tuple[tuple[int, StoredTasks], ...] = ()
    """Its active tasks by the epoch at which it got them."""


StreamsGroupValue = StreamsValue | TopologyValue | StreamsMemberValue | StreamsTargetValue | StreamsCurrentValue
