"""A streams group (KIP-1071) as it stands: its members, what it allows them, when it loses patience. Pure.

What members say to it is in `streams.py`.
"""

from collections.abc import Iterable, Sequence

from headrace.coordinator.machine import Outcome
from headrace.groups.consumer_roster import Deadlines
from headrace.groups.group import JOIN, Effects, Group, GroupLimits, Now
from headrace.groups.offsets import OffsetCommit
from headrace.groups.reconciliation import Phase
from headrace.groups.records import GroupKey, GroupRecord, Key, OffsetValue, Value
from headrace.groups.roster import fenced
from headrace.groups.streams_reconciliation import StreamsMember
from headrace.groups.streams_records import TopologyValue
from headrace.groups.streams_state import StreamsDraft, StreamsState
from headrace.groups.streams_tasks import NO_TASKS, StreamsTask, TaskSet
from headrace.groups.streams_topology import Configured, configure, read_topics
from headrace.model.errors import GroupFull, IllegalGeneration, StaleMemberEpoch, UnknownMember
from headrace.model.image import ClusterImage


class StreamsRoster(Group):
    kind = "streams"
    protocol_type = "streams"

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self._limits = limits.streams
        self._state = StreamsState(group_id)
        self._configured: tuple[TopologyValue, int, Configured] | None = None
        """A topology with the topics of the image of a revision."""
        self._delayed_until_ms: float | None = None
        """Until when the first members of a group wait for more of them."""
        self._shut_down_by: str | None = None
        """The member that asked for the end of the whole application. Not stored: it asks again."""
        self._deadlines: dict[str, Deadlines] = {}
        self._wake_ms: float | None = None
        """No deadline is earlier. A heartbeat moves deadlines later without moving this."""

    def replay(self, key: Key, value: Value | None) -> None:
        self._state.replay(key, value)

    # -- what every group is

    @property
    def epoch(self) -> int:
        return self._state.about.epoch

    @property
    def target_epoch(self) -> int:
        return self._state.about.target_epoch

    @property
    def topology(self) -> TopologyValue | None:
        return self._state.topology

    @property
    def members(self) -> Iterable[StreamsMember]:
        return self._state.members.values()

    def target_of(self, member_id: str) -> TaskSet:
        return self._state.targets.get(member_id, NO_TASKS)

    def configured(self, topology: TopologyValue, image: ClusterImage) -> Configured:
        """The topology with the topics that there are."""
        known = self._configured
        if known is None or known[0] is not topology or known[1] != image.revision:
            known = self._configured = (topology, image.revision, configure(topology, image))
        return known[2]

    @property
    def state_name(self) -> str:
        about = self._state.about
        if self.is_empty:
            return "Empty"
        if not about.is_ready:
            return "NotReady"
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

    @property
    def is_deleted_for_classic(self) -> bool:
        return self.is_empty

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        now: Now,
        commits: Sequence[OffsetCommit] = (),
    ) -> None:
        """A member may also commit at an earlier epoch, if it has had the tasks of all committed partitions since then:
        otherwise every change of the group would cost its members the transactions under way."""
        if generation < 0 and self.is_empty:
            return
        if transactional and generation < 0 and not member_id and instance_id is None:
            return
        member = self._member(member_id)
        if instance_id is not None and self._state.static.get(instance_id) != member_id:
            raise fenced(instance_id)
        if generation != member.epoch and not self._has_had(member, generation, commits):
            message = f"the member {member_id} commits at epoch {generation}, and is at {member.epoch}"
            raise IllegalGeneration(message) if transactional else StaleMemberEpoch(message)

    def _has_had(self, member: StreamsMember, epoch: int, commits: Sequence[OffsetCommit]) -> bool:
        """Whether a member has had the tasks that read these partitions from an earlier epoch on."""
        if self._state.topology is None or not JOIN < epoch < member.epoch:
            return False
        since = [
            member.since.get(StreamsTask(one.subtopology_id, partition))
            for topic, partition, *_ in commits
            for one in self._state.topology.subtopologies
            if topic in read_topics(one)
        ]
        return len(since) >= len(commits) > 0 and all(at is not None and at <= epoch for at in since)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if not member_id and member_epoch < 0:
            return
        member = self._member(member_id or "")
        if member_epoch != member.epoch:
            raise StaleMemberEpoch(f"the member {member_id} fetches at epoch {member_epoch}, and is at {member.epoch}")

    def is_subscribed_to(self, topic: str) -> bool:
        topology = self._state.topology
        return (
            not self.is_empty
            and topology is not None
            and any(topic in read_topics(subtopology) for subtopology in topology.subtopologies)
        )

    def offset_base_ms(self, topic: str, value: OffsetValue) -> int | None:
        return None if self.is_subscribed_to(topic) else value.commit_ms

    def tombstones(self) -> Sequence[GroupRecord]:
        draft = StreamsDraft(self._state)
        draft.remove_all()
        return [*draft.records(), (GroupKey(self.group_id), None)]

    # -- members

    def _member(self, member_id: str) -> StreamsMember:
        member = self._state.members.get(member_id)
        if member is None:
            raise UnknownMember(f"the group {self.group_id} has no member {member_id}")
        return member

    def _check_instance(self, instance_id: str, member_id: str) -> None:
        holder = self._state.static.get(instance_id)
        if holder is None:
            raise UnknownMember(f"the group {self.group_id} has no static member {instance_id}")
        if holder != member_id:
            raise fenced(instance_id)

    def _new_member(self, member_id: str) -> StreamsMember:
        if len(self._state.members) >= self._limits.max_size:
            raise GroupFull(
                f"the group {self.group_id} has group.streams.max.size={self._limits.max_size} members already"
            )
        return StreamsMember(member_id)

    def _without(self, member_ids: Iterable[str]) -> list[GroupRecord]:
        """Members are gone, and what they had is free. Others get it at their next heartbeats."""
        draft = StreamsDraft(self._state)
        for member_id in member_ids:
            draft.remove(member_id)
            self._deadlines.pop(member_id, None)
        draft.bump()
        if not draft.members:
            self._shut_down_by = self._delayed_until_ms = None
        return draft.records()

    # -- time

    def start(self, now: Now) -> None:
        for member in self._state.members.values():
            self._deadlines.pop(member.member_id, None)
            self._heard_of(member, member, now)

    def next_deadline_ms(self) -> float | None:
        return self._wake_ms if self._deadlines else None

    def expire(self, image: ClusterImage, now: Now) -> Effects:
        late = [member_id for member_id, deadlines in self._deadlines.items() if deadlines.next_ms <= now.ms]
        records = self._without(late) if late else []
        self._wake_ms = min((deadlines.next_ms for deadlines in self._deadlines.values()), default=None)
        return [Outcome(records, ())] if records else []

    def _heard_of(self, before: StreamsMember, after: StreamsMember, now: Now) -> None:
        """A member said something. To give up tasks it has its rebalance timeout, from when it was told to."""
        held = self._deadlines.get(after.member_id)
        acts_by_ms = None
        if after.phase is Phase.UNREVOKED:
            if held is not None and after.revoking == before.revoking:
                acts_by_ms = held.acts_by_ms
            if acts_by_ms is None:
                acts_by_ms = now.ms + after.about.rebalance_timeout_ms
        self._set_deadlines(after.member_id, Deadlines(now.ms + self._session_timeout_ms, acts_by_ms))

    @property
    def _session_timeout_ms(self) -> int:
        return self._limits.session_timeout_of(self.group_id)

    def _set_deadlines(self, member_id: str, deadlines: Deadlines) -> None:
        self._deadlines[member_id] = deadlines
        if self._wake_ms is None or deadlines.next_ms < self._wake_ms:
            self._wake_ms = deadlines.next_ms
