"""The interface of a group of any kind, and the effects that it returns.

A group is of one kind: classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071). Classic ones may become
consumer groups while they have members, and the other way round. The machine and the service use all of them through
this interface: the requests of the classic protocol, committed offsets, listing, deleting and expiry. Groups are pure:
called with an event and the time, they change their own soft state (waiters, deadlines) and return effects. State that
survives a restart is in the records of an `Outcome`: replaying them makes the same group.
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


class Reply(NamedTuple):
    """The result for a client that waits."""

    waiter: Deferred[Any]
    result: Result[Any]


class Convert(NamedTuple):
    """Replace the group by this one; follows the records of the change."""

    group: "Group"


class CreateTopics(NamedTuple):
    """Create the topics that a streams group needs. The group looks at what there is at its next heartbeats."""

    group_id: str
    topics: Sequence[InternalTopic]


Effects = list[Reply | Outcome[GroupRecord, Sequence[Reply]] | Convert | CreateTopics]
"""What a group wants done, in this order. A reply is sent at once; those of an outcome when its records, and everything
before them, are committed."""


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


class Group(ABC):
    """A kind that does not speak the classic protocol inherits the refusals of its requests."""

    kind: ClassVar[str]
    """`classic`, `consumer`, `share` or `streams`."""
    group_id: str
    is_hastened_by_heartbeats: ClassVar[bool] = False
    """Whether a heartbeat of the classic protocol may make `next_deadline_ms` earlier."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As Kafka's tools show it."""

    @property
    @abstractmethod
    def protocol_type(self) -> str: ...

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members, and may be deleted."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether it has no members and none is about to join: without offsets it may be deleted."""

    # -- records

    @abstractmethod
    def replay(self, key: Key, value: Value | None) -> None:
        """Apply a record of this group; None is a tombstone."""

    @abstractmethod
    def tombstones(self) -> Sequence[GroupRecord]:
        """The records that delete this group, without those of its offsets."""

    def forget_topics(self, topic_ids: Iterable[UUID]) -> Sequence[GroupRecord]:
        """The records that delete what the group has stored of topics that do not exist any more."""
        return ()

    # -- offsets

    @abstractmethod
    def check_commit(
        self, by: Committer, *, transactional: bool, now: Now, commits: Sequence[OffsetCommit] = ()
    ) -> None:
        """Refuse a commit by anybody but a current member, or by a non-member where the group has members."""

    @abstractmethod
    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse to show offsets to a member that is behind, where the client says which member it is."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of this topic are in use. `GroupNotEmpty` if that cannot be known."""

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
        """Whether its records must be deleted first when a member joins by the classic protocol."""
        return False

    def classic_join(
        self, wants: JoinRequest, image: ClusterImage, waiter: Deferred[Result[Joined]], now: Now
    ) -> Effects:
        """A member wants to be in the next generation: `waiter` is resolved when that begins."""
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
        """A member asks for its assignment; a leader sends those of all. `protocol` is type and name, if given."""
        raise self._not_classic()

    def classic_heartbeat(self, by: Committer, image: ClusterImage, now: Now) -> None:
        """A member is alive. `RebalanceInProgress` makes it join again."""
        raise self._not_classic()

    def classic_leave(
        self, leaving: Sequence[tuple[str, str | None]], image: ClusterImage, now: Now
    ) -> tuple[list[HeadraceError | None], Effects]:
        """Members leave, each named by its id, or a static one by its instance id alone. One result for each."""
        raise self._not_classic()

    def _not_classic(self) -> UnknownMember:
        return UnknownMember(f"there is no group {self.group_id} of the classic protocol")

    # -- time

    @abstractmethod
    def start(self, now: Now) -> None:
        """It was loaded: deadlines start anew."""

    @abstractmethod
    def next_deadline_ms(self) -> float | None:
        """When `expire` has something to do. May come earlier than that, never later."""

    @abstractmethod
    def expire(self, image: ClusterImage, now: Now) -> Effects:
        """Do what is due."""

    def fail_waiters(self, error: Result[Any]) -> Sequence[Reply]:
        """This broker no longer has the group, or its state is void: every waiter gets this error."""
        return []
