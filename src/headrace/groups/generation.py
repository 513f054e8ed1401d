"""The generation of a classic group: its number, its state, the elected protocol, and its record. Pure.

The last stable generation is persisted, with the assignments of its leader's sync. Joins in progress are not.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from headrace.coordinator.result import Result
from headrace.groups.classic_protocol import Joined, JoinedMember, Synced
from headrace.groups.group import Now
from headrace.groups.members import Member, select_protocol
from headrace.groups.offsets import Committer
from headrace.groups.records import ClassicValue, GroupKey, GroupRecord, OffsetValue
from headrace.groups.roster import Roster
from headrace.groups.subscription import CONSUMER
from headrace.model.errors import (
    GroupNotEmpty,
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
    RecordTooLarge,
    UnknownMember,
)

_MAX_NUMBER = 2**31 - 1
_RECORD_MAX_BYTES = 32 * 1024 * 1024
"""The limit of all subscriptions and assignments of a group together: they are in one record."""


class GroupState(Enum):
    """The state of a classic group, by the name that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Generation:
    def __init__(self, roster: Roster, wall_ms: int = 0) -> None:
        self.number = 0
        self.state = GroupState.EMPTY
        self.protocol_type = ""
        self.protocol: str | None = None
        self.since_ms = wall_ms
        """When the state was entered, by the wall clock."""
        self._group_id = roster.group_id
        self._roster = roster
        self._recorded: ClassicValue | None = None
        """The last persisted value, which a restart restores."""
        self._topics: set[str] | None = None
        """The topics that the members of a stable group subscribe to, cached."""

    # -- changes

    def enter(self, state: GroupState, now: Now) -> None:
        self.state = state
        self.since_ms = now.wall_ms
        self.forget_topics()

    def begin_next(self) -> None:
        """Begin the next generation, with the protocol that the members vote for."""
        self.number = self.number % _MAX_NUMBER + 1
        self.protocol = self.elected_protocol()

    def take_over(self, number: int, members: Sequence[Member], now: Now) -> None:
        """Continue with the members of a consumer group, which have to join again."""
        self.number = number
        self.protocol_type = CONSUMER
        for member in members:
            self._roster.add(member)
        if members:
            self.protocol = self.elected_protocol()
            self.enter(GroupState.PREPARING, now)

    def forget_topics(self) -> None:
        """Drop the cached topics after a change of members."""
        self._topics = None

    # -- checks

    def check_number(self, number: int) -> None:
        if number != self.number:
            raise IllegalGeneration(f"the group {self._group_id} is at generation {self.number}, not {number}")

    def check_protocol(self, protocol_type: str | None, protocol: str | None) -> None:
        """Refuse a protocol type or name, if given, that differs from the group's."""
        for said, held in ((protocol_type, self.protocol_type), (protocol, self.protocol)):
            if said is not None and said != held:
                raise InconsistentProtocol(f"the group {self._group_id} uses {held}, not {said}")

    def check_commit(self, by: Committer, *, transactional: bool, now: Now) -> None:
        """Refuse a commit unless it is by a current member, or by a non-member while the group is empty."""
        if by.generation < 0 and self.state is GroupState.EMPTY:
            return
        if by.generation >= 0 or by.member_id or by.instance_id is not None:
            member = self._roster.find(by.member_id, by.instance_id)
            self.check_number(by.generation)
            if self.state in (GroupState.STABLE, GroupState.PREPARING):
                member.heard_of(now)
        elif not transactional:
            raise UnknownMember(f"the group {self._group_id} has members: only they may commit")
        if not transactional and self.state is GroupState.COMPLETING:
            raise RebalanceInProgress(f"the group {self._group_id} waits for its leader's assignment")

    def check_size(self, assignments_bytes: int) -> None:
        """Refuse assignments that make the group's record too large."""
        said = sum(len(member.subscription(self.protocol)) for member in self._roster.members.values())
        if said + assignments_bytes > _RECORD_MAX_BYTES:
            raise RecordTooLarge(
                f"subscriptions and assignments of the group {self._group_id} are larger than {_RECORD_MAX_BYTES} bytes"
            )

    # -- topics and offsets

    def elected_protocol(self) -> str | None:
        return select_protocol(list(self._roster.members.values()))

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to a topic. `GroupNotEmpty` if the subscriptions cannot be decoded."""
        if self.state is GroupState.EMPTY:
            return False
        topics = self._subscribed_topics()
        if topics is None:
            raise GroupNotEmpty(f"the group {self._group_id} has members, and their subscriptions cannot be decoded")
        return topic in topics

    def offset_base_ms(self, topic: str, value: OffsetValue) -> int | None:
        """When the retention of an offset began; None while it is in use."""
        if not self.protocol_type:
            return value.commit_ms
        if self.state is GroupState.EMPTY:
            return max(self.since_ms, value.commit_ms)
        if self.state is GroupState.STABLE:
            topics = self._subscribed_topics()
            if topics is not None and topic not in topics:
                return value.commit_ms
        return None

    def _subscribed_topics(self) -> set[str] | None:
        """Return the members' topics; None unless they are consumers whose subscriptions can be decoded."""
        if self.protocol_type != CONSUMER:
            return None
        if self._topics is not None:
            return self._topics
        topics = self._roster.subscribed_topics()
        if self.state is GroupState.STABLE:
            self._topics = topics
        return topics

    # -- responses

    def joined(self, member: Member) -> Joined:
        """Return the response to a member's join: the leader's has all subscriptions."""
        leader = self._roster.leader
        is_leader = member.member_id == leader
        members = tuple(
            JoinedMember(other.member_id, other.instance_id, other.subscription(self.protocol))
            for other in self._roster.members.values()
            if is_leader
        )
        return Joined(member.member_id, self.number, self.protocol_type, self.protocol, leader or "", members)

    def synced(self, member: Member) -> Result[Synced]:
        """Return the response to a member's sync."""
        return Result(Synced(self.protocol_type, self.protocol, member.assignment))

    # -- the record

    def restore(self, value: ClassicValue) -> None:
        """Restore the generation and the members from a record."""
        self._recorded = value
        if value.members:
            self.state = GroupState.PREPARING if value.is_joining else GroupState.STABLE
        self.number = value.generation
        self.protocol_type = value.protocol_type
        self.protocol = value.protocol
        self._roster.leader = value.leader
        for stored in value.members:
            self._roster.add(Member.from_stored(stored, value.protocol))

    def record(self) -> GroupRecord:
        """Return the record of the current state."""
        value = ClassicValue(
            self.protocol_type,
            self.number,
            self.protocol,
            self._roster.leader,
            self.since_ms,
            tuple(member.stored(self.protocol) for member in self._roster.members.values()),
            self.state is GroupState.PREPARING,
        )
        self._recorded = value
        return (GroupKey(self._group_id), value)

    def record_rename(self, old_id: str, new_id: str) -> GroupRecord | None:
        """Return the last record with a new id for a static member; None if the member is not in it.

        Without it a restart during a rebalance would restore the old id, and fence the new one.
        """
        recorded = self._recorded
        if recorded is None or all(stored.member_id != old_id for stored in recorded.members):
            return None
        members = tuple(
            msgspec.structs.replace(stored, member_id=new_id) if stored.member_id == old_id else stored
            for stored in recorded.members
        )
        leader = new_id if recorded.leader == old_id else recorded.leader
        self._recorded = msgspec.structs.replace(recorded, members=members, leader=leader)
        return (GroupKey(self._group_id), self._recorded)

    def last_assignment(self, member_id: str) -> bytes:
        """Return a member's assignment in the last stable generation: it consumes at most that while it rejoins."""
        recorded = () if self._recorded is None else self._recorded.members
        return next((stored.assignment for stored in recorded if stored.member_id == member_id), b"")
