"""A group of the consumer protocol (KIP-848): the broker assigns, members follow at their own pace. Pure.

Each heartbeat says what changed with a member; each answer says what the member may read. The group has an epoch that
rises when members, subscriptions or topics change, and a target: who shall read what at that epoch. Members go from
what they read to their target one by one (`reconciliation.py`), without ever stopping all of them.

Everything but deadlines is durable: after a restart members go on at the epoch at which they were. A member that is
silent for the session timeout, or does not give up what it must within its own rebalance timeout, is removed; it learns
so from its next heartbeat and joins again. A static member (one with an instance id) that says it comes back keeps its
partitions for the session timeout, and whoever comes with its instance id takes its place.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from headrace.coordinator.machine import Entry
from headrace.coordinator.shard import Result
from headrace.groups.assignors import Assignment
from headrace.groups.consumer_records import ConsumerGroupValue, ConsumerKey, SubscriptionValue
from headrace.groups.consumer_state import ConsumerState, Draft
from headrace.groups.group import Answer, Effects, GroupLimits, Now, Write
from headrace.groups.patterns import topic_pattern
from headrace.groups.reconciliation import LEFT_FOR_NOW, ConsumerMember, Phase, reconcile
from headrace.groups.records import GroupKey, OffsetValue, entry
from headrace.groups.subscription import CONSUMER
from headrace.groups.targets import SubscribedTopics, aim
from headrace.model.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    IllegalGeneration,
    ProtocolError,
    RecordTooLarge,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from headrace.model.image import ClusterImage
from headrace.runtime.deferred import Deferred

JOIN, LEAVE = 0, -1
"""Epochs with a meaning of their own in a heartbeat, beside `LEFT_FOR_NOW`."""
_SUBSCRIPTION_MAX_CHARACTERS = 1024 * 1024
"""They are one record."""


class Heartbeat(NamedTuple):
    """What a member says. None, or -1 for the timeout, where nothing changed."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    """What it reads."""
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as after a lost answer: then it is told everything."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topics is not None or self.pattern is not None)
            and self.owned is not None
        )


class Beat(NamedTuple):
    """What the member is told."""

    member_id: str
    epoch: int
    assignment: Assignment | None = None
    """What it may read from now on; None if that did not change."""


@dataclass(slots=True)
class _Deadlines:
    session_ms: float
    revoked_ms: float | None = None
    """When it must have given up what it was told to."""

    @property
    def next_ms(self) -> float:
        return self.session_ms if self.revoked_ms is None else min(self.session_ms, self.revoked_ms)


class ConsumerGroup:
    kind = "consumer"
    protocol_type = CONSUMER

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self._limits = limits.consumer
        self._state = ConsumerState(group_id)
        self._topics = SubscribedTopics()
        self._deadlines: dict[str, _Deadlines] = {}
        self._wake_ms: float | None = None
        """No deadline is earlier. A heartbeat moves deadlines later without moving this."""

    def replay(self, key: GroupKey | ConsumerKey, value: ConsumerGroupValue | None) -> None:
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

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, now: Now
    ) -> None:
        if generation < 0 and self.is_empty:
            return
        if transactional and generation < 0 and not member_id and instance_id is None:
            return
        member = self._member(member_id)
        if instance_id is not None and self._state.static.get(instance_id) != member_id:
            raise _fenced(instance_id)
        if generation != member.epoch:
            message = f"the member {member_id} commits at epoch {generation}, and is at {member.epoch}"
            raise IllegalGeneration(message) if transactional else StaleMemberEpoch(message)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if not member_id and member_epoch < 0:
            return
        member = self._member(member_id or "")
        if member_epoch != member.epoch:
            raise StaleMemberEpoch(f"the member {member_id} fetches at epoch {member_epoch}, and is at {member.epoch}")

    def is_subscribed_to(self, topic: str) -> bool:
        return any(
            topic in member.wants.topics
            or (member.wants.pattern is not None and topic_pattern(member.wants.pattern).matches(topic))
            for member in self._state.members.values()
        )

    def offset_base_ms(self, topic: str, value: OffsetValue) -> int | None:
        return None if self.is_subscribed_to(topic) else value.commit_ms

    def tombstones(self) -> Sequence[Entry]:
        draft = Draft(self._state)
        for member_id in tuple(draft.members):
            draft.remove(member_id)
        return [*draft.entries(), entry(GroupKey(self.group_id), None)]

    def fail_waiters(self, error: Result[Any]) -> Effects:
        """Nobody waits in a consumer group."""
        return []

    # -- heartbeats

    def heartbeat(self, beat: Heartbeat, image: ClusterImage, waiter: Deferred[Result[Beat]], now: Now) -> Effects:
        """A member lives, comes or goes. `waiter` is answered when what follows from it is committed."""
        if beat.epoch in (LEAVE, LEFT_FOR_NOW):
            return self._leave(beat, waiter, now)
        draft = Draft(self._state)
        before = self._entered(beat, draft)
        member = replace(before, wants=_updated(before.wants, beat))
        is_new = before.member_id not in draft.members
        draft.put(member)
        if is_new or (before.wants.topics, before.wants.pattern) != (member.wants.topics, member.wants.pattern):
            draft.bump()
            self._topics.forget()
        self._topics.follow(image, draft)
        if draft.about.target_epoch < draft.about.epoch:
            aim(draft, self._topics, self._limits.assignors[0])
        after = reconcile(
            member,
            draft.about.target_epoch,
            draft.targets.get(member.member_id, frozenset()),
            beat.owned,
            lambda place: draft.is_free_for(member.member_id, place),
        )
        draft.put(after)
        self._heard_of(before, after, now)
        is_told = beat.epoch == JOIN or beat.is_full or after.assigned != before.assigned
        told = Beat(after.member_id, after.epoch, after.assigned if is_told else None)
        return [Write(draft.entries(), [Answer(waiter, Result(told))])]

    def _entered(self, beat: Heartbeat, draft: Draft) -> ConsumerMember:
        """The member that a heartbeat speaks of, as it was before; a new one, or one that takes another's place."""
        members, instance_id = draft.members, beat.instance_id
        known = members.get(beat.member_id)
        holder = members.get(self._state.static.get(instance_id, "")) if instance_id is not None else None
        if beat.epoch != JOIN:
            if instance_id is not None:
                self._check_instance(instance_id, beat.member_id)
            member = self._member(beat.member_id)
            _check_epoch(member, beat)
            return member
        if holder is not None and holder is not known:
            if holder.epoch != LEFT_FOR_NOW:
                raise UnreleasedInstance(
                    f"the static member {instance_id} has not left: stop it, or wait for its session to end"
                )
            return self._take_over(holder, beat.member_id, draft)
        if known is not None:
            return known
        if len(members) >= self._limits.max_size:
            raise GroupFull(
                f"the group {self.group_id} has group.consumer.max.size={self._limits.max_size} members already"
            )
        return ConsumerMember(beat.member_id)

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

    def _leave(self, beat: Heartbeat, waiter: Deferred[Result[Beat]], now: Now) -> Effects:
        if beat.instance_id is not None:
            self._check_instance(beat.instance_id, beat.member_id)
        member = self._member(beat.member_id)
        draft = Draft(self._state)
        if beat.epoch == LEFT_FOR_NOW:
            draft.put(replace(member, epoch=LEFT_FOR_NOW, phase=Phase.STABLE, revoking=frozenset()))
            self._set_deadlines(member.member_id, _Deadlines(now.ms + self._limits.session_timeout_ms))
        else:
            self._remove([member.member_id], draft)
        return [Write(draft.entries(), [Answer(waiter, Result(Beat(member.member_id, beat.epoch)))])]

    def _remove(self, member_ids: Iterable[str], draft: Draft) -> None:
        """Members are gone, and what they had is free. Others get it at their next heartbeats."""
        for member_id in member_ids:
            draft.remove(member_id)
            self._deadlines.pop(member_id, None)
        draft.bump()
        self._topics.forget()

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
            raise _fenced(instance_id)

    # -- time

    def start(self, now: Now) -> None:
        for member in self._state.members.values():
            self._deadlines.pop(member.member_id, None)
            self._heard_of(member, member, now)

    def next_deadline_ms(self) -> float | None:
        return self._wake_ms if self._deadlines else None

    def expire(self, now: Now) -> Effects:
        late = [member_id for member_id, deadlines in self._deadlines.items() if deadlines.next_ms <= now.ms]
        effects: Effects = []
        if late:
            draft = Draft(self._state)
            self._remove(late, draft)
            effects.append(Write(draft.entries()))
        self._wake_ms = min((deadlines.next_ms for deadlines in self._deadlines.values()), default=None)
        return effects

    def _heard_of(self, before: ConsumerMember, after: ConsumerMember, now: Now) -> None:
        held = self._deadlines.get(after.member_id)
        revoked_ms = None
        if after.phase is Phase.UNREVOKED:
            goes_on = held is not None and held.revoked_ms is not None and after.revoking == before.revoking
            revoked_ms = held.revoked_ms if goes_on and held else now.ms + after.wants.rebalance_timeout_ms
        self._set_deadlines(after.member_id, _Deadlines(now.ms + self._limits.session_timeout_ms, revoked_ms))

    def _set_deadlines(self, member_id: str, deadlines: _Deadlines) -> None:
        self._deadlines[member_id] = deadlines
        if self._wake_ms is None or deadlines.next_ms < self._wake_ms:
            self._wake_ms = deadlines.next_ms


def check_request(beat: Heartbeat, assignors: Sequence[str]) -> None:
    """Refuse what no member may say, whatever the group is like."""
    if not beat.member_id:
        raise ProtocolError("a heartbeat must have a member id")
    for name, text in (("instance id", beat.instance_id), ("rack id", beat.rack_id)):
        if text is not None and not text.strip():
            raise ProtocolError(f"the {name} of a member is empty")
    if beat.epoch < LEFT_FOR_NOW:
        raise ProtocolError(f"the member epoch {beat.epoch} has no meaning")
    if beat.epoch == LEFT_FOR_NOW and beat.instance_id is None:
        raise ProtocolError("only a member with an instance id can leave to come back")
    if beat.epoch == JOIN:
        if beat.rebalance_timeout_ms == -1:
            raise ProtocolError("a member that joins must say its rebalance timeout")
        if beat.owned is None or beat.owned:
            raise ProtocolError("a member that joins must have given up its partitions, and say so by an empty list")
        if beat.topics is None and beat.pattern is None:
            raise ProtocolError("a member that joins must say which topics it wants, by names or by a pattern")
    if beat.assignor is not None and beat.assignor not in assignors:
        raise UnsupportedAssignor(f"there is no assignor {beat.assignor}: use {' or '.join(assignors)}")
    if sum(map(len, beat.topics or ())) > _SUBSCRIPTION_MAX_CHARACTERS:
        raise RecordTooLarge(
            f"the topics of a member have more than {_SUBSCRIPTION_MAX_CHARACTERS} characters together"
        )
    if beat.pattern:
        topic_pattern(beat.pattern)


def _check_epoch(member: ConsumerMember, beat: Heartbeat) -> None:
    if beat.epoch == member.epoch:
        return
    # It may have missed our last answer: then it reads nothing that was taken from it since.
    if (
        beat.epoch == member.previous_epoch
        and beat.epoch < member.epoch
        and beat.owned is not None
        and beat.owned <= member.assigned
    ):
        return
    raise FencedMemberEpoch(
        f"the member {member.member_id} is at epoch {member.epoch}, not {beat.epoch}: "
        "it must give up its partitions and join again"
    )


def _updated(wants: SubscriptionValue, beat: Heartbeat) -> SubscriptionValue:
    if beat.epoch == JOIN:
        # Who joins says everything: whatever a static member wanted before under its instance id is past.
        wants = SubscriptionValue()
    timeout_ms = beat.rebalance_timeout_ms
    return SubscriptionValue(
        instance_id=wants.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=wants.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rebalance_timeout_ms=wants.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=wants.topics if beat.topics is None else tuple(sorted(set(beat.topics))),
        pattern=wants.pattern if beat.pattern is None else beat.pattern or None,
        assignor=wants.assignor if beat.assignor is None else beat.assignor,
    )


def _fenced(instance_id: str) -> FencedInstance:
    return FencedInstance(f"another member has taken the place of the static member {instance_id}")
