"""The members of a classic group: lookup, leader election, and pending joins and syncs. Pure.

Member ids that were issued, and with which no client has joined yet, are reserved here until they expire.
"""

from collections.abc import Sequence

from headrace.groups.classic_protocol import JoinRequest
from headrace.groups.group import Now
from headrace.groups.members import Member, common_protocols
from headrace.groups.subscription import subscribed_topics
from headrace.model.errors import FencedInstance, GroupFull, InconsistentProtocol, RebalanceInProgress, UnknownMember


class Roster:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.members: dict[str, Member] = {}
        self.leader: str | None = None
        self._static: dict[str, str] = {}
        """Member ids by instance id."""
        self._reserved: dict[str, float] = {}
        """When each reserved member id expires."""
        self._not_synced: set[str] = set()

    # -- lookup

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member with this id; the instance id of a static member must match."""
        if instance_id is not None:
            holder = self._static.get(instance_id)
            if holder is None:
                raise UnknownMember(f"the group {self.group_id} has no static member {instance_id}")
            if holder != member_id:
                raise fenced(instance_id)
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"the group {self.group_id} has no member {member_id}")
        return member

    def static(self, instance_id: str | None) -> Member | None:
        """Return the static member with an instance id."""
        member_id = None if instance_id is None else self._static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    @property
    def joined(self) -> list[str]:
        """The ids of the members that wait for the response to their join."""
        return [member.member_id for member in self.members.values() if member.join_waiter is not None]

    @property
    def has_all_joined(self) -> bool:
        """Whether every member and every client with a reserved id has joined."""
        return not self._reserved and all(member.join_waiter is not None for member in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def subscribed_topics(self) -> set[str] | None:
        """The topics that consumers subscribe to; None if a subscription cannot be decoded."""
        topics: set[str] = set()
        for member in self.members.values():
            for _, said in member.protocols:
                subscribed = subscribed_topics(said)
                if subscribed is None:
                    return None
                topics |= subscribed
        return topics

    def check_room(self, member_id: str, max_size: int, *, is_joining: bool) -> None:
        """Refuse one more member than `max_size`. In the join phase only members that have joined count."""
        member = self.members.get(member_id)
        if is_joining:
            has_room = (member is not None and member.join_waiter is not None) or len(self.joined) < max_size
        else:
            has_room = member is not None or len(self.members) < max_size
        if not has_room:
            raise GroupFull(f"the group {self.group_id} has group.max.size={max_size} members already")

    def check_protocols(self, wants: JoinRequest, protocol_type: str) -> None:
        """Refuse a member that has no protocol in common with the others."""
        if not wants.protocol_type or not wants.protocols:
            raise InconsistentProtocol("a member must name a protocol type and at least one protocol")
        if not self.members:
            return
        others = [member for member in self.members.values() if member.member_id != wants.member_id]
        if wants.instance_id is not None:
            others = [member for member in others if member.instance_id != wants.instance_id]
        if protocol_type and wants.protocol_type != protocol_type:
            raise InconsistentProtocol(f"the group {self.group_id} has the protocol type {protocol_type}")
        if others and not common_protocols(others) & {name for name, _ in wants.protocols}:
            raise InconsistentProtocol(f"the members of the group {self.group_id} have no protocol in common")

    # -- members

    def add(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def rename(self, member: Member, new_id: str) -> None:
        """Change a member's id. The order of members, by which the next leader is elected, does not change."""
        old_id, member.member_id = member.member_id, new_id
        self.members = {new_id if name == old_id else name: other for name, other in self.members.items()}
        if member.instance_id is not None:
            self._static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self._not_synced:
            self._not_synced.remove(old_id)
            self._not_synced.add(new_id)

    def remove(self, member: Member) -> None:
        del self.members[member.member_id]
        self._not_synced.discard(member.member_id)
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def remove_absent(self) -> None:
        """Remove the members that have not joined; static ones stay until their session ends."""
        for member in tuple(self.members.values()):
            if member.join_waiter is None and member.instance_id is None:
                self.remove(member)

    def elect(self, candidates: Sequence[str]) -> None:
        """Elect the current leader if it is a candidate, otherwise the first candidate."""
        if self.leader not in candidates:
            self.leader = candidates[0] if candidates else None

    # -- reserved ids

    @property
    def has_reserved(self) -> bool:
        return bool(self._reserved)

    def is_reserved(self, member_id: str) -> bool:
        return member_id in self._reserved

    def reserve(self, member_id: str, until_ms: float) -> None:
        self._reserved[member_id] = until_ms

    def release(self, member_id: str) -> bool:
        """End a reservation, if there is one for this id."""
        return self._reserved.pop(member_id, None) is not None

    # -- syncs

    def expect_sync(self, member_id: str) -> None:
        self._not_synced.add(member_id)

    def note_sync(self, member_id: str) -> bool:
        """Note a member's sync. Returns whether all members have synced."""
        self._not_synced.discard(member_id)
        return not self._not_synced

    def clear_syncs(self) -> list[Member]:
        """Stop waiting for syncs. Returns the members that have not synced."""
        absent = [self.members[member_id] for member_id in self._not_synced if member_id in self.members]
        self._not_synced.clear()
        return absent

    # -- time

    def next_deadline_ms(self) -> float | None:
        deadlines = [member.deadline_ms for member in self.members.values() if not member.is_excused]
        return min([*deadlines, *self._reserved.values()], default=None)

    def late(self, now: Now) -> list[Member]:
        """The members whose session has timed out."""
        return [one for one in self.members.values() if not one.is_excused and one.deadline_ms <= now.ms]

    def expire_reserved(self, now: Now) -> bool:
        """Remove expired reservations. Returns whether there were any."""
        expired = [member_id for member_id, until_ms in self._reserved.items() if until_ms <= now.ms]
        for member_id in expired:
            del self._reserved[member_id]
        return bool(expired)


def rebalancing(group_id: str) -> RebalanceInProgress:
    return RebalanceInProgress(f"the group {group_id} is rebalancing: join again")


def fenced(instance_id: str) -> FencedInstance:
    return FencedInstance(f"another member has replaced the static member {instance_id}")
