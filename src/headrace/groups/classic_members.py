"""The classic protocol in a consumer group (KIP-848), for members that have not been upgraded yet. Pure.

A classic group is upgraded when the first member of the consumer protocol joins, and downgraded when the last of them
is gone (`conversion.py`). For members of the classic protocol the epoch is the generation, no member leads, and a join
does not wait for other members:

- a heartbeat is answered with REBALANCE_IN_PROGRESS when the group has a new epoch, when the member has partitions to
  revoke, and when all partitions that it waits for have become free;
- a join reports the partitions that the member owns, and reconciles it by one step (`epoch_members.py`), as a heartbeat
  of the consumer protocol does. A member that revoked everything before, as eager clients do, gets all free partitions
  of its target; a cooperative one first gets a smaller assignment, then rejoins;
- a sync is answered with the current assignment.

A member that does not join on request, does not sync after its join, or does not revoke partitions within its rebalance
timeout is removed. Its next heartbeat is answered with the error.
"""

from collections.abc import Sequence

from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.classic_protocol import Joined, JoinRequest, Synced
from headrace.groups.consumer_member import ConsumerMember
from headrace.groups.consumer_records import ClassicMember, SubscriptionValue
from headrace.groups.consumer_roster import ConsumerRoster
from headrace.groups.consumer_state import ConsumerDraft
from headrace.groups.conversion import assignment_for, places
from headrace.groups.epoch_members import MemberPhase
from headrace.groups.group import Effects, Now, Reply
from headrace.groups.members import check_session_timeout
from headrace.groups.offsets import Committer
from headrace.groups.roster import rebalancing
from headrace.groups.subscription import CONSUMER, MemberSubscription, read_subscription
from headrace.model.errors import (
    HeadraceError,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    UnknownMember,
)
from headrace.model.image import ClusterImage
from headrace.runtime.deferred import Deferred


class ClassicMembers:
    def __init__(self, roster: ConsumerRoster) -> None:
        self._roster = roster
        self._group_id = roster.group_id

    def join(self, wants: JoinRequest, image: ClusterImage, waiter: Deferred[Result[Joined]], now: Now) -> Effects:
        check_session_timeout(wants, self._roster.group_limits)
        subscription = self._understood(wants)
        if wants.needs_known_id and not wants.member_id and wants.instance_id is None:
            raise MemberIdRequired("join again with the member id that comes with this answer", wants.new_member_id)
        replaced = None if wants.member_id else self._roster.state.static.get(wants.instance_id or "")
        others = tuple(member for member in self._roster.state.members.values() if member.member_id != replaced)
        if self._roster.becomes_classic(others):
            return self._join_as_classic(others, wants, image, waiter, now)
        draft = self._roster.draft()
        before = self._joining(wants, draft)
        wanted = _wants(wants, subscription, before)
        after = self._roster.step(draft, before, wanted, places(subscription.owned, image), image)
        self._roster.heard_of(before, after, now, must_act=True)
        response = Joined(after.member_id, after.epoch, CONSUMER, wants.protocols[0][0], leader="")
        return [Outcome(draft.records(), [Reply(waiter, Result(response))])]

    def _join_as_classic(
        self,
        others: Sequence[ConsumerMember],
        wants: JoinRequest,
        image: ClusterImage,
        waiter: Deferred[Result[Joined]],
        now: Now,
    ) -> Effects:
        """Downgrade the group, which has no member of the consumer protocol left, and join the classic group.

        The downgrade did not happen before because the last such member, a static one, now rejoins by the classic
        protocol, because the broker crashed, or because the migration policy did not allow it until now.
        """
        group, effects = self._roster.as_classic(others, image, now)
        if wants.member_id not in group.members:
            wants = wants._replace(member_id="", new_member_id=wants.member_id or wants.new_member_id)
        return effects + group.classic_join(wants._replace(needs_known_id=False), image, waiter, now)

    def _understood(self, wants: JoinRequest) -> MemberSubscription:
        """Decode a member's subscription; `InconsistentProtocol` if it does not fit the other members."""
        if wants.protocol_type != CONSUMER or not wants.protocols:
            raise InconsistentProtocol(f"the group {self._group_id} has the protocol type consumer")
        names = {name for name, _ in wants.protocols}
        for member in self._roster.state.members.values():
            classic = member.about.classic
            if classic is not None and member.member_id != wants.member_id:
                names &= {name for name, _ in classic.protocols}
        if not names:
            raise InconsistentProtocol(f"the classic members of the group {self._group_id} have no protocol in common")
        subscription = read_subscription(wants.protocols[0][1])
        if subscription is None:
            raise InconsistentProtocol("the subscription of the member cannot be decoded")
        return subscription

    def _joining(self, wants: JoinRequest, draft: ConsumerDraft) -> ConsumerMember:
        """Return the joining member before the join: a known one, a new one, or the replacement of a static one."""
        known = self._roster.state.members.get(wants.member_id)
        if wants.instance_id is not None:
            holder = self._roster.state.static.get(wants.instance_id)
            if wants.member_id:
                self._roster.check_instance(wants.instance_id, wants.member_id)
            elif holder is not None:
                return self._roster.replace(self._roster.state.members[holder], wants.new_member_id, draft)
        if known is None:
            return self._roster.new_member(wants.member_id or wants.new_member_id)
        if not known.is_classic:
            raise UnknownMember(f"the member {wants.member_id} of {self._group_id} uses the consumer protocol")
        return known

    def sync(
        self,
        by: Committer,
        protocol: tuple[str | None, str | None],
        image: ClusterImage,
        waiter: Deferred[Result[Synced]],
        now: Now,
    ) -> Effects:
        member, classic = self._classic_member(*by)
        spoken = classic.protocols[0][0]
        for said, held in zip(protocol, (CONSUMER, spoken), strict=True):
            if said is not None and said != held:
                raise InconsistentProtocol(f"the member {by.member_id} of {self._group_id} uses {held}, not {said}")
        # A member with partitions to revoke learns them from this sync, and rejoins by itself.
        if member.epoch < self._roster.state.about.epoch and member.phase is not MemberPhase.UNREVOKED:
            self._roster.heard_of(member, member, now, must_act=True, goes_on=True)
            raise rebalancing(self._group_id)
        self._roster.heard_of(member, member, now)
        response = Synced(CONSUMER, spoken, assignment_for(member, member.assigned, image))
        return [Outcome((), [Reply(waiter, Result(response))])]

    def heartbeat(self, by: Committer, image: ClusterImage, now: Now) -> None:
        member, _ = self._classic_member(*by)
        must_join = self._must_join(member, image)
        self._roster.heard_of(member, member, now, must_act=must_join, goes_on=True)
        if must_join:
            raise rebalancing(self._group_id)

    def _must_join(self, member: ConsumerMember, image: ClusterImage) -> bool:
        if member.epoch < self._roster.state.about.epoch or member.phase is MemberPhase.UNREVOKED:
            return True
        if member.phase is MemberPhase.UNRELEASED:
            missing = self._roster.target_of(member.member_id) - member.assigned
            if all(self._roster.state.owner(place) is None for place in missing):
                return True
        return self._roster.topics.have_changed(image, self._roster.state)

    def leave(
        self, leaving: Sequence[tuple[str, str | None]], image: ClusterImage, now: Now
    ) -> tuple[list[HeadraceError | None], Effects]:
        gone: list[str] = []
        results: list[HeadraceError | None] = []
        for member_id, instance_id in leaving:
            try:
                known = member_id or self._roster.state.static.get(instance_id or "", "")
                member, _ = self._classic_member(known, instance_id)
                if member.member_id in gone:
                    raise UnknownMember(f"the member {member.member_id} has left already")
            except HeadraceError as error:
                results.append(error)
                continue
            gone.append(member.member_id)
            results.append(None)
        return results, self._roster.remove(gone, image, now) if gone else []

    def _classic_member(
        self, member_id: str, instance_id: str | None, generation: int | None = None
    ) -> tuple[ConsumerMember, ClassicMember]:
        member = self._roster.find_static(member_id, instance_id)
        if member.about.classic is None:
            raise UnknownMember(f"the member {member_id} of {self._group_id} uses the consumer protocol")
        if generation is not None and generation != member.epoch:
            raise IllegalGeneration(f"the member {member_id} is at generation {member.epoch}, not {generation}")
        return member, member.about.classic


def _wants(wants: JoinRequest, subscription: MemberSubscription, before: ConsumerMember) -> SubscriptionValue:
    return SubscriptionValue(
        instance_id=before.about.instance_id if wants.instance_id is None else wants.instance_id,
        rack_id=subscription.rack_id,
        client_id=wants.client_id,
        client_host=wants.client_host,
        rebalance_timeout_ms=wants.rebalance_timeout_ms,
        topics=tuple(sorted(subscription.topics)),
        classic=ClassicMember(wants.session_timeout_ms, wants.protocols),
    )
