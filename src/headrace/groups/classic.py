"""A group of the classic protocol: members join, one of them assigns, all of them sync. Pure.

    EMPTY ──join──▶ PREPARING ──all joined, or time is up──▶ COMPLETING ──the leader's sync──▶ STABLE
      ▲                │  ▲                                      │                               │
      └──no members────┘  └──────────── join, leave, lost ───────┴───────────────────────────────┘

Persisted are the result of the leader's sync (generation, members, assignments), a static member's change of id, and
the change to EMPTY. Joins in progress are not: a restart restores the members of the last stable generation, and a
member that was joining has to join again.

A leader's assignment takes effect at once and is answered when it is committed. If the commit fails, the shard reloads
and the group is restored from the log.

The members are in `roster.py`, the generation and its record in `generation.py`, the deadline of a phase in
`rebalance_timer.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.classic_protocol import Joined, JoinRequest, Synced
from headrace.groups.generation import Generation, GroupState
from headrace.groups.group import Effects, Group, GroupLimits, MemberView, Now, Reply
from headrace.groups.members import Member, check_session_timeout
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.groups.rebalance_timer import RebalanceTimer
from headrace.groups.records import ClassicValue, GroupKey, GroupRecord, Key, OffsetValue, Value
from headrace.groups.roster import Roster, fenced, rebalancing
from headrace.groups.subscription import CONSUMER, gives_up, read_assignment
from headrace.model.errors import HeadraceError, MemberIdRequired, UnknownMember
from headrace.model.image import ClusterImage
from headrace.model.invariants import invariant
from headrace.runtime.deferred import Deferred

_RETRY_MS = 1_000
"""The minimum join phase when only static members remain and none of them has joined."""


class ClassicGroup(Group):
    kind = "classic"

    def __init__(self, group_id: str, limits: GroupLimits, wall_ms: int = 0) -> None:
        self.group_id = group_id
        self._limits = limits
        self._roster = Roster(group_id)
        self._generation = Generation(self._roster, wall_ms)
        self._timer = RebalanceTimer(limits.initial_rebalance_delay_ms)

    @classmethod
    def from_stored(cls, group_id: str, value: ClassicValue, limits: GroupLimits) -> Self:
        group = cls(group_id, limits, value.state_since_ms)
        group._generation.restore(value)
        return group

    def take_over(self, number: int, members: Sequence[Member], now: Now) -> GroupRecord:
        """Take over the members of a consumer group, which have to join again. Returns the group's record."""
        self._generation.take_over(number, members, now)
        self.start(now)
        return self._generation.record()

    # -- state

    @property
    def state(self) -> GroupState:
        return self._generation.state

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def generation(self) -> int:
        return self._generation.number

    @property
    def protocol_type(self) -> str:
        return self._generation.protocol_type

    @property
    def protocol(self) -> str | None:
        return self._generation.protocol

    @property
    def leader(self) -> str | None:
        return self._roster.leader

    @property
    def members(self) -> Mapping[str, Member]:
        return self._roster.members

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_idle(self) -> bool:
        return self.is_empty and not self._roster.has_reserved

    @property
    def member_count(self) -> int:
        return len(self._roster.members)

    def member_views(self, image: ClusterImage) -> list[MemberView]:
        return [
            MemberView(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                dict(read_assignment(member.assignment) or ()) if self.protocol_type == CONSUMER else {},
            )
            for member in self._roster.members.values()
        ]

    def last_assignment(self, member_id: str) -> bytes:
        return self._generation.last_assignment(member_id)

    def replay(self, key: Key, value: Value | None) -> None:
        """Ignore the record: a classic group is restored by `from_stored` alone."""

    def tombstones(self) -> Sequence[GroupRecord]:
        return [(GroupKey(self.group_id), None)]

    # -- offsets

    def check_commit(
        self, by: Committer, *, transactional: bool, now: Now, commits: Sequence[OffsetCommit] = ()
    ) -> None:
        self._generation.check_commit(by, transactional=transactional, now=now)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Accept every fetch: members of classic groups do not identify themselves in it."""

    def is_subscribed_to(self, topic: str) -> bool:
        return self._generation.is_subscribed_to(topic)

    def offset_base_ms(self, topic: str, value: OffsetValue) -> int | None:
        return self._generation.offset_base_ms(topic, value)

    # -- joining

    def classic_join(
        self, wants: JoinRequest, image: ClusterImage, waiter: Deferred[Result[Joined]], now: Now
    ) -> Effects:
        check_session_timeout(wants, self._limits)
        is_joining = self.state is GroupState.PREPARING
        self._roster.check_room(wants.member_id, self._limits.max_size, is_joining=is_joining)
        self._roster.check_protocols(wants, self.protocol_type)
        out: Effects = []
        if not wants.member_id:
            self._join_as_new(wants, waiter, now, out)
        elif self._roster.is_reserved(wants.member_id) and wants.instance_id is None:
            self._admit(wants.member_id, wants, waiter, now, out)
        else:
            self._rejoin(self._roster.find(wants.member_id, wants.instance_id), wants, waiter, now, out)
        return out

    def _join_as_new(self, wants: JoinRequest, waiter: Deferred[Any], now: Now, out: Effects) -> None:
        replaced = self._roster.static(wants.instance_id)
        if replaced is not None:
            self._replace_static(replaced, wants, waiter, now, out)
        elif wants.instance_id is None and wants.needs_known_id:
            self._roster.reserve(wants.new_member_id, now.ms + wants.session_timeout_ms)
            raise MemberIdRequired("join again with the member id that comes with this answer", wants.new_member_id)
        else:
            self._admit(wants.new_member_id, wants, waiter, now, out)

    def _admit(self, member_id: str, wants: JoinRequest, waiter: Deferred[Any], now: Now, out: Effects) -> None:
        invariant(self._roster.static(wants.instance_id) is None, 19, "an instance id belongs to one member")
        self._roster.release(member_id)
        if not self.members:
            self._generation.protocol_type = wants.protocol_type
        self._timer.note_growth()
        self._roster.add(Member.joining(member_id, wants, waiter, now.ms + self._limits.new_member_timeout_ms))
        self._rebalance(now, out)

    def _rejoin(self, member: Member, wants: JoinRequest, waiter: Deferred[Any], now: Now, out: Effects) -> None:
        if self.state is GroupState.EMPTY:
            raise UnknownMember(f"the group {self.group_id} is empty")
        is_unchanged = member.protocols == wants.protocols
        is_leader = member.member_id == self.leader
        if is_unchanged and (
            self.state is GroupState.COMPLETING or (self.state is GroupState.STABLE and not is_leader)
        ):
            # The response to its join may have been lost: it is in this generation, and gets the same response.
            member.heard_of(now)
            out.append(Outcome((), [Reply(waiter, Result(self._generation.joined(member)))]))
            return
        self._update(member, wants, waiter, out)
        self._rebalance(now, out)

    def _replace_static(self, old: Member, wants: JoinRequest, waiter: Deferred[Any], now: Now, out: Effects) -> None:
        """Give a static member that rejoins without its member id a new one, and fence the old one.

        The generation continues, unless the old member had to revoke partitions and rejoin: no other member would do
        that, and those partitions would remain unassigned.
        """
        assert old.instance_id is not None
        is_owed = self.protocol_type == CONSUMER and gives_up(old.subscription(self.protocol), old.assignment)
        refusal: Result[Any] = Result(error=fenced(old.instance_id))
        out += old.answer_join(refusal)
        out += old.answer_sync(refusal)
        old_id, old_leader, member = old.member_id, self.leader, old
        self._roster.rename(member, wants.new_member_id)
        self._generation.forget_topics()
        member.client_id, member.client_host = wants.client_id, wants.client_host
        member.heard_of(now)
        self._update(member, wants, waiter, out)
        is_agreed = self._generation.elected_protocol() == self.protocol
        if self.state is GroupState.STABLE and is_agreed and not is_owed:
            member.join_waiter = None
            member.heard_of(now)
            is_leader = self.leader == member.member_id
            joined = self._generation.joined(member)
            if wants.can_skip_assignment:
                joined = joined._replace(skip_assignment=is_leader)
            else:
                # With another leader in the response it does not assign: the current assignment remains.
                joined = joined._replace(leader=old_leader or "", members=())
            out.append(Outcome([self._generation.record()], [Reply(waiter, Result(joined))]))
        else:
            renamed = self._generation.record_rename(old_id, member.member_id)
            if renamed is not None:
                out.append(Outcome([renamed], ()))
            self._rebalance(now, out)

    def _update(self, member: Member, wants: JoinRequest, waiter: Deferred[Any], out: Effects) -> None:
        out += member.answer_join(Result(error=rebalancing(self.group_id)))
        member.update(wants, waiter)

    # -- rebalancing

    def _rebalance(self, now: Now, out: Effects) -> None:
        """Begin the join phase after a membership change, or end it if it can end."""
        if self.state is GroupState.PREPARING:
            self._maybe_end_join_phase(now, out)
            return
        was_empty = self.is_empty
        for member in self.members.values():
            if self.state is GroupState.COMPLETING:
                member.assignment = b""
            if member.sync_waiter is not None:
                out += member.answer_sync(Result(error=rebalancing(self.group_id)))
                member.heard_of(now)
        self._roster.clear_syncs()
        self._generation.enter(GroupState.PREPARING, now)
        self._timer.start_join_phase(self._roster.rebalance_timeout_ms(), now, was_empty=was_empty)
        if not self._timer.is_initial:
            self._maybe_end_join_phase(now, out)

    def _maybe_end_join_phase(self, now: Now, out: Effects) -> None:
        """End the join phase if all members and all clients with reserved ids have joined."""
        if not self.members or (self._roster.has_all_joined and not self._timer.is_initial):
            self._end_join_phase(now, out)

    def _end_join_phase(self, now: Now, out: Effects) -> None:
        """Begin the next generation with the members that have joined."""
        self._roster.remove_absent()
        waiting = self._roster.joined
        if self.members and not waiting:
            self._timer.start(max(self._roster.rebalance_timeout_ms(), _RETRY_MS), now)
            return
        self._roster.elect(waiting)
        self._generation.begin_next()
        self._timer.end_join_phase()
        if not self.members:
            self._timer.stop()
            self._generation.enter(GroupState.EMPTY, now)
            out.append(Outcome([self._generation.record()], ()))
            return
        self._generation.enter(GroupState.COMPLETING, now)
        self._timer.start(self._roster.rebalance_timeout_ms(), now)
        answers: list[Reply] = []
        for member_id in waiting:
            member = self.members[member_id]
            answers += member.answer_join(Result(self._generation.joined(member)))
            member.is_new = False
            member.heard_of(now)
            self._roster.expect_sync(member_id)
        out.append(Outcome((), answers))

    # -- syncing, heartbeats, leaving

    def classic_sync(
        self,
        by: Committer,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        image: ClusterImage,
        waiter: Deferred[Result[Synced]],
        now: Now,
    ) -> Effects:
        member = self._roster.find(by.member_id, by.instance_id)
        self._generation.check_number(by.generation)
        self._generation.check_protocol(*protocol)
        if self.state is GroupState.EMPTY:
            raise UnknownMember(f"the group {self.group_id} is empty")
        if self.state is GroupState.PREPARING:
            raise rebalancing(self.group_id)
        if by.member_id == self.leader and self.state is GroupState.COMPLETING:
            self._generation.check_size(sum(map(len, assignments.values())))
        out: Effects = []
        if self._roster.note_sync(by.member_id):
            self._timer.stop()
        member.heard_of(now)
        if self.state is GroupState.STABLE:
            out.append(Outcome((), [Reply(waiter, self._generation.synced(member))]))
            return out
        out += member.answer_sync(Result(error=rebalancing(self.group_id)))
        member.sync_waiter = waiter
        if by.member_id == self.leader:
            self._assign(assignments, now, out)
        return out

    def _assign(self, assignments: Mapping[str, bytes], now: Now, out: Effects) -> None:
        invariant(self.state is GroupState.COMPLETING, 18, "a generation is assigned once")
        answers: list[Reply] = []
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_waiter is not None:
                answers += member.answer_sync(self._generation.synced(member))
                member.heard_of(now)
        self._generation.enter(GroupState.STABLE, now)
        out.append(Outcome([self._generation.record()], answers))

    def classic_heartbeat(self, by: Committer, image: ClusterImage, now: Now) -> None:
        member = self._roster.find(by.member_id, by.instance_id)
        self._generation.check_number(by.generation)
        member.heard_of(now)
        if self.state is GroupState.PREPARING:
            raise rebalancing(self.group_id)

    def classic_leave(
        self, leaving: Sequence[tuple[str, str | None]], image: ClusterImage, now: Now
    ) -> tuple[list[HeadraceError | None], Effects]:
        out: Effects = []
        results: list[HeadraceError | None] = []
        changed = False
        for member_id, instance_id in leaving:
            if self._roster.release(member_id):
                changed = True
                results.append(None)
                continue
            try:
                static = self._roster.static(instance_id)
                known = member_id or ("" if static is None else static.member_id)
                member = self._roster.find(known, instance_id)
            except HeadraceError as error:
                results.append(error)
                continue
            self._remove(member, out)
            changed = True
            results.append(None)
        if changed:
            self._after_removal(now, out)
        return results, out

    # -- time

    def start(self, now: Now) -> None:
        for member in self.members.values():
            member.heard_of(now)
        if self.state is GroupState.PREPARING:
            self._timer.start(self._roster.rebalance_timeout_ms(), now)

    def next_deadline_ms(self) -> float | None:
        deadlines = (self._roster.next_deadline_ms(), self._timer.deadline_ms)
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def expire(self, image: ClusterImage, now: Now) -> Effects:
        out: Effects = []
        if self._timer.is_due(now):
            self._end_phase(now, out)
        late = self._roster.late(now)
        has_expired = self._roster.expire_reserved(now)
        for member in late:
            self._remove(member, out)
        if late or has_expired:
            self._after_removal(now, out)
        return out

    def _end_phase(self, now: Now, out: Effects) -> None:
        if self.state is GroupState.PREPARING:
            if not self._timer.extend(now):
                self._end_join_phase(now, out)
            return
        self._timer.stop()
        absent = self._roster.clear_syncs()
        for member in absent:
            self._remove(member, out)
        if absent:
            self._after_removal(now, out)

    def _remove(self, member: Member, out: Effects) -> None:
        gone: Result[Any] = Result(error=UnknownMember(f"{member.member_id} is no longer in {self.group_id}"))
        out += member.answer_join(gone)
        out += member.answer_sync(gone)
        self._roster.remove(member)

    def _after_removal(self, now: Now, out: Effects) -> None:
        if self.state is GroupState.PREPARING:
            self._maybe_end_join_phase(now, out)
        elif self.state is not GroupState.EMPTY:
            self._rebalance(now, out)

    def fail_waiters(self, error: Result[Any]) -> Sequence[Reply]:
        replies: list[Reply] = []
        for member in self.members.values():
            replies += member.answer_join(error)
            replies += member.answer_sync(error)
        return replies
