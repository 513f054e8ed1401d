"""The members of a consumer or streams group: admission, replacement of static members, and deadlines. Pure."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from headrace.groups.consumer_records import ConsumerValue
from headrace.groups.deadlines import Deadline, MemberDeadlines
from headrace.groups.epoch_members import LEFT_FOR_NOW, EpochMember, MemberPhase
from headrace.groups.epoch_state import EpochDraft, EpochState
from headrace.groups.group import JOIN, Now
from headrace.groups.records import GroupRecord
from headrace.groups.roster import fenced
from headrace.groups.streams_records import StreamsValue
from headrace.model.errors import FencedMemberEpoch, GroupFull, ProtocolError, UnknownMember, UnreleasedInstance

V = TypeVar("V", bound=ConsumerValue | StreamsValue)
M = TypeVar("M", bound=EpochMember[Any, Any])
T = TypeVar("T")


class EpochHeartbeat(Protocol):
    """The common fields of heartbeats of the consumer and streams protocols."""

    @property
    def member_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def rack_id(self) -> str | None: ...
    @property
    def rebalance_timeout_ms(self) -> int: ...
    @property
    def owned(self) -> Any | None: ...


class EpochRoster(ABC, Generic[V, M, T]):
    max_size_setting: str
    holdings_name: str
    """The word for holdings in error messages."""

    def __init__(self, state: EpochState[V, M, T], max_size: int) -> None:
        self.group_id = state.group_id
        self.deadlines = MemberDeadlines()
        self._epoch_state = state
        self._max_size = max_size

    @abstractmethod
    def draft(self) -> EpochDraft[V, M, T]: ...

    @property
    @abstractmethod
    def session_timeout_ms(self) -> int: ...

    # -- members

    def find(self, member_id: str) -> M:
        member = self._epoch_state.members.get(member_id)
        if member is None:
            raise UnknownMember(f"the group {self.group_id} has no member {member_id}")
        return member

    def find_static(self, member_id: str, instance_id: str | None) -> M:
        """Return a member; if an instance id is given, it must be the member's."""
        if instance_id is not None:
            self.check_instance(instance_id, member_id)
        return self.find(member_id)

    def check_instance(self, instance_id: str, member_id: str) -> None:
        holder = self._epoch_state.static.get(instance_id)
        if holder is None:
            raise UnknownMember(f"the group {self.group_id} has no static member {instance_id}")
        if holder != member_id:
            raise fenced(instance_id)

    def new_member(self, member_id: str) -> M:
        if len(self._epoch_state.members) >= self._max_size:
            raise GroupFull(f"the group {self.group_id} has {self.max_size_setting}={self._max_size} members already")
        return self._epoch_state.new_member(member_id)

    def enter(self, beat: EpochHeartbeat, draft: EpochDraft[V, M, T]) -> M:
        """Return the sender of a heartbeat, in its state before: a known member, a new one, or a static replacement."""
        self._epoch_state.loaded()
        instance_id = beat.instance_id
        if beat.epoch != JOIN:
            member = self.find_static(beat.member_id, instance_id)
            self._check_epoch(member, beat)
            return member
        known = draft.members.get(beat.member_id)
        holder = None if instance_id is None else draft.members.get(self._epoch_state.static.get(instance_id, ""))
        if holder is not None and holder is not known:
            if not holder.may_be_replaced:
                raise UnreleasedInstance(
                    f"the static member {instance_id} has not left: stop it, or wait for its session to end"
                )
            return self.replace(holder, beat.member_id, draft)
        return self.new_member(beat.member_id) if known is None else known

    def replace(self, holder: M, member_id: str, draft: EpochDraft[V, M, T]) -> M:
        """Replace a static member by one with another member id, and the same holdings and target."""
        target = draft.targets.get(holder.member_id)
        draft.remove(holder.member_id)
        self.deadlines.remove(holder.member_id)
        member = replace(holder, member_id=member_id, epoch=JOIN, previous_epoch=JOIN)
        draft.put(member)
        if target is not None:
            draft.aim(member_id, target)
        return member

    def leave_for_now(self, member: M, now: Now) -> list[GroupRecord]:
        """Let a static member leave temporarily: it retains its holdings for the session timeout."""
        draft = self.draft()
        draft.put(member.left_for_now())
        self.deadlines.set(member.member_id, Deadline(now.ms + self.session_timeout_ms))
        return draft.records()

    def _check_epoch(self, member: M, beat: EpochHeartbeat) -> None:
        if beat.epoch == member.epoch:
            return
        # It may have missed the last response: then all of its holdings are still assigned to it.
        if (
            beat.epoch == member.previous_epoch
            and beat.epoch < member.epoch
            and beat.owned is not None
            and beat.owned <= member.assigned
        ):
            return
        raise FencedMemberEpoch(
            f"the member {member.member_id} is at epoch {member.epoch}, not {beat.epoch}: "
            f"it must revoke its {self.holdings_name} and join again"
        )

    # -- time

    def start(self, now: Now) -> None:
        """Restart all deadlines after the group was loaded."""
        self._epoch_state.loaded()
        for member in self._epoch_state.members.values():
            self.deadlines.remove(member.member_id)
            self.heard_of(member, member, now)

    def heard_of(self, before: M, after: M, now: Now, *, must_act: bool = False, goes_on: bool = False) -> None:
        """Restart a member's session after a request. A requested action (`must_act`, or a revocation) has a deadline
        of the rebalance timeout; `goes_on`, or an unchanged revocation, retains the earlier deadline."""
        acts_by_ms = self.deadlines.acts_by_ms(after.member_id)
        revokes = after.phase is MemberPhase.UNREVOKED
        if not (goes_on or (revokes and after.revoking == before.revoking)):
            acts_by_ms = None
        if acts_by_ms is None and (must_act or revokes):
            acts_by_ms = now.ms + after.about.rebalance_timeout_ms
        session_ms = now.ms + after.session_timeout_ms(self.session_timeout_ms)
        self.deadlines.set(after.member_id, Deadline(session_ms, acts_by_ms))


def check_member(beat: EpochHeartbeat) -> None:
    """Refuse a heartbeat that is invalid in both protocols."""
    if not beat.member_id:
        raise ProtocolError("a heartbeat must have a member id")
    for name, text in (("instance id", beat.instance_id), ("rack id", beat.rack_id)):
        if text is not None and not text.strip():
            raise ProtocolError(f"the {name} of a member is empty")
    if beat.epoch < LEFT_FOR_NOW:
        raise ProtocolError(f"the member epoch {beat.epoch} is not valid")
    if beat.epoch == LEFT_FOR_NOW and beat.instance_id is None:
        raise ProtocolError("only a static member, with an instance id, can leave temporarily")
    if beat.epoch == JOIN and beat.rebalance_timeout_ms == -1:
        raise ProtocolError("a member that joins must send its rebalance timeout")
