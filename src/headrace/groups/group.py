"""What every group is, whatever protocol its members speak, and what it wants done.

A group is of one kind: classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071). Classic ones may become
consumer groups while they have members, and the other way round. The machine keeps all behind this interface: committed
offsets, listing, deleting and expiry do not care which. Groups are pure: told what happened and what time it is, they
change their own soft state (who waits, who is late) and return effects; what must outlast a restart is in the records
of a `Write`, and the group that a restart finds is the one that these records describe.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from headrace.coordinator.result import Result
from headrace.groups.assignors import Assignment
from headrace.groups.records import GroupRecord, OffsetValue
from headrace.groups.streams_records import InternalTopic
from headrace.model.image import ClusterImage
from headrace.runtime.deferred import Deferred

JOIN, LEAVE = 0, -1
"""Member epochs with a meaning of their own, in heartbeats of consumer, share and streams groups."""


class Now(NamedTuple):
    ms: float
    """Monotonic: for deadlines."""
    wall_ms: int
    """By the wall clock: for what is stored."""


class Beat(NamedTuple):
    """What a member of a consumer or share group is told when it has sent a heartbeat."""

    member_id: str
    epoch: int
    assignment: Assignment | None = None
    """What it may read, or take records of, from now on; None if that did not change."""


class Answer(NamedTuple):
    """Tell somebody who waits."""

    waiter: Deferred[Any]
    result: Result[Any]


class Write(NamedTuple):
    """Write these records, and give the answers once they and everything before them are committed."""

    records: Sequence[GroupRecord]
    answers: Sequence[Answer] = ()


class Convert(NamedTuple):
    """The group is this one from now on; comes behind the records that say so."""

    group: "Group"


class CreateTopics(NamedTuple):
    """Create the topics that a streams group needs. The group looks at what there is at its next heartbeats."""

    group_id: str
    topics: Sequence[InternalTopic]


Effects = list[Answer | Write | Convert | CreateTopics]


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """The settings `group.consumer.*` of a broker."""

    session_timeout_ms: int = 45_000
    own_session_timeout_ms: Callable[[str], int] | None = None
    """By group id, where groups may have settings of their own."""
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is for groups whose members ask for none."""
    can_upgrade: bool = True
    """Whether a classic group with members becomes a consumer group when a member of that protocol joins."""
    can_downgrade: bool = True
    """Whether a consumer group becomes a classic group when its last member of the consumer protocol is gone."""


@dataclass(frozen=True, slots=True)
class ShareMemberLimits:
    """The settings `group.share.*` of a broker, as far as they are about members."""

    session_timeout_of: Callable[[str], int] = lambda _: 45_000
    """By group id: groups may have settings of their own."""
    max_size: int = 200


@dataclass(frozen=True, slots=True)
class StreamsLimits:
    """The settings `group.streams.*` of a broker. Those by group id may be set for single groups."""

    session_timeout_of: Callable[[str], int] = lambda _: 45_000
    standby_replicas_of: Callable[[str], int] = lambda _: 0
    initial_delay_of: Callable[[str], int] = lambda _: 3_000
    max_size: int = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The group settings of a broker, see `docs/settings.md`."""

    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    new_member_timeout_ms: int = 300_000
    """How long a new member may wait in its first join: it cannot heartbeat yet, so nobody knows whether it lives."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    consumer: ConsumerLimits = ConsumerLimits()
    share: ShareMemberLimits = ShareMemberLimits()
    streams: StreamsLimits = StreamsLimits()


class Listed(NamedTuple):
    """A line of ListGroups."""

    group_id: str
    kind: str
    state: str
    protocol_type: str


class Group(Protocol):
    """What the machine and the service need of a group of any kind."""

    group_id: str

    @property
    def kind(self) -> str:
        """`classic`, `consumer`, `share` or `streams`."""
        ...

    @property
    def state_name(self) -> str:
        """As Kafka's tools show it."""
        ...

    @property
    def protocol_type(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and may be deleted."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether it has no members, nor anybody about to become one: without offsets it may be forgotten."""
        ...

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, now: Now
    ) -> None:
        """Refuse a commit by anybody but a current member, or a stranger where the group has no members."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse to show offsets to a member that is behind, where the client says which member it is."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of this topic are in use. `GroupNotEmpty` if nobody can tell."""
        ...

    def offset_base_ms(self, topic: str, value: OffsetValue) -> int | None:
        """When the retention of an offset began; None while it is in use."""
        ...

    def tombstones(self) -> Sequence[GroupRecord]:
        """The records that make a restart forget this group; offsets are not its business."""
        ...

    def start(self, now: Now) -> None:
        """It was loaded: deadlines start anew."""
        ...

    def next_deadline_ms(self) -> float | None:
        """When `expire` has something to do. May come earlier than that, never later."""
        ...

    def expire(self, image: ClusterImage, now: Now) -> Effects:
        """Do what is due."""
        ...

    def fail_waiters(self, error: Result[Any]) -> Effects:
        """This group is no longer ours, or its state is void: everybody who waits gets this."""
        ...
