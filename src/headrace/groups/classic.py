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
from enum import Enum
from typing import Any

from headrace.coordinator.machine import Entry
from headrace.coordinator.shard import Result
from headrace.groups.group import Answer, Effects, GroupLimits, Now, Write
from headrace.groups.members import (
    Joined,
    JoinedMember,
    JoinRequest,
    Member,
    Synced,
    common_protocols,
    select_protocol,
)
from headrace.groups.records import ClassicValue, GroupKey, OffsetValue, entry
from headrace.groups.subscription import CONSUMER, subscribed_topics
from headrace.model.errors import (
    FencedInstance,
    GroupFull,
    GroupNotEmpty,
    HeadraceError,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from headrace.runtime.deferred import Deferred

_MAX_GENERATION = 2**31 - 1
_RETRY_MS = 1_000
"""Where only static members are left and none has joined: how soon to look again, at the least."""


class State(Enum):
    """By the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    kind = "classic"

    def __init__(self, group_id: str, limits: GroupLimits, wall_ms: int = 0) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.state_since_ms = wall_ms
        self._limits = limits
        self._static: dict[str, str] = {}
        self._pending: dict[str, float] = {}
        """Ids that were given out and not joined with yet, until when they hold."""
        self._not_synced: set[str] = set()
        self._phase_deadline_ms: float | None = None
        """The end of the join phase, or the time until which everybody must have synced."""
        self._is_initial = False
        """In the join phase: whether the group was empty before, so that it waits for more members to show up."""
        self._delay_left_ms = 0.0
        self._has_grown = False

    @classmethod
    def from_stored(cls, group_id: str, value: ClassicValue, limits: GroupLimits) -> "ClassicGroup":
        group = cls(group_id, limits, value.state_since_ms)
        group.state = State.STABLE if value.members else State.EMPTY
        group.generation = value.generation
        group.protocol_type = value.protocol_type
        group.protocol = value.protocol
        group.leader = value.leader
        for stored in value.members:
            group._add(Member.from_stored(stored, value.protocol))
        return group

    # -- what every group is

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_idle(self) -> bool:
        return self.is_empty and not self._pending

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, now: Now
    ) -> None:
        if generation < 0 and self.state is State.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            member = self._member(member_id, instance_id)
            self._check_generation(generation)
            if self.state in (State.STABLE, State.PREPARING):
                self._heard_of(member, now)
        elif not transactional:
            raise UnknownMember(f"the group {self.group_id} has members: only they may commit")
        if not transactional and self.state is State.COMPLETING:
            raise RebalanceInProgress(f"the group {self.group_id} waits for its leader's assignment")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Members of classic groups do not say who they are when they fetch."""

    def is_subscribed_to(self, topic: str) -> bool:
        if self.is_empty:
            return False
        topics = self._subscribed_topics()
        if topics is None:
            raise GroupNotEmpty(f"the group {self.group_id} has members, and does not say which topics they read")
        return topic in topics

    def offset_base_ms(self, topic: str, value: OffsetValue) -> int | None:
        if not self.protocol_type:
            return value.commit_ms
        if self.is_empty:
            return max(self.state_since_ms, value.commit_ms)
        if self.state is State.STABLE:
            topics = self._subscribed_topics()
            if topics is not None and topic not in topics:
                return value.commit_ms
        return None

    def tombstones(self) -> Sequence[Entry]:
        return [entry(GroupKey(self.group_id), None)]

    def start(self, now: Now) -> None:
        for member in self.members.values():
            self._heard_of(member, now)

    def fail_waiters(self, error: Result[Any]) -> Effects:
        out: Effects = []
        for member in self.members.values():
            self._answer_join(member, error, out)
            self._answer_sync(member, error, out)
        return out

    # -- joining

    def join(self, wants: JoinRequest, waiter: Deferred[Result[Joined]], now: Now) -> Effects:
        """A member wants to be in the next generation: `waiter` is answered when that begins."""
        limits = self._limits
        if not limits.min_session_timeout_ms <= wants.session_timeout_ms <= limits.max_session_timeout_ms:
            raise InvalidSessionTimeout(
                f"a session timeout of {wants.session_timeout_ms} ms is not allowed: it must be from "
                f"{limits.min_session_timeout_ms} to {limits.max_session_timeout_ms} ms"
            )
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

    def _check_room(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if self.state is State.PREPARING:
            waiting = sum(other.join_waiter is not None for other in self.members.values())
            has_room = (member is not None and member.join_waiter is not None) or waiting < self._limits.max_size
        else:
            has_room = member is not None or len(self.members) < self._limits.max_size
        if not has_room:
            raise GroupFull(f"the group {self.group_id} has group.max.size={self._limits.max_size} members already")

    def _check_protocols(self, wants: JoinRequest) -> None:
        if not wants.protocol_type or not wants.protocols:
            raise InconsistentProtocol("a member must name a protocol type and at least one protocol")
        if not self.members:
            return
        others = [member for member in self.members.values() if member.member_id != wants.member_id]
        if wants.instance_id is not None:
            others = [member for member in others if member.instance_id != wants.instance_id]
        if self.protocol_type and wants.protocol_type != self.protocol_type:
            raise InconsistentProtocol(f"the group {self.group_id} is of the protocol type {self.protocol_type}")
        if others and not common_protocols(others) & {name for name, _ in wants.protocols}:
            raise InconsistentProtocol(f"no protocol is spoken by all members of the group {self.group_id}")

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
        if self.state is State.EMPTY:
            raise UnknownMember(f"the group {self.group_id} is empty")
        is_unchanged = member.protocols == wants.protocols
        is_leader = member.member_id == self.leader
        if is_unchanged and (self.state is State.COMPLETING or (self.state is State.STABLE and not is_leader)):
            # The answer to its join may have been lost: it is in this generation, and is told so again.
            self._heard_of(member, now)
            out.append(Write((), [Answer(waiter, Result(self._joined(member)))]))
            return
        self._update(member, wants, waiter, out)
        self._rebalance(now, out)

    def _replace_static(self, old: Member, wants: JoinRequest, waiter: Deferred[Any], now: Now, out: Effects) -> None:
        """A static member came back without its id: it gets a new one, and whoever has the old one is fenced."""
        assert old.instance_id is not None
        fenced: Result[Any] = Result(error=_fenced(old.instance_id))
        self._answer_join(old, fenced, out)
        self._answer_sync(old, fenced, out)
        old_leader = self.leader
        old_id, member = old.member_id, old
        # In its old place, so that the order of members, and with it who is next as a leader, stays.
        self.members = {
            wants.new_member_id if name == old_id else name: member for name, member in self.members.items()
        }
        member.member_id = wants.new_member_id
        member.client_id, member.client_host = wants.client_id, wants.client_host
        self._static[old.instance_id] = wants.new_member_id
        if self.leader == old_id:
            self.leader = wants.new_member_id
        if old_id in self._not_synced:
            self._not_synced.remove(old_id)
            self._not_synced.add(wants.new_member_id)
        self._heard_of(member, now)
        self._update(member, wants, waiter, out)
        if self.state is State.STABLE and select_protocol(list(self.members.values())) == self.protocol:
            member.join_waiter = None
            self._heard_of(member, now)
            is_leader = self.leader == member.member_id
            joined = self._joined(member)
            if wants.can_skip_assignment:
                joined = joined._replace(skip_assignment=is_leader)
            else:
                # Told that somebody else leads, it does not assign: the assignment that there is goes on.
                joined = joined._replace(leader=old_leader or "", members=())
            out.append(Write([self._entry()], [Answer(waiter, Result(joined))]))
        else:
            self._rebalance(now, out)

    def _update(self, member: Member, wants: JoinRequest, waiter: Deferred[Any], out: Effects) -> None:
        self._answer_join(member, Result(error=_rebalancing(self.group_id)), out)
        member.protocols = wants.protocols
        member.session_timeout_ms = wants.session_timeout_ms
        member.rebalance_timeout_ms = wants.rebalance_timeout_ms
        member.join_waiter = waiter

    # -- rebalancing

    def _rebalance(self, now: Now, out: Effects) -> None:
        """Membership changed: begin the join phase, or see whether it can end."""
        if self.state is State.PREPARING:
            self._maybe_end_join_phase(now, out)
            return
        self._is_initial = self.state is State.EMPTY
        for member in self.members.values():
            if self.state is State.COMPLETING:
                member.assignment = b""
            if member.sync_waiter is not None:
                self._answer_sync(member, Result(error=_rebalancing(self.group_id)), out)
                self._heard_of(member, now)
        self._not_synced.clear()
        self._become(State.PREPARING, now)
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
        if self.state is not State.PREPARING or self._pending:
            return
        if all(member.join_waiter is not None for member in self.members.values()) and (
            not self._is_initial or not self.members
        ):
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
            self._become(State.EMPTY, now)
            out.append(Write([self._entry()]))
            return
        self.protocol = select_protocol(list(self.members.values()))
        self._become(State.COMPLETING, now)
        self._phase_deadline_ms = now.ms + self._rebalance_timeout_ms()
        for member_id in waiting:
            member = self.members[member_id]
            self._answer_join(member, Result(self._joined(member)), out)
            member.is_new = False
            self._heard_of(member, now)
            self._not_synced.add(member_id)

    def _joined(self, member: Member) -> Joined:
        is_leader = member.member_id == self.leader
        everybody = tuple(
            JoinedMember(other.member_id, other.instance_id, other.subscription(self.protocol))
            for other in self.members.values()
            if is_leader
        )
        return Joined(
            member.member_id, self.generation, self.protocol_type, self.protocol, self.leader or "", everybody
        )

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
        if self.state is State.EMPTY:
            raise UnknownMember(f"the group {self.group_id} is empty")
        if self.state is State.PREPARING:
            raise _rebalancing(self.group_id)
        out: Effects = []
        self._synced(member_id)
        self._heard_of(member, now)
        if self.state is State.STABLE:
            out.append(Write((), [Answer(waiter, self._assigned(member))]))
            return out
        self._answer_sync(member, Result(error=_rebalancing(self.group_id)), out)
        member.sync_waiter = waiter
        if member_id == self.leader:
            self._assign(assignments, now, out)
        return out

    def _assign(self, assignments: Mapping[str, bytes], now: Now, out: Effects) -> None:
        answers = []
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_waiter is not None:
                answers.append(Answer(member.sync_waiter, self._assigned(member)))
                member.sync_waiter = None
                self._heard_of(member, now)
        self._become(State.STABLE, now)
        out.append(Write([self._entry()], answers))

    def _assigned(self, member: Member) -> Result[Synced]:
        return Result(Synced(self.protocol_type, self.protocol, member.assignment))

    def _synced(self, member_id: str) -> None:
        self._not_synced.discard(member_id)
        if not self._not_synced:
            self._phase_deadline_ms = None

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: Now) -> None:
        """A member lives. `RebalanceInProgress` tells it to join again."""
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        self._heard_of(member, now)
        if self.state is State.PREPARING:
            raise _rebalancing(self.group_id)

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

    def expire(self, now: Now) -> Effects:
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
        if self.state is State.PREPARING:
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

    # -- members

    def _member(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            holder = self._static.get(instance_id)
            if holder is None:
                raise UnknownMember(f"the group {self.group_id} has no static member {instance_id}")
            if holder != member_id:
                raise _fenced(instance_id)
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"the group {self.group_id} has no member {member_id}")
        return member

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"the group {self.group_id} is at generation {self.generation}, not {generation}")

    def _heard_of(self, member: Member, now: Now) -> None:
        if not member.is_new:
            member.deadline_ms = now.ms + member.session_timeout_ms

    def _add(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def _drop(self, member: Member) -> None:
        del self.members[member.member_id]
        self._not_synced.discard(member.member_id)
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _remove(self, member: Member, out: Effects) -> None:
        gone: Result[Any] = Result(error=UnknownMember(f"{member.member_id} is no longer in {self.group_id}"))
        self._answer_join(member, gone, out)
        self._answer_sync(member, gone, out)
        self._drop(member)

    def _after_removal(self, now: Now, out: Effects) -> None:
        if self.state is State.PREPARING:
            self._maybe_end_join_phase(now, out)
        elif self.state is not State.EMPTY:
            self._rebalance(now, out)

    # -- helpers

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _subscribed_topics(self) -> set[str] | None:
        """The topics that members read, if they are consumers whose subscriptions can be read."""
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            for _, said in member.protocols:
                subscribed = subscribed_topics(said)
                if subscribed is None:
                    return None
                topics |= subscribed
        return topics

    def _become(self, state: State, now: Now) -> None:
        self.state = state
        self.state_since_ms = now.wall_ms

    def _entry(self) -> Entry:
        value = ClassicValue(
            self.protocol_type,
            self.generation,
            self.protocol,
            self.leader,
            self.state_since_ms,
            tuple(member.stored(self.protocol) for member in self.members.values()),
        )
        return entry(GroupKey(self.group_id), value)

    @staticmethod
    def _answer_join(member: Member, result: Result[Any], out: Effects) -> None:
        if member.join_waiter is not None:
            out.append(Answer(member.join_waiter, result))
            member.join_waiter = None

    @staticmethod
    def _answer_sync(member: Member, result: Result[Any], out: Effects) -> None:
        if member.sync_waiter is not None:
            out.append(Answer(member.sync_waiter, result))
            member.sync_waiter = None


def _rebalancing(group_id: str) -> RebalanceInProgress:
    return RebalanceInProgress(f"the group {group_id} is rebalancing: join again")


def _fenced(instance_id: str) -> FencedInstance:
    return FencedInstance(f"another member has taken the place of the static member {instance_id}")
