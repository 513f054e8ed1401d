"""A group of the classic protocol: members join, one of them assigns, all of them sync. Pure.

    EMPTY ──join──▶ PREPARING ──all joined, or time is up──▶ COMPLETING ──the leader's sync──▶ STABLE
      ▲                │  ▲                                      │                               │
      └──nobody left───┘  └──────────── join, leave, lost ───────┴───────────────────────────────┘

Durable is what a leader's sync wrote (generation, members, assignments), a static member's change of id, and that a
group became empty. Joins under way are not: after a restart the members of the last stable generation are there, and
whoever was about to join is sent to join again.

A leader's assignment counts at once and is told when it is committed; if it cannot be, the shard loads again and the
group is what the log says.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.coordinator.result import Result
from headrace.groups.group import Answer, Effects, Now, Write
from headrace.groups.members import Joined, JoinRequest, Member, Synced, check_session_timeout, select_protocol
from headrace.groups.records import GroupRecord
from headrace.groups.roster import GroupState, Roster, fenced, rebalancing
from headrace.groups.subscription import CONSUMER, gives_up
from headrace.model.errors import HeadraceError, InconsistentProtocol, MemberIdRequired, RecordTooLarge, UnknownMember
from headrace.model.image import ClusterImage
from headrace.runtime.deferred import Deferred

_MAX_GENERATION = 2**31 - 1
_RECORD_MAX_BYTES = 32 * 1024 * 1024
"""The most that members may say and be assigned, all of them together: it is one record."""
_RETRY_MS = 1_000
"""Where only static members are left and none has joined: how soon to look again, at the least."""


class ClassicGroup(Roster):
    def take_over(self, generation: int, members: Sequence[Member], now: Now) -> GroupRecord:
        """Members of a consumer group go on here: they are to join again. Returns the record of that."""
        self.protocol_type = CONSUMER
        self.generation = generation
        for member in members:
            self._add(member)
            self._heard_of(member, now)
        if members:
            self.protocol = select_protocol(members)
            self._become(GroupState.PREPARING, now)
            self._phase_deadline_ms = now.ms + self._rebalance_timeout_ms()
        return self._record()

    # -- joining

    def join(self, wants: JoinRequest, waiter: Deferred[Result[Joined]], now: Now) -> Effects:
        """A member wants to be in the next generation: `waiter` is answered when that begins."""
        check_session_timeout(wants, self._limits)
        self._check_room(wants.member_id)
        self._check_protocols(wants)
        out: Effects = []
        if not wants.member_id:
            self._join_as_new(wants, waiter, now, out)
        elif wants.member_id in self._pending:
            self._admit(wants.member_id, wants, waiter, now, out)
        else:
            self._rejoin(self._member(wants.member_id, wants.instance_id), wants, waiter, now, out)
        return out

    def _join_as_new(self, wants: JoinRequest, waiter: Deferred[Any], now: Now, out: Effects) -> None:
        replaced = None if wants.instance_id is None else self._static.get(wants.instance_id)
        if replaced is not None:
            self._replace_static(self.members[replaced], wants, waiter, now, out)
        elif wants.instance_id is None and wants.needs_known_id:
            self._pending[wants.new_member_id] = now.ms + wants.session_timeout_ms
            raise MemberIdRequired("join again with the member id that comes with this answer", wants.new_member_id)
        else:
            self._admit(wants.new_member_id, wants, waiter, now, out)

    def _admit(self, member_id: str, wants: JoinRequest, waiter: Deferred[Any], now: Now, out: Effects) -> None:
        self._pending.pop(member_id, None)
        if not self.members:
            self.protocol_type = wants.protocol_type
        member = Member(
            member_id,
            wants.instance_id,
            wants.client_id,
            wants.client_host,
            wants.session_timeout_ms,
            wants.rebalance_timeout_ms,
            wants.protocols,
            deadline_ms=now.ms + self._limits.new_member_timeout_ms,
            is_new=True,
            join_waiter=waiter,
        )
        self._has_grown = True
        self._add(member)
        self._rebalance(now, out)

    def _rejoin(self, member: Member, wants: JoinRequest, waiter: Deferred[Any], now: Now, out: Effects) -> None:
        if self.state is GroupState.EMPTY:
            raise UnknownMember(f"the group {self.group_id} is empty")
        is_unchanged = member.protocols == wants.protocols
        is_leader = member.member_id == self.leader
        if is_unchanged and (
            self.state is GroupState.COMPLETING or (self.state is GroupState.STABLE and not is_leader)
        ):
            # The answer to its join may have been lost: it is in this generation, and is told so again.
            self._heard_of(member, now)
            out.append(Write((), [Answer(waiter, Result(self._joined(member)))]))
            return
        self._update(member, wants, waiter, out)
        self._rebalance(now, out)

    def _replace_static(self, old: Member, wants: JoinRequest, waiter: Deferred[Any], now: Now, out: Effects) -> None:
        """A static member came back without its id: it gets a new one, and whoever has the old one is fenced.

        What there is goes on, unless the old one was to give something up and join again: nobody else would do that,
        and what it had would be nobody's.
        """
        assert old.instance_id is not None
        is_owed = self.protocol_type == CONSUMER and gives_up(old.subscription(self.protocol), old.assignment)
        told: Result[Any] = Result(error=fenced(old.instance_id))
        self._answer_join(old, told, out)
        self._answer_sync(old, told, out)
        old_id, old_leader, member = old.member_id, self.leader, old
        self._rename(member, wants.new_member_id)
        member.client_id, member.client_host = wants.client_id, wants.client_host
        self._heard_of(member, now)
        self._update(member, wants, waiter, out)
        is_agreed = select_protocol(list(self.members.values())) == self.protocol
        if self.state is GroupState.STABLE and is_agreed and not is_owed:
            member.join_waiter = None
            self._heard_of(member, now)
            is_leader = self.leader == member.member_id
            joined = self._joined(member)
            if wants.can_skip_assignment:
                joined = joined._replace(skip_assignment=is_leader)
            else:
                # Told that somebody else leads, it does not assign: the assignment that there is goes on.
                joined = joined._replace(leader=old_leader or "", members=())
            out.append(Write([self._record()], [Answer(waiter, Result(joined))]))
        else:
            self._record_replacement(old_id, member, out)
            self._rebalance(now, out)

    def _update(self, member: Member, wants: JoinRequest, waiter: Deferred[Any], out: Effects) -> None:
        self._answer_join(member, Result(error=rebalancing(self.group_id)), out)
        member.protocols = wants.protocols
        member.session_timeout_ms = wants.session_timeout_ms
        member.rebalance_timeout_ms = wants.rebalance_timeout_ms
        member.join_waiter = waiter

    # -- rebalancing

    def _rebalance(self, now: Now, out: Effects) -> None:
        """Membership changed: begin the join phase, or see whether it can end."""
        if self.state is GroupState.PREPARING:
            self._maybe_end_join_phase(now, out)
            return
        self._is_initial = self.state is GroupState.EMPTY
        for member in self.members.values():
            if self.state is GroupState.COMPLETING:
                member.assignment = b""
            if member.sync_waiter is not None:
                self._answer_sync(member, Result(error=rebalancing(self.group_id)), out)
                self._heard_of(member, now)
        self._not_synced.clear()
        self._become(GroupState.PREPARING, now)
        timeout_ms = self._rebalance_timeout_ms()
        if self._is_initial and self._limits.initial_rebalance_delay_ms > 0:
            delay_ms = self._limits.initial_rebalance_delay_ms
            self._delay_left_ms = max(0.0, timeout_ms - delay_ms)
            self._has_grown = False
            self._phase_deadline_ms = now.ms + delay_ms
            return
        self._is_initial = False
        self._phase_deadline_ms = now.ms + timeout_ms
        self._maybe_end_join_phase(now, out)

    def _maybe_end_join_phase(self, now: Now, out: Effects) -> None:
        """End it if nobody is left to wait for. One who was given an id and has yet to join is waited for, too."""
        everybody = all(member.join_waiter is not None for member in self.members.values())
        if not self.members or (everybody and not self._pending and not self._is_initial):
            self._end_join_phase(now, out)

    def _end_join_phase(self, now: Now, out: Effects) -> None:
        """Begin the next generation with whoever has joined; static members stay until their session ends."""
        for member in list(self.members.values()):
            if member.join_waiter is None and member.instance_id is None:
                self._drop(member)
        waiting = [member.member_id for member in self.members.values() if member.join_waiter is not None]
        if self.members and not waiting:
            self._phase_deadline_ms = now.ms + max(self._rebalance_timeout_ms(), _RETRY_MS)
            return
        if self.leader not in waiting:
            self.leader = waiting[0] if waiting else None
        self.generation = self.generation % _MAX_GENERATION + 1
        self._is_initial = False
        if not self.members:
            self.protocol = None
            self._phase_deadline_ms = None
            self._become(GroupState.EMPTY, now)
            out.append(Write([self._record()]))
            return
        self.protocol = select_protocol(list(self.members.values()))
        self._become(GroupState.COMPLETING, now)
        self._phase_deadline_ms = now.ms + self._rebalance_timeout_ms()
        answers: Effects = []
        for member_id in waiting:
            member = self.members[member_id]
            self._answer_join(member, Result(self._joined(member)), answers)
            member.is_new = False
            self._heard_of(member, now)
            self._not_synced.add(member_id)
        out.append(Write((), [answer for answer in answers if isinstance(answer, Answer)]))

    # -- syncing, heartbeats, leaving

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        waiter: Deferred[Result[Synced]],
        now: Now,
    ) -> Effects:
        """A member asks for its assignment; the leader brings everybody's. `protocol` is type and name, if said."""
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        for said, held in zip(protocol, (self.protocol_type, self.protocol), strict=True):
            if said is not None and said != held:
                raise InconsistentProtocol(f"the group {self.group_id} has agreed on {held}, not on {said}")
        if self.state is GroupState.EMPTY:
            raise UnknownMember(f"the group {self.group_id} is empty")
        if self.state is GroupState.PREPARING:
            raise rebalancing(self.group_id)
        if member_id == self.leader and self.state is GroupState.COMPLETING:
            self._check_size(assignments)
        out: Effects = []
        self._synced(member_id)
        self._heard_of(member, now)
        if self.state is GroupState.STABLE:
            out.append(Write((), [Answer(waiter, self._assigned(member))]))
            return out
        self._answer_sync(member, Result(error=rebalancing(self.group_id)), out)
        member.sync_waiter = waiter
        if member_id == self.leader:
            self._assign(assignments, now, out)
        return out

    def _check_size(self, assignments: Mapping[str, bytes]) -> None:
        said = sum(len(member.subscription(self.protocol)) for member in self.members.values())
        if said + sum(map(len, assignments.values())) > _RECORD_MAX_BYTES:
            raise RecordTooLarge(
                f"subscriptions and assignments of the group {self.group_id} are larger than {_RECORD_MAX_BYTES} bytes"
            )

    def _assign(self, assignments: Mapping[str, bytes], now: Now, out: Effects) -> None:
        answers = []
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_waiter is not None:
                answers.append(Answer(member.sync_waiter, self._assigned(member)))
                member.sync_waiter = None
                self._heard_of(member, now)
        self._become(GroupState.STABLE, now)
        out.append(Write([self._record()], answers))

    def _synced(self, member_id: str) -> None:
        self._not_synced.discard(member_id)
        if not self._not_synced:
            self._phase_deadline_ms = None

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: Now) -> None:
        """A member lives. `RebalanceInProgress` tells it to join again."""
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        self._heard_of(member, now)
        if self.state is GroupState.PREPARING:
            raise rebalancing(self.group_id)

    def leave(self, leaving: Sequence[tuple[str, str | None]], now: Now) -> tuple[list[HeadraceError | None], Effects]:
        """Members leave, each named by its id, or a static one by its instance id alone."""
        out: Effects = []
        results: list[HeadraceError | None] = []
        changed = False
        for member_id, instance_id in leaving:
            if self._pending.pop(member_id, None) is not None:
                changed = True
                results.append(None)
                continue
            try:
                known = member_id or self._static.get(instance_id or "", "")
                member = self._member(known, instance_id)
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

    def next_deadline_ms(self) -> float | None:
        deadlines = [member.deadline_ms for member in self.members.values() if not member.is_excused]
        deadlines += self._pending.values()
        if self._phase_deadline_ms is not None:
            deadlines.append(self._phase_deadline_ms)
        return min(deadlines, default=None)

    def expire(self, image: ClusterImage, now: Now) -> Effects:
        out: Effects = []
        if self._phase_deadline_ms is not None and self._phase_deadline_ms <= now.ms:
            self._end_phase(now, out)
        late = [m for m in self.members.values() if not m.is_excused and m.deadline_ms <= now.ms]
        forgotten = [member_id for member_id, deadline_ms in self._pending.items() if deadline_ms <= now.ms]
        for member_id in forgotten:
            del self._pending[member_id]
        for member in late:
            self._remove(member, out)
        if late or forgotten:
            self._after_removal(now, out)
        return out

    def _end_phase(self, now: Now, out: Effects) -> None:
        if self.state is GroupState.PREPARING:
            if self._is_initial and self._has_grown and self._delay_left_ms > 0:
                delay_ms = min(self._limits.initial_rebalance_delay_ms, self._delay_left_ms)
                self._delay_left_ms -= delay_ms
                self._has_grown = False
                self._phase_deadline_ms = now.ms + delay_ms
            else:
                self._end_join_phase(now, out)
            return
        self._phase_deadline_ms = None
        absent = [self.members[member_id] for member_id in self._not_synced if member_id in self.members]
        self._not_synced.clear()
        for member in absent:
            self._remove(member, out)
        if absent:
            self._after_removal(now, out)

    def _remove(self, member: Member, out: Effects) -> None:
        gone: Result[Any] = Result(error=UnknownMember(f"{member.member_id} is no longer in {self.group_id}"))
        self._answer_join(member, gone, out)
        self._answer_sync(member, gone, out)
        self._drop(member)

    def _after_removal(self, now: Now, out: Effects) -> None:
        if self.state is GroupState.PREPARING:
            self._maybe_end_join_phase(now, out)
        elif self.state is not GroupState.EMPTY:
            self._rebalance(now, out)
