"""A consumer group as it stands: its members of either protocol, what it allows them, when it loses patience. Pure.

What members of the consumer protocol say to it is in `consumer.py`, what those of the classic one say in
`classic_members.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headrace.coordinator.machine import Outcome
from headrace.groups.assignors import Assignment
from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer_records import SubscriptionValue
from headrace.groups.consumer_state import ConsumerState, Draft
from headrace.groups.conversion import to_classic
from headrace.groups.group import JOIN, Convert, Effects, Group, GroupLimits, Now
from headrace.groups.offsets import OffsetCommit
from headrace.groups.patterns import topic_pattern
from headrace.groups.reconciliation import ConsumerMember, Phase, reconcile
from headrace.groups.records import GroupKey, GroupRecord, Key, OffsetValue, Value
from headrace.groups.roster import fenced
from headrace.groups.subscription import CONSUMER
from headrace.groups.targets import SubscribedTopics, aim
from headrace.model.errors import GroupFull, IllegalGeneration, StaleMemberEpoch, UnknownMember
from headrace.model.image import ClusterImage


@dataclass(slots=True)
class Deadlines:
    session_ms: float
    acts_by_ms: float | None = None
    """When it must have done what it was told to: give up partitions; for one of the classic protocol also to join, or
    to ask for its assignment."""

    @property
    def next_ms(self) -> float:
        return self.session_ms if self.acts_by_ms is None else min(self.session_ms, self.acts_by_ms)


class ConsumerRoster(Group):
    kind = "consumer"
    protocol_type = CONSUMER
    is_hastened_by_heartbeats = True

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self._group_limits = limits
        self._limits = limits.consumer
        self._state = ConsumerState(group_id)
        self._topics = SubscribedTopics()
        self._deadlines: dict[str, Deadlines] = {}
        self._wake_ms: float | None = None
        """No deadline is earlier. A heartbeat moves deadlines later without moving this."""

    def replay(self, key: Key, value: Value | None) -> None:
        self._state.replay(key, value)

    # -- what every group is

    @property
    def epoch(self) -> int:
        return self._state.about.epoch

    @property
    def target_epoch(self) -> int:
        return self._state.about.target_epoch

    @property
    def assignor(self) -> str:
        return self._state.about.assignor or self._limits.assignors[0]

    @property
    def members(self) -> Iterable[ConsumerMember]:
        return self._state.members.values()

    def target_of(self, member_id: str) -> Assignment:
        return self._state.targets.get(member_id, frozenset())

    @property
    def state_name(self) -> str:
        about = self._state.about
        if self.is_empty:
            return "Empty"
        if about.epoch > about.target_epoch:
            return "Assigning"
        settled = all(
            member.phase is Phase.STABLE and member.epoch == about.target_epoch
            for member in self._state.members.values()
        )
        return "Stable" if settled else "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self._state.members

    @property
    def is_idle(self) -> bool:
        return self.is_empty

    @property
    def yields_to_classic(self) -> bool:
        return self.is_empty

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        now: Now,
        commits: Sequence[OffsetCommit] = (),
    ) -> None:
        if generation < 0 and self.is_empty:
            return
        if transactional and generation < 0 and not member_id and instance_id is None:
            return
        member = self._member(member_id)
        if instance_id is not None and self._state.static.get(instance_id) != member_id:
            raise fenced(instance_id)
        if generation != member.epoch:
            message = f"the member {member_id} commits at epoch {generation}, and is at {member.epoch}"
            raise IllegalGeneration(message) if transactional or member.is_classic else StaleMemberEpoch(message)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if not member_id and member_epoch < 0:
            return
        member = self._member(member_id or "")
        if member_epoch != member.epoch:
            message = f"the member {member_id} fetches at epoch {member_epoch}, and is at {member.epoch}"
            raise IllegalGeneration(message) if member.is_classic else StaleMemberEpoch(message)

    def is_subscribed_to(self, topic: str) -> bool:
        return any(
            topic in member.wants.topics
            or (member.wants.pattern is not None and topic_pattern(member.wants.pattern).matches(topic))
            for member in self._state.members.values()
        )

    def offset_base_ms(self, topic: str, value: OffsetValue) -> int | None:
        return None if self.is_subscribed_to(topic) else value.commit_ms

    def tombstones(self) -> Sequence[GroupRecord]:
        draft = Draft(self._state)
        draft.remove_all()
        return [*draft.records(), (GroupKey(self.group_id), None)]

    # -- members

    def _member(self, member_id: str) -> ConsumerMember:
        member = self._state.members.get(member_id)
        if member is None:
            raise UnknownMember(f"the group {self.group_id} has no member {member_id}")
        return member

    def _check_instance(self, instance_id: str, member_id: str) -> None:
        holder = self._state.static.get(instance_id)
        if holder is None:
            raise UnknownMember(f"the group {self.group_id} has no static member {instance_id}")
        if holder != member_id:
            raise fenced(instance_id)

    def _new_member(self, member_id: str) -> ConsumerMember:
        if len(self._state.members) >= self._limits.max_size:
            raise GroupFull(
                f"the group {self.group_id} has group.consumer.max.size={self._limits.max_size} members already"
            )
        return ConsumerMember(member_id)

    def _take_over(self, holder: ConsumerMember, member_id: str, draft: Draft) -> ConsumerMember:
        """A static member is back under another id: it has what it had, and shall have what it should have."""
        target = draft.targets.get(holder.member_id)
        draft.remove(holder.member_id)
        self._deadlines.pop(holder.member_id, None)
        member = replace(holder, member_id=member_id, epoch=JOIN, previous_epoch=JOIN)
        draft.put(member)
        if target is not None:
            draft.aim(member_id, target)
        return member

    def _step(
        self,
        draft: Draft,
        before: ConsumerMember,
        wants: SubscriptionValue,
        owned: Assignment | None,
        image: ClusterImage,
    ) -> ConsumerMember:
        """A member said what it wants and reads: if that calls for another target there is one, and the member goes one
        step towards it."""
        member = replace(before, wants=wants)
        is_new = before.member_id not in draft.members
        draft.put(member)
        if is_new or (before.wants.topics, before.wants.pattern) != (wants.topics, wants.pattern):
            draft.bump()
            self._topics.forget()
        self._topics.follow(image, draft)
        if draft.about.target_epoch < draft.about.epoch:
            aim(draft, self._topics, self._limits.assignors[0])
        after = reconcile(
            member,
            draft.about.target_epoch,
            draft.targets.get(member.member_id, frozenset()),
            owned,
            lambda place: draft.is_free_for(member.member_id, place),
        )
        draft.put(after)
        return after

    def _without(self, member_ids: Iterable[str], image: ClusterImage, now: Now) -> Effects:
        """Members are gone, and what they had is free. Others get it at their next heartbeats; if only members of the
        classic protocol are left, they go on as a classic group."""
        draft = Draft(self._state)
        for member_id in member_ids:
            draft.remove(member_id)
            self._deadlines.pop(member_id, None)
        left = tuple(draft.members.values())
        if left and self._becomes_classic(left):
            return self._as_classic(left, image, now)[1]
        draft.bump()
        self._topics.forget()
        return [Outcome(draft.records(), ())]

    def _becomes_classic(self, members: Sequence[ConsumerMember]) -> bool:
        return (
            self._limits.can_downgrade
            and len(members) <= self._group_limits.max_size
            and all(member.is_classic for member in members)
        )

    def _as_classic(
        self, members: Sequence[ConsumerMember], image: ClusterImage, now: Now
    ) -> tuple[ClassicGroup, Effects]:
        """The group goes on as a classic one with these members.

        Its own records go first: what is not deleted before the record that takes the group's place would come back if
        the group changed its protocol once more. They begin with another epoch: should a crash leave only some of them,
        whoever is still a member is sent to join.
        """
        group, record = to_classic(self.group_id, self.epoch, members, image, self._group_limits, now)
        draft = Draft(self._state)
        draft.bump()
        draft.remove_all()
        return group, [Outcome([*draft.records(), record], ()), Convert(group)]

    # -- time

    def start(self, now: Now) -> None:
        for member in self._state.members.values():
            self._deadlines.pop(member.member_id, None)
            self._heard_of(member, member, now)

    def next_deadline_ms(self) -> float | None:
        return self._wake_ms if self._deadlines else None

    def expire(self, image: ClusterImage, now: Now) -> Effects:
        late = [member_id for member_id, deadlines in self._deadlines.items() if deadlines.next_ms <= now.ms]
        effects = self._without(late, image, now) if late else []
        self._wake_ms = min((deadlines.next_ms for deadlines in self._deadlines.values()), default=None)
        return effects

    def _heard_of(
        self, before: ConsumerMember, after: ConsumerMember, now: Now, *, must_act: bool = False, goes_on: bool = False
    ) -> None:
        """A member said something. What it must do, it has its rebalance timeout for; `goes_on` if it was told so
        before. One that has yet to give up what it was told to has what is left of that time."""
        held = self._deadlines.get(after.member_id)
        acts_by_ms = None if held is None else held.acts_by_ms
        revokes = after.phase is Phase.UNREVOKED
        if not (goes_on or (revokes and after.revoking == before.revoking)):
            acts_by_ms = None
        if acts_by_ms is None and (must_act or revokes):
            acts_by_ms = now.ms + after.wants.rebalance_timeout_ms
        session_ms = now.ms + after.session_timeout_ms(self._session_timeout_ms)
        self._set_deadlines(after.member_id, Deadlines(session_ms, acts_by_ms))

    @property
    def _session_timeout_ms(self) -> int:
        own_ms = self._limits.own_session_timeout_ms
        return self._limits.session_timeout_ms if own_ms is None else own_ms(self.group_id)

    def _set_deadlines(self, member_id: str, deadlines: Deadlines) -> None:
        self._deadlines[member_id] = deadlines
        if self._wake_ms is None or deadlines.next_ms < self._wake_ms:
            self._wake_ms = deadlines.next_ms
