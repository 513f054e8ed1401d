"""The common part of consumer and streams groups: epochs, offset checks, records and deadlines. Pure.

The group has an epoch, which rises when members or any other input of the assignment changes, and a target assignment:
the holdings of each member at that epoch.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from headrace.groups.consumer_records import ConsumerValue
from headrace.groups.epoch_members import EpochMember, MemberPhase
from headrace.groups.epoch_roster import EpochRoster
from headrace.groups.epoch_state import EpochState
from headrace.groups.group import Group, Now
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.groups.records import GroupKey, GroupRecord, Key, OffsetValue, Value
from headrace.groups.roster import fenced
from headrace.groups.streams_records import StreamsValue
from headrace.model.errors import GroupError, IllegalGeneration, StaleMemberEpoch

V = TypeVar("V", bound=ConsumerValue | StreamsValue)
M = TypeVar("M", bound=EpochMember[Any, Any])
T = TypeVar("T")


class EpochGroup(Group, Generic[V, M, T]):
    def __init__(self, state: EpochState[V, M, T], roster: EpochRoster[V, M, T]) -> None:
        self.group_id = state.group_id
        self._epoch_state = state
        self._epoch_roster = roster

    # -- state

    @property
    def epoch(self) -> int:
        return self._epoch_state.about.epoch

    @property
    def target_epoch(self) -> int:
        return self._epoch_state.about.target_epoch

    @property
    def members(self) -> Iterable[M]:
        return self._epoch_state.members.values()

    @property
    def state_name(self) -> str:
        if self.is_empty:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        settled = all(
            member.phase is MemberPhase.STABLE and member.epoch == self.target_epoch for member in self.members
        )
        return "Stable" if settled else "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self._epoch_state.members

    @property
    def is_idle(self) -> bool:
        return self.is_empty

    @property
    def member_count(self) -> int:
        return len(self._epoch_state.members)

    # -- records

    def replay(self, key: Key, value: Value | None) -> None:
        self._epoch_state.replay(key, value)

    def tombstones(self) -> Sequence[GroupRecord]:
        draft = self._epoch_roster.draft()
        draft.remove_all()
        return [*draft.records(), (GroupKey(self.group_id), None)]

    # -- offsets

    def check_commit(
        self, by: Committer, *, transactional: bool, now: Now, commits: Sequence[OffsetCommit] = ()
    ) -> None:
        member_id, instance_id, epoch = by
        if epoch < 0 and self.is_empty:
            return
        if transactional and epoch < 0 and not member_id and instance_id is None:
            return
        member = self._epoch_roster.find(member_id)
        if instance_id is not None and self._epoch_state.static.get(instance_id) != member_id:
            raise fenced(instance_id)
        if epoch != member.epoch and not self.accepts_earlier_epoch(member, epoch, commits):
            message = f"the member {member_id} commits at epoch {epoch}, and is at {member.epoch}"
            raise IllegalGeneration(message) if transactional else self.stale(member, message)

    def accepts_earlier_epoch(self, member: M, epoch: int, commits: Sequence[OffsetCommit]) -> bool:
        """Whether a member may commit these offsets at an epoch earlier than its own."""
        return False

    def stale(self, member: M, message: str) -> GroupError:
        """Return the error of the member's protocol for a stale epoch."""
        return StaleMemberEpoch(message)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if not member_id and member_epoch < 0:
            return
        member = self._epoch_roster.find(member_id or "")
        if member_epoch != member.epoch:
            message = f"the member {member_id} fetches at epoch {member_epoch}, and is at {member.epoch}"
            raise self.stale(member, message)

    def offset_base_ms(self, topic: str, value: OffsetValue) -> int | None:
        return None if self.is_subscribed_to(topic) else value.commit_ms

    # -- time

    def start(self, now: Now) -> None:
        self._epoch_roster.start(now)

    def next_deadline_ms(self) -> float | None:
        return self._epoch_roster.deadlines.next_ms()
