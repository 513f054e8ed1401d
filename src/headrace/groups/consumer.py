"""A group of the consumer protocol (KIP-848): the broker assigns, members reconcile one by one. Pure.

Each heartbeat carries the changes of a member; each response carries its assignment. The group has an epoch, which
rises when members, subscriptions or topics change, and a target assignment for that epoch. Members go from their
current assignment to their target independently (`epoch_members.py`): a rebalance never stops all of them.

Everything but deadlines is persisted: after a restart members continue at their epoch. A member that sends no heartbeat
for the session timeout, or does not revoke partitions within its rebalance timeout, is removed; its next heartbeat is
answered with the error, and it rejoins. A static member (one with an instance id) that leaves temporarily retains its
partitions for the session timeout; a member that joins with its instance id replaces it.

Some members may use the classic protocol: see `classic_members.py`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.assignors import Assignment
from headrace.groups.classic_members import ClassicMembers
from headrace.groups.classic_protocol import Joined, JoinRequest, Synced
from headrace.groups.consumer_member import ConsumerMember
from headrace.groups.consumer_records import ConsumerValue, SubscriptionValue, by_topic_name, stored
from headrace.groups.consumer_roster import ConsumerRoster
from headrace.groups.epoch_group import EpochGroup
from headrace.groups.epoch_members import LEFT_FOR_NOW
from headrace.groups.epoch_roster import check_member
from headrace.groups.group import JOIN, LEAVE, Beat, Effects, GroupLimits, MemberView, Now, Reply
from headrace.groups.offsets import Committer
from headrace.groups.subscription import CONSUMER
from headrace.groups.targets import TopicFilter
from headrace.model.errors import (
    GroupError,
    HeadraceError,
    IllegalGeneration,
    ProtocolError,
    RecordTooLarge,
    StaleMemberEpoch,
    UnsupportedAssignor,
)
from headrace.model.image import ClusterImage
from headrace.model.patterns import topic_pattern
from headrace.protocol.fields import check_name
from headrace.runtime.deferred import Deferred

_SUBSCRIPTION_MAX_CHARACTERS = 1024 * 1024
"""The limit of all topic names of a member together: they are in one record."""


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request. A field is None, or -1 for the timeout, if it did not change."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    """The partitions that it owns."""
    client_id: str = ""
    client_host: str = ""
    topic_filter: TopicFilter | None = None
    """The topics that a pattern of the member may match; None for all."""

    @property
    def is_full(self) -> bool:
        """Whether all fields are set, as after a lost response: then the response has the assignment."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topics is not None or self.pattern is not None)
            and self.owned is not None
        )


class ConsumerGroup(EpochGroup[ConsumerValue, ConsumerMember, Assignment]):
    kind = "consumer"
    protocol_type = CONSUMER
    is_hastened_by_heartbeats = True

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self._roster = ConsumerRoster(group_id, limits)
        super().__init__(self._roster.state, self._roster)
        self._default_assignor = limits.consumer.assignors[0]
        self._classic = ClassicMembers(self._roster)

    @property
    def assignor(self) -> str:
        return self._roster.state.about.assignor or self._default_assignor

    def target_of(self, member_id: str) -> Assignment:
        return self._roster.target_of(member_id)

    def member_views(self, image: ClusterImage) -> list[MemberView]:
        return [
            MemberView(
                member.member_id,
                member.about.instance_id,
                member.about.client_id,
                member.about.client_host,
                by_topic_name(stored(member.assigned), image),
            )
            for member in self.members
        ]

    def is_subscribed_to(self, topic: str) -> bool:
        return any(
            topic in member.about.topics
            or (member.about.pattern is not None and topic_pattern(member.about.pattern).matches(topic))
            for member in self.members
        )

    def stale(self, member: ConsumerMember, message: str) -> GroupError:
        return IllegalGeneration(message) if member.is_classic else StaleMemberEpoch(message)

    # -- the consumer protocol

    def heartbeat(self, beat: Heartbeat, image: ClusterImage, waiter: Deferred[Result[Beat]], now: Now) -> Effects:
        """Handle a member's heartbeat, join or leave. `waiter` is resolved when the resulting records are committed."""
        if beat.epoch in (LEAVE, LEFT_FOR_NOW):
            return self._leave(beat, image, waiter, now)
        draft = self._roster.draft()
        before = self._roster.enter(beat, draft)
        after = self._roster.step(draft, before, _updated(before.about, beat), beat.owned, image, beat.topic_filter)
        self._roster.heard_of(before, after, now)
        sends_assignment = beat.epoch == JOIN or beat.is_full or after.assigned != before.assigned
        response = Beat(after.member_id, after.epoch, after.assigned if sends_assignment else None)
        return [Outcome(draft.records(), [Reply(waiter, Result(response))])]

    def _leave(self, beat: Heartbeat, image: ClusterImage, waiter: Deferred[Result[Beat]], now: Now) -> Effects:
        member = self._roster.find_static(beat.member_id, beat.instance_id)
        left = Reply(waiter, Result(Beat(member.member_id, beat.epoch)))
        if beat.epoch == LEFT_FOR_NOW:
            return [Outcome(self._roster.leave_for_now(member, now), [left])]
        return [*self._roster.remove([member.member_id], image, now), Outcome((), [left])]

    # -- the classic protocol

    @property
    def yields_to_classic(self) -> bool:
        return self.is_empty

    def classic_join(
        self, wants: JoinRequest, image: ClusterImage, waiter: Deferred[Result[Joined]], now: Now
    ) -> Effects:
        return self._classic.join(wants, image, waiter, now)

    def classic_sync(
        self,
        by: Committer,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        image: ClusterImage,
        waiter: Deferred[Result[Synced]],
        now: Now,
    ) -> Effects:
        return self._classic.sync(by, protocol, image, waiter, now)

    def classic_heartbeat(self, by: Committer, image: ClusterImage, now: Now) -> None:
        self._classic.heartbeat(by, image, now)

    def classic_leave(
        self, leaving: Sequence[tuple[str, str | None]], image: ClusterImage, now: Now
    ) -> tuple[list[HeadraceError | None], Effects]:
        return self._classic.leave(leaving, image, now)

    # -- time

    def expire(self, image: ClusterImage, now: Now) -> Effects:
        late = self._roster.deadlines.late(now)
        effects = self._roster.remove(late, image, now) if late else []
        self._roster.deadlines.rewind()
        return effects


def check_request(beat: Heartbeat, assignors: Sequence[str]) -> None:
    """Refuse a heartbeat that is invalid in any group."""
    check_member(beat)
    check_name(beat.member_id)
    if beat.epoch == JOIN:
        if beat.owned is None or beat.owned:
            raise ProtocolError("a member that joins must own no partitions, and send an empty list of them")
        if beat.topics is None and beat.pattern is None:
            raise ProtocolError("a member that joins must subscribe to topics, by names or by a pattern")
    if beat.assignor is not None and beat.assignor not in assignors:
        raise UnsupportedAssignor(f"there is no assignor {beat.assignor}: use {' or '.join(assignors)}")
    if sum(map(len, beat.topics or ())) > _SUBSCRIPTION_MAX_CHARACTERS:
        raise RecordTooLarge(
            f"the topics of a member have more than {_SUBSCRIPTION_MAX_CHARACTERS} characters together"
        )
    if beat.pattern:
        topic_pattern(beat.pattern)


def _updated(wants: SubscriptionValue, beat: Heartbeat) -> SubscriptionValue:
    if beat.epoch == JOIN:
        # A join has all fields: the earlier subscription of a static member with this instance id is discarded.
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
