"""The members of a consumer group, of either protocol, and their reconciliation. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headrace.coordinator.machine import Outcome
from headrace.groups.assignors import Assignment
from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer_member import ConsumerMember
from headrace.groups.consumer_records import ConsumerValue, SubscriptionValue
from headrace.groups.consumer_state import ConsumerDraft, ConsumerState
from headrace.groups.conversion import to_classic
from headrace.groups.epoch_members import reconcile
from headrace.groups.epoch_roster import EpochRoster
from headrace.groups.group import Convert, Effects, GroupLimits, Now
from headrace.groups.targets import SubscribedTopics, TopicFilter, aim
from headrace.model.image import ClusterImage


class ConsumerRoster(EpochRoster[ConsumerValue, ConsumerMember, Assignment]):
    max_size_setting = "group.consumer.max.size"
    holdings_name = "partitions"

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.state = ConsumerState(group_id)
        super().__init__(self.state, limits.consumer.max_size)
        self.topics = SubscribedTopics()
        self.group_limits = limits
        self._limits = limits.consumer

    def draft(self) -> ConsumerDraft:
        return ConsumerDraft(self.state)

    @property
    def session_timeout_ms(self) -> int:
        own_ms = self._limits.own_session_timeout_ms
        return self._limits.session_timeout_ms if own_ms is None else own_ms(self.group_id)

    def target_of(self, member_id: str) -> Assignment:
        return self.state.targets.get(member_id, frozenset())

    def step(
        self,
        draft: ConsumerDraft,
        before: ConsumerMember,
        wants: SubscriptionValue,
        owned: Assignment | None,
        image: ClusterImage,
        topic_filter: TopicFilter | None = None,
    ) -> ConsumerMember:
        """Apply a member's subscription and owned partitions: compute a new target if needed, and reconcile the member
        by one step. `topic_filter` has the topics that its pattern may match; None for all."""
        member = replace(before, about=wants)
        is_new = before.member_id not in draft.members
        draft.put(member)
        sees_other_topics = self.topics.restrict(member, topic_filter, image)
        if is_new or sees_other_topics or (before.about.topics, before.about.pattern) != (wants.topics, wants.pattern):
            draft.bump()
            self.topics.forget()
        self.topics.follow(image, draft)
        if draft.about.target_epoch < draft.about.epoch:
            aim(draft, self.topics, self._limits.assignors[0])
        after = reconcile(
            member,
            draft.about.target_epoch,
            draft.targets.get(member.member_id, frozenset()),
            owned,
            lambda places: draft.available(member.member_id, places),
        )
        draft.put(after)
        return after

    def remove(self, member_ids: Iterable[str], image: ClusterImage, now: Now) -> Effects:
        """Remove members: others get their partitions at their next heartbeats. If only members of the classic protocol
        are left, they continue as a classic group."""
        draft = self.draft()
        for member_id in member_ids:
            draft.remove(member_id)
            self.deadlines.remove(member_id)
        left = tuple(draft.members.values())
        if left and self.becomes_classic(left):
            return self.as_classic(left, image, now)[1]
        draft.bump()
        self.topics.forget()
        return [Outcome(draft.records(), ())]

    def becomes_classic(self, members: Sequence[ConsumerMember]) -> bool:
        return (
            self._limits.can_downgrade
            and len(members) <= self.group_limits.max_size
            and all(member.is_classic for member in members)
        )

    def as_classic(
        self, members: Sequence[ConsumerMember], image: ClusterImage, now: Now
    ) -> tuple[ClassicGroup, Effects]:
        """Continue as a classic group with these members.

        The tombstones of the consumer group come first: a record that is not deleted before the classic group's record
        would reappear if the group were upgraded again. Before them comes a new epoch: if a crash leaves only some of
        the records, the remaining members have to join.
        """
        group, record = to_classic(self.group_id, self.state.about.epoch, members, image, self.group_limits, now)
        draft = self.draft()
        draft.bump()
        draft.remove_all()
        return group, [Outcome([*draft.records(), record], ()), Convert(group)]
