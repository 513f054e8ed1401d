"""A streams group (KIP-1071): the members of a Kafka Streams application, whose tasks the broker assigns. Pure.

The first member sends the topology: the source, repartition and changelog topics of the application. All members of a
group have the same topology; the first member that joins an empty group replaces it. The tasks follow from the topology
and the existing topics (`streams_topology.py`). Missing internal topics are created; no tasks are assigned until all
topics exist.

As in consumer groups the group has an epoch, which rises when members, the topology, its topics or the number of
standbys change, and a target assignment of tasks for that epoch (`streams_assignor.py`). Members go from their current
assignment to their target independently (`epoch_members.py`).

Everything but deadlines and a shutdown request is persisted. A member that sends no heartbeat for the session timeout,
or does not revoke tasks within its rebalance timeout, is removed; its next heartbeat is answered with the error, and it
rejoins. A static member that leaves temporarily retains its tasks for the session timeout; a member that joins with its
instance id replaces it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.epoch_group import EpochGroup
from headrace.groups.epoch_members import LEFT_FOR_NOW, reconcile
from headrace.groups.epoch_roster import check_member
from headrace.groups.group import JOIN, LEAVE, CreateTopics, Effects, GroupLimits, MemberView, Now, Reply
from headrace.groups.offsets import OffsetCommit
from headrace.groups.records import GroupRecord
from headrace.groups.streams_assignor import TaskTaker, assign_tasks
from headrace.groups.streams_endpoints import EndpointPartitions, endpoints, endpoints_epoch
from headrace.groups.streams_member import StreamsMember
from headrace.groups.streams_records import StreamsMemberValue, StreamsValue, TopologyValue
from headrace.groups.streams_roster import StreamsRoster
from headrace.groups.streams_state import StreamsDraft
from headrace.groups.streams_tasks import NO_TASKS, StreamsTask, TaskSet, stored_tasks
from headrace.groups.streams_topology import Configured, GroupStatus, StatusCode, check_topology, configure, read_topics
from headrace.model.errors import (
    FencedMemberEpoch,
    InvalidTopology,
    InvalidTopologyEpoch,
    ProtocolError,
    RecordTooLarge,
)
from headrace.model.image import ClusterImage
from headrace.model.invariants import invariant
from headrace.runtime.deferred import Deferred

_MEMBER_MAX_BYTES = 64 * 1024
"""The limit of a member's metadata: it is one record, and is in every description of the group."""


class StreamsHeartbeat(NamedTuple):
    """A StreamsGroupHeartbeat request. A field is None, or -1 for the timeout, if it did not change."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: TopologyValue | None = None
    owned: TaskSet | None = None
    process_id: str | None = None
    endpoint: tuple[str, int] | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    shuts_down: bool = False
    """Whether the member requests a shutdown of the whole application."""
    endpoints_epoch: int = -1
    """The epoch of the endpoints in the last response that it got."""
    client_id: str = ""
    client_host: str = ""
    not_creatable: Callable[[Sequence[str]], Collection[str]] = lambda _: ()
    """Returns those of the given topics that the member is not allowed to create."""


class StreamsBeat(NamedTuple):
    """The response to a heartbeat."""

    member_id: str
    epoch: int
    tasks: TaskSet | None = None
    """The member's assignment; None if it did not change."""
    statuses: Sequence[GroupStatus] = ()
    endpoints_epoch: int = 0
    endpoints: Sequence[EndpointPartitions] | None = None
    """None if they did not change since the epoch in the heartbeat."""


class StreamsGroup(EpochGroup[StreamsValue, StreamsMember, TaskSet]):
    kind = "streams"
    protocol_type = "streams"

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self._roster = StreamsRoster(group_id, limits)
        super().__init__(self._roster.state, self._roster)
        self._limits = limits.streams
        self._configured: tuple[TopologyValue, int, Configured] | None = None
        """The cached configuration of a topology, for the image of a revision."""
        self._delayed_until_ms: float | None = None
        """When the initial rebalance delay ends."""
        self._shut_down_by: str | None = None
        """The member that requested a shutdown of the whole application. Not persisted: it repeats the request."""

    @property
    def topology(self) -> TopologyValue | None:
        return self._roster.state.topology

    def target_of(self, member_id: str) -> TaskSet:
        return self._roster.state.targets.get(member_id, NO_TASKS)

    @property
    def state_name(self) -> str:
        is_ready = self.is_empty or self._roster.state.about.is_ready
        return super().state_name if is_ready else "NotReady"

    @property
    def is_deleted_for_classic(self) -> bool:
        return self.is_empty

    def member_views(self, image: ClusterImage) -> list[MemberView]:
        return [
            MemberView(
                member.member_id,
                member.about.instance_id,
                member.about.client_id,
                member.about.client_host,
                dict(stored_tasks(member.assigned.active)),
            )
            for member in self.members
        ]

    # -- offsets

    def accepts_earlier_epoch(self, member: StreamsMember, epoch: int, commits: Sequence[OffsetCommit]) -> bool:
        """Whether a member has had the tasks of all committed partitions since that epoch. Without this every change
        of the group would abort the open transactions of its members."""
        if self.topology is None or not JOIN < epoch < member.epoch:
            return False
        since = [
            member.since.get(StreamsTask(one.subtopology_id, partition))
            for topic, partition, *_ in commits
            for one in self.topology.subtopologies
            if topic in read_topics(one)
        ]
        return len(since) >= len(commits) > 0 and all(at is not None and at <= epoch for at in since)

    def is_subscribed_to(self, topic: str) -> bool:
        return (
            not self.is_empty
            and self.topology is not None
            and any(topic in read_topics(subtopology) for subtopology in self.topology.subtopologies)
        )

    # -- members

    def heartbeat(
        self, beat: StreamsHeartbeat, image: ClusterImage, waiter: Deferred[Result[StreamsBeat]], now: Now
    ) -> Effects:
        """Handle a member's heartbeat, join or leave. `waiter` is resolved when the resulting records are committed."""
        if beat.epoch in (LEAVE, LEFT_FOR_NOW):
            return self._leave(beat, waiter, now)
        draft = self._roster.draft()
        before = self._roster.enter(beat, draft)
        topology = self._topology_with(beat, draft)
        member = replace(before, about=_updated(before.about, beat))
        is_first, is_new = not draft.members, before.member_id not in draft.members
        draft.put(member)
        if is_new or _place(before.about) != _place(member.about):
            draft.bump()
        configured = self._follow(draft, topology, image)
        is_delayed = self._is_delayed(is_first=is_first, now=now)
        if draft.about.target_epoch < draft.about.epoch and not is_delayed:
            _aim(draft, topology, configured)
        after = reconcile(
            member,
            draft.about.target_epoch,
            draft.targets.get(member.member_id, NO_TASKS),
            beat.owned,
            lambda tasks: draft.available(member, tasks),
        )
        if beat.epoch == JOIN:
            # A member that joins has revoked all earlier tasks of its id: commits at earlier epochs are refused.
            after = replace(after, since=dict.fromkeys(after.holds.active, after.epoch))
        draft.put(after)
        self._roster.heard_of(before, after, now)
        if beat.shuts_down:
            self._shut_down_by = beat.member_id
        response = self._response(beat, before, after, draft, configured)
        forbidden = _forbidden(beat, configured)
        if forbidden is not None:
            configured = configured._replace(problem=forbidden)
        statuses = tuple(self._statuses(after, topology, configured, is_delayed=is_delayed))
        effects: Effects = [Outcome(draft.records(), [Reply(waiter, Result(response._replace(statuses=statuses)))])]
        if configured.missing and forbidden is None:
            effects.append(CreateTopics(self.group_id, configured.missing))
        return effects

    def _leave(self, beat: StreamsHeartbeat, waiter: Deferred[Result[StreamsBeat]], now: Now) -> Effects:
        member = self._roster.find_static(beat.member_id, beat.instance_id)
        left = Reply(waiter, Result(StreamsBeat(member.member_id, beat.epoch)))
        if beat.epoch == LEFT_FOR_NOW:
            return [Outcome(self._roster.leave_for_now(member, now), [left])]
        return [Outcome(self._remove([member.member_id]), [left])]

    def _remove(self, member_ids: Sequence[str]) -> Sequence[GroupRecord]:
        if len(member_ids) == len(self._roster.state.members):
            self._shut_down_by = self._delayed_until_ms = None
        return self._roster.remove(member_ids)

    def expire(self, image: ClusterImage, now: Now) -> Effects:
        late = self._roster.deadlines.late(now)
        records = self._remove(late) if late else ()
        self._roster.deadlines.rewind()
        return [Outcome(records, ())] if records else []

    # -- the topology

    def configured(self, topology: TopologyValue, image: ClusterImage) -> Configured:
        """Return the configuration of the topology for the topics of an image."""
        known = self._configured
        if known is None or known[0] is not topology or known[1] != image.revision:
            known = self._configured = (topology, image.revision, configure(topology, image))
        return known[2]

    def _topology_with(self, beat: StreamsHeartbeat, draft: StreamsDraft) -> TopologyValue:
        """Return the group's topology. A member that joins an empty group sets it."""
        brings, has = beat.topology, draft.topology
        if brings is not None and (has is None or not draft.members):
            draft.initialize(brings)
            return brings
        if has is None:
            # A crash persisted only the first records of a join: no member has sent the topology.
            raise FencedMemberEpoch(f"the group {self.group_id} has no topology: join again")
        if brings is not None and brings.epoch > has.epoch:
            raise InvalidTopologyEpoch(
                f"the topology epoch {brings.epoch} is ahead of {has.epoch}, at which the group {self.group_id} is: "
                "stop all of its members, then start them with the new topology"
            )
        if brings is not None and brings.epoch == has.epoch and brings != has:
            raise InvalidTopology(
                f"the topology is not the one that the group {self.group_id} has: "
                "stop all of its members, then start them with the new topology"
            )
        return has

    def _follow(self, draft: StreamsDraft, topology: TopologyValue, image: ClusterImage) -> Configured:
        """Raise the epoch if the topics of the topology in an image, or the number of standbys, changed."""
        configured = self.configured(topology, image)
        about = msgspec.structs.replace(
            draft.about,
            topics_hash=configured.topics_hash,
            is_ready=configured.is_ready,
            standby_replicas=self._limits.standby_replicas_of(self.group_id),
        )
        if about != draft.about:
            draft.describe(about)
            draft.bump()
        return configured

    def _is_delayed(self, *, is_first: bool, now: Now) -> bool:
        """Whether the initial rebalance delay is running: the first members wait for more, so that tasks move less."""
        delay_ms = self._limits.initial_delay_of(self.group_id)
        if is_first and delay_ms:
            self._delayed_until_ms = now.ms + delay_ms
        if self._delayed_until_ms is not None and self._delayed_until_ms <= now.ms:
            self._delayed_until_ms = None
        return self._delayed_until_ms is not None

    # -- responses

    def _response(
        self,
        beat: StreamsHeartbeat,
        before: StreamsMember,
        after: StreamsMember,
        draft: StreamsDraft,
        configured: Configured,
    ) -> StreamsBeat:
        assert draft.topology is not None
        # A member that reports other tasks may have missed the last response.
        has_else = beat.owned is not None and beat.owned != after.assigned
        sends_assignment = beat.epoch == JOIN or after.assigned != before.assigned or has_else
        known = endpoints(draft.members.values(), draft.topology, configured)
        epoch = endpoints_epoch(known)
        return StreamsBeat(
            after.member_id,
            after.epoch,
            after.assigned if sends_assignment else None,
            endpoints_epoch=epoch,
            endpoints=known if epoch != beat.endpoints_epoch else None,
        )

    def _statuses(
        self, member: StreamsMember, topology: TopologyValue, configured: Configured, *, is_delayed: bool
    ) -> list[GroupStatus]:
        statuses: list[GroupStatus] = []
        if member.about.topology_epoch < topology.epoch:
            detail = (
                f"The member's topology epoch {member.about.topology_epoch} is behind the group's topology epoch "
                f"{topology.epoch}."
            )
            statuses.append(GroupStatus(StatusCode.STALE_TOPOLOGY, detail))
        if is_delayed:
            detail = "Assignment delayed due to the configured initial rebalance delay."
            statuses.append(GroupStatus(StatusCode.ASSIGNMENT_DELAYED, detail))
        if configured.problem is not None:
            statuses.append(configured.problem)
        if self._shut_down_by is not None:
            detail = (
                f"Streams group member {self._shut_down_by} encountered a fatal error and requested a shutdown for the "
                "entire application."
            )
            statuses.append(GroupStatus(StatusCode.SHUTDOWN_APPLICATION, detail))
        return statuses


def _forbidden(beat: StreamsHeartbeat, configured: Configured) -> GroupStatus | None:
    """Return the status of a group with missing topics that the member is not allowed to create; None if it may."""
    if not configured.missing:
        return None
    denied = beat.not_creatable([topic.name for topic in configured.missing])
    if not denied or configured.problem is None:
        return None
    detail = f"{configured.problem.detail}; Unauthorized to CREATE on topics {', '.join(sorted(denied))}."
    return configured.problem._replace(detail=detail)


def check_streams_request(beat: StreamsHeartbeat) -> None:
    """Refuse a heartbeat that is invalid in any group."""
    check_member(beat)
    if len(msgspec.msgpack.encode(_updated(StreamsMemberValue(), beat))) > _MEMBER_MAX_BYTES:
        raise RecordTooLarge(f"the metadata of a member has more than {_MEMBER_MAX_BYTES} bytes")
    if beat.epoch != JOIN:
        if beat.topology is not None:
            raise ProtocolError("only a member that joins may send a topology")
        return
    if beat.owned:
        raise ProtocolError("a member that joins must own no tasks")
    if not beat.process_id:
        raise ProtocolError("a member that joins must send its process id")
    if beat.topology is None:
        raise ProtocolError("a member that joins must send its topology")
    check_topology(beat.topology)


def _updated(about: StreamsMemberValue, beat: StreamsHeartbeat) -> StreamsMemberValue:
    if beat.epoch == JOIN:
        # A join has all fields: the earlier metadata of a static member with this instance id is discarded.
        about = StreamsMemberValue()
    timeout_ms = beat.rebalance_timeout_ms
    return StreamsMemberValue(
        instance_id=about.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=about.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rebalance_timeout_ms=about.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=about.topology_epoch if beat.topology is None else beat.topology.epoch,
        process_id=about.process_id if beat.process_id is None else beat.process_id,
        endpoint=about.endpoint if beat.endpoint is None else beat.endpoint,
        tags=about.tags if beat.tags is None else tuple(sorted(beat.tags)),
    )


def _aim(draft: StreamsDraft, topology: TopologyValue, configured: Configured) -> None:
    """Compute the target for the group's epoch. A member with an older topology has other tasks, and gets none."""
    workers = {
        member_id: TaskTaker(member.about.process_id, draft.targets.get(member_id, NO_TASKS), _tags(member.about))
        for member_id, member in draft.members.items()
        if member.about.topology_epoch == topology.epoch
    }
    stateful = frozenset(one.subtopology_id for one in topology.subtopologies if one.changelog_topics)
    tasks = configured.tasks() if configured.is_ready else frozenset()
    targets = assign_tasks(workers, tasks, stateful, draft.about.standby_replicas)
    size = sum(len(target.active) for target in targets.values())
    invariant(not workers or size == len(tasks), 60, "as many active tasks are assigned as there are")
    for member_id in draft.members:
        draft.aim(member_id, targets.get(member_id, NO_TASKS))
    draft.describe(msgspec.structs.replace(draft.about, target_epoch=draft.about.epoch))


def _place(about: StreamsMemberValue) -> tuple[object, ...]:
    """Return the metadata that affects which tasks a member gets."""
    return about.topology_epoch, about.process_id, about.rack_id, about.tags


def _tags(about: StreamsMemberValue) -> tuple[tuple[str, str], ...]:
    return about.tags if about.rack_id is None else (*about.tags, ("", about.rack_id))
