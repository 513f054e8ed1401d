"""The interface of a group of any kind, and the effects that it returns.

A group is of one kind: classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071). Classic groups may become
consumer groups while they have members, and vice versa. The machine and the service use all kinds through this
interface: the requests of the classic protocol, committed offsets, listing, deletion and expiry. Groups are pure:
called with an event and the time, they change their own soft state (waiters, deadlines) and return effects. Persisted
state is in the records of an `Outcome`: replaying them restores the same group.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.assignors import Assignment
from headrace.groups.classic_protocol import Joined, JoinRequest, Synced
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.groups.records import GroupRecord, Key, OffsetValue, Value
from headrace.groups.streams_records import InternalTopic
from headrace.model.errors import HeadraceError, InconsistentProtocol, UnknownMember
from headrace.model.image import ClusterImage
from headrace.runtime.deferred import Deferred

JOIN, LEAVE = 0, -1
"""Member epochs that mean a join or a leave, in heartbeats of consumer, share and streams groups."""


class Now(NamedTuple):
    ms: float
    """Monotonic: for deadlines."""
    wall_ms: int
    """By the wall clock: for stored times."""


class Beat(NamedTuple):
    """The response to a heartbeat of a consumer or share group."""

    member_id: str
    epoch: int
    assignment: Assignment | None = None
    """The member's assignment; None if it did not change."""


class Reply(NamedTuple):
    """The result of a waiting request."""

    waiter: Deferred[Any]
    result: Result[Any]


class Convert(NamedTuple):
    """Replace the group by this one, of another kind; comes after the records of the change."""

    group: "Group"


class CreateTopics(NamedTuple):
    """Create the internal topics of a streams group. The group checks for them at its next heartbeats."""

    group_id: str
    topics: Sequence[InternalTopic]


Effects = list[Reply | Outcome[GroupRecord, Sequence[Reply]] | Convert | CreateTopics]
"""The effects of a request, to apply in this order. A reply is sent at once; those of an outcome when its records,
and all records before them, are committed."""


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """The settings `group.consumer.*` of a broker."""

    session_timeout_ms: int = 45_000
    own_session_timeout_ms: Callable[[str], int] | None = None
    """The session timeout by group id, if groups may override it."""
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default, for groups whose members request none."""
    can_upgrade: bool = True
    """Whether a classic group with members is upgraded when a member of the consumer protocol joins."""
    can_downgrade: bool = True
    """Whether a consumer group is downgraded when its last member of the consumer protocol is gone."""


@dataclass(frozen=True, slots=True)
class ShareMemberLimits:
    """The settings `group.share.*` of a broker that concern members."""

    session_timeout_of: Callable[[str], int] = lambda _: 45_000
    """The session timeout by group id: groups may override it."""
    max_size: int = 200


@dataclass(frozen=True, slots=True)
class StreamsLimits:
    """The settings `group.streams.*` of a broker. Those with a group id as argument may be overridden per group."""

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
    """How long a new member may wait in its first join: it cannot heartbeat yet, so its liveness is unknown."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    consumer: ConsumerLimits = ConsumerLimits()
    share: ShareMemberLimits = ShareMemberLimits()
    streams: StreamsLimits = StreamsLimits()


class Listed(NamedTuple):
    """An entry of a ListGroups response."""

    group_id: str
    kind: str
    state: str
    protocol_type: str


class MemberView(NamedTuple):
    """A member of a group of any kind, to be shown."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: Mapping[str, Sequence[int]]
    """Partitions by topic; for a streams group active tasks by subtopology."""


class Group(ABC):
    """A group of any kind. By default it refuses the requests of the classic protocol."""

    kind: ClassVar[str]
    """`classic`, `consumer`, `share` or `streams`."""
    group_id: str
    is_hastened_by_heartbeats: ClassVar[bool] = False
    """Whether a heartbeat of the classic protocol may make `next_deadline_ms` earlier."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The name of its state, as Kafka's tools show it."""

    @property
    @abstractmethod
    def protocol_type(self) -> str: ...

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether it has no members and none is joining: without offsets it expires."""

    @property
    @abstractmethod
    def member_count(self) -> int: ...

    @abstractmethod
    def member_views(self, image: ClusterImage) -> list[MemberView]:
        """The members, with the partitions that they have now."""

    # -- records

    @abstractmethod
    def replay(self, key: Key, value: Value | None) -> None:
        """Apply a record of this group; None is a tombstone."""

    @abstractmethod
    def tombstones(self) -> Sequence[GroupRecord]:
        """Return the records that delete this group, without those of its offsets."""

    def forget_topics(self, topic_ids: Iterable[UUID]) -> Sequence[GroupRecord]:
        """Return the records that delete the group's state of deleted topics."""
        return ()

    # -- offsets

    @abstractmethod
    def check_commit(
        self, by: Committer, *, transactional: bool, now: Now, commits: Sequence[OffsetCommit] = ()
    ) -> None:
        """Refuse a commit unless it is by a current member, or by a non-member while the group is empty."""

    @abstractmethod
    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse an offset fetch by a member with a stale epoch, if the client identifies itself as a member."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to this topic. `GroupNotEmpty` if that cannot be determined."""

    @abstractmethod
    def offset_base_ms(self, topic: str, value: OffsetValue) -> int | None:
        """When the retention of an offset began; None while it is in use."""

    # -- the classic protocol

    @property
    def yields_to_classic(self) -> bool:
        """Whether a new classic group replaces it when a member joins by the classic protocol."""
        return False

    @property
    def is_deleted_for_classic(self) -> bool:
        """Whether its records must be deleted before a member joins by the classic protocol."""
        return False

    def classic_join(
        self, wants: JoinRequest, image: ClusterImage, waiter: Deferred[Result[Joined]], now: Now
    ) -> Effects:
        """Add a member to the next generation: `waiter` is resolved when that begins."""
        raise InconsistentProtocol(f"the group {self.group_id} is a {self.kind} group")

    def classic_sync(
        self,
        by: Committer,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        image: ClusterImage,
        waiter: Deferred[Result[Synced]],
        now: Now,
    ) -> Effects:
        """Answer `waiter` with a member's assignment; the leader sends all. `protocol` is type and name, if given."""
        raise self._not_classic()

    def classic_heartbeat(self, by: Committer, image: ClusterImage, now: Now) -> None:
        """Handle a member's heartbeat. `RebalanceInProgress` makes the member rejoin."""
        raise self._not_classic()

    def classic_leave(
        self, leaving: Sequence[tuple[str, str | None]], image: ClusterImage, now: Now
    ) -> tuple[list[HeadraceError | None], Effects]:
        """Remove members, each by member id, or a static one by instance id alone. Returns one result for each."""
        raise self._not_classic()

    def _not_classic(self) -> UnknownMember:
        return UnknownMember(f"there is no classic group {self.group_id}")

    # -- time

    @abstractmethod
    def start(self, now: Now) -> None:
        """Restart all deadlines after the group was loaded."""

    @abstractmethod
    def next_deadline_ms(self) -> float | None:
        """When to call `expire`. May be earlier than the first deadline, never later."""

    @abstractmethod
    def expire(self, image: ClusterImage, now: Now) -> Effects:
        """Handle all deadlines that have passed."""

    def fail_waiters(self, error: Result[Any]) -> Sequence[Reply]:
        """Return replies with this error for all waiters: the broker lost the group, or its state is invalid."""
        return []
