"""A group of the consumer protocol (KIP-848): the broker assigns, members follow at their own pace. Pure.

Each heartbeat says what changed with a member; each answer says what the member may read. The group has an epoch that
rises when members, subscriptions or topics change, and a target: who shall read what at that epoch. Members go from
what they read to their target one by one (`reconciliation.py`), without ever stopping all of them.

Everything but deadlines is durable: after a restart members go on at the epoch at which they were. A member that is
silent for the session timeout, or does not give up what it must within its own rebalance timeout, is removed; it learns
so from its next heartbeat and joins again. A static member (one with an instance id) that says it comes back keeps its
partitions for the session timeout, and whoever comes with its instance id takes its place.

Some members may speak the classic protocol: see `classic_members.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.assignors import Assignment
from headrace.groups.classic_members import ClassicMembers
from headrace.groups.consumer_records import SubscriptionValue
from headrace.groups.consumer_roster import Deadlines
from headrace.groups.consumer_state import Draft
from headrace.groups.group import JOIN, LEAVE, Beat, Effects, Now, Reply
from headrace.groups.patterns import topic_pattern
from headrace.groups.reconciliation import LEFT_FOR_NOW, ConsumerMember, Phase
from headrace.model.errors import (
    FencedMemberEpoch,
    ProtocolError,
    RecordTooLarge,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from headrace.model.image import ClusterImage
from headrace.protocol.fields import check_name
from headrace.runtime.deferred import Deferred

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


class ConsumerGroup(ClassicMembers):
    def heartbeat(self, beat: Heartbeat, image: ClusterImage, waiter: Deferred[Result[Beat]], now: Now) -> Effects:
        """A member lives, comes or goes. `waiter` is answered when what follows from it is committed."""
        if beat.epoch in (LEAVE, LEFT_FOR_NOW):
            return self._leave(beat, image, waiter, now)
        draft = Draft(self._state)
        before = self._entered(beat, draft)
        after = self._step(draft, before, _updated(before.wants, beat), beat.owned, image)
        self._heard_of(before, after, now)
        is_told = beat.epoch == JOIN or beat.is_full or after.assigned != before.assigned
        told = Beat(after.member_id, after.epoch, after.assigned if is_told else None)
        return [Outcome(draft.records(), [Reply(waiter, Result(told))])]

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
            if holder.epoch != LEFT_FOR_NOW and not holder.is_classic:
                raise UnreleasedInstance(
                    f"the static member {instance_id} has not left: stop it, or wait for its session to end"
                )
            return self._take_over(holder, beat.member_id, draft)
        return self._new_member(beat.member_id) if known is None else known

    def _leave(self, beat: Heartbeat, image: ClusterImage, waiter: Deferred[Result[Beat]], now: Now) -> Effects:
        if beat.instance_id is not None:
            self._check_instance(beat.instance_id, beat.member_id)
        member = self._member(beat.member_id)
        left = Reply(waiter, Result(Beat(member.member_id, beat.epoch)))
        if beat.epoch != LEFT_FOR_NOW:
            return [*self._without([member.member_id], image, now), Outcome((), [left])]
        draft = Draft(self._state)
        draft.put(replace(member, epoch=LEFT_FOR_NOW, phase=Phase.STABLE, revoking=frozenset()))
        self._set_deadlines(member.member_id, Deadlines(now.ms + self._session_timeout_ms))
        return [Outcome(draft.records(), [left])]


def check_request(beat: Heartbeat, assignors: Sequence[str]) -> None:
    """Refuse what no member may say, whatever the group is like."""
    if not beat.member_id:
        raise ProtocolError("a heartbeat must have a member id")
    check_name(beat.member_id)
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
