"""A streams group (KIP-1071): the members of a Kafka Streams application, whose tasks the broker assigns. Pure.

The first member brings the topology: what the application reads, repartitions and stores. While members are in the
group all of them have the same one; whoever comes first into an empty group brings it anew. From it and the topics that
there are the tasks follow (`streams_topology.py`); topics that the application needs for itself and that do not exist
are created, and until all topics are there nobody has tasks.

As in consumer groups the group has an epoch, which rises when members, the topology, its topics or the number of
standbys change, and a target: who shall have which tasks at that epoch (`streams_assignor.py`). Members go from what
they have to their target one by one (`streams_reconciliation.py`).

Everything but deadlines and a call to shut down is durable. A member that is silent for the session timeout, or does
not give up what it must within its own rebalance timeout, is removed; it learns so from its next heartbeat and joins
again. A static member that says it comes back keeps its tasks for the session timeout, and whoever comes with its
instance id takes its place.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.consumer_roster import Deadlines
from headrace.groups.group import JOIN, LEAVE, CreateTopics, Effects, Now, Reply
from headrace.groups.reconciliation import LEFT_FOR_NOW, Phase
from headrace.groups.streams_assignor import TaskTaker, assign_tasks
from headrace.groups.streams_endpoints import EndpointPartitions, endpoints, endpoints_epoch
from headrace.groups.streams_reconciliation import StreamsMember, reconcile_tasks
from headrace.groups.streams_records import StreamsMemberValue, TopologyValue
from headrace.groups.streams_roster import StreamsRoster
from headrace.groups.streams_state import StreamsDraft
from headrace.groups.streams_tasks import NO_TASKS, TaskSet
from headrace.groups.streams_topology import Configured, GroupStatus, StatusCode, check_topology
from headrace.model.errors import (
    FencedMemberEpoch,
    InvalidTopology,
    InvalidTopologyEpoch,
    ProtocolError,
    RecordTooLarge,
    UnreleasedInstance,
)
from headrace.model.image import ClusterImage
from headrace.runtime.deferred import Deferred

_MEMBER_MAX_BYTES = 64 * 1024
"""It is one record, and goes to all who describe the group."""


class StreamsHeartbeat(NamedTuple):
    """What a member says. None, or -1 for the timeout, where nothing changed."""

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
    """Whether the whole application is to end."""
    endpoints_epoch: int = -1
    """Of what it was last told of endpoints."""
    client_id: str = ""
    client_host: str = ""


class StreamsBeat(NamedTuple):
    """What a member is told that has sent a heartbeat."""

    member_id: str
    epoch: int
    tasks: TaskSet | None = None
    """What it shall have from now on; None if that did not change."""
    statuses: Sequence[GroupStatus] = ()
    endpoints_epoch: int = 0
    endpoints: Sequence[EndpointPartitions] | None = None
    """None if they are as it knows them."""


class StreamsGroup(StreamsRoster):
    def heartbeat(
        self, beat: StreamsHeartbeat, image: ClusterImage, waiter: Deferred[Result[StreamsBeat]], now: Now
    ) -> Effects:
        """A member lives, comes or goes. `waiter` is answered when what follows from it is committed."""
        if beat.epoch in (LEAVE, LEFT_FOR_NOW):
            return self._leave(beat, waiter, now)
        draft = StreamsDraft(self._state)
        before = self._entered(beat, draft)
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
        after = reconcile_tasks(
            member,
            draft.about.target_epoch,
            draft.targets.get(member.member_id, NO_TASKS),
            beat.owned,
            lambda task: draft.is_free_active(member, task),
            lambda task: draft.is_free_standby(member, task),
        )
        if beat.epoch == JOIN:
            # Whatever it did under its id before, it has given it up: no commit of then counts any more.
            after = replace(after, since=dict.fromkeys(after.holds.active, after.epoch))
        draft.put(after)
        self._heard_of(before, after, now)
        if beat.shuts_down:
            self._shut_down_by = beat.member_id
        told = self._told(beat, before, after, draft, configured)
        statuses = tuple(self._statuses(after, topology, configured, is_delayed=is_delayed))
        effects: Effects = [Outcome(draft.records(), [Reply(waiter, Result(told._replace(statuses=statuses)))])]
        if configured.missing:
            effects.append(CreateTopics(self.group_id, configured.missing))
        return effects

    # -- members

    def _entered(self, beat: StreamsHeartbeat, draft: StreamsDraft) -> StreamsMember:
        """The member that a heartbeat speaks of, as it was before; a new one, or one that takes another's place."""
        members, instance_id = draft.members, beat.instance_id
        known = members.get(beat.member_id)
        holder = members.get(self._state.static.get(instance_id, "")) if instance_id is not None else None
        if beat.epoch != JOIN:
            if instance_id is not None:
                self._check_instance(instance_id, beat.member_id)
            member = self._member(beat.member_id)
            _check_epoch(member, beat)
            return member
        if holder is not None and holder is not known:
            if holder.epoch != LEFT_FOR_NOW:
                raise UnreleasedInstance(
                    f"the static member {instance_id} has not left: stop it, or wait for its session to end"
                )
            return self._take_over(holder, beat.member_id, draft)
        return self._new_member(beat.member_id) if known is None else known

    def _take_over(self, holder: StreamsMember, member_id: str, draft: StreamsDraft) -> StreamsMember:
        """A static member is back under another id: it has what it had, and shall have what it should have."""
        target = draft.targets.get(holder.member_id)
        draft.remove(holder.member_id)
        self._deadlines.pop(holder.member_id, None)
        member = replace(holder, member_id=member_id, epoch=JOIN, previous_epoch=JOIN)
        draft.put(member)
        if target is not None:
            draft.aim(member_id, target)
        return member

    def _leave(self, beat: StreamsHeartbeat, waiter: Deferred[Result[StreamsBeat]], now: Now) -> Effects:
        if beat.instance_id is not None:
            self._check_instance(beat.instance_id, beat.member_id)
        member = self._member(beat.member_id)
        left = Reply(waiter, Result(StreamsBeat(member.member_id, beat.epoch)))
        if beat.epoch != LEFT_FOR_NOW:
            return [Outcome(self._without([member.member_id]), [left])]
        draft = StreamsDraft(self._state)
        draft.put(member.with_tasks(LEFT_FOR_NOW, Phase.STABLE, member.assigned, NO_TASKS))
        self._set_deadlines(member.member_id, Deadlines(now.ms + self._session_timeout_ms))
        return [Outcome(draft.records(), [left])]

    # -- the topology

    def _topology_with(self, beat: StreamsHeartbeat, draft: StreamsDraft) -> TopologyValue:
        """The group's topology. An empty group takes that of whoever joins."""
        brings, has = beat.topology, draft.topology
        if brings is not None and (has is None or not draft.members):
            draft.initialize(brings)
            return brings
        if has is None:
            # A restart found the first records of a join only: there is nobody who could know the topology.
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
        """Look at an image: if the topics of the topology are others than before, or the number of standbys is, there
        must be a target for that."""
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
        """Whether the first members of the group still wait for more of them, so that tasks need not move at once."""
        delay_ms = self._limits.initial_delay_of(self.group_id)
        if is_first and delay_ms:
            self._delayed_until_ms = now.ms + delay_ms
        if self._delayed_until_ms is not None and self._delayed_until_ms <= now.ms:
            self._delayed_until_ms = None
        return self._delayed_until_ms is not None

    # -- answers

    def _told(
        self,
        beat: StreamsHeartbeat,
        before: StreamsMember,
        after: StreamsMember,
        draft: StreamsDraft,
        configured: Configured,
    ) -> StreamsBeat:
        assert draft.topology is not None
        # One that says it has something else may have missed our last answer.
        has_else = beat.owned is not None and beat.owned != after.assigned
        is_told = beat.epoch == JOIN or after.assigned != before.assigned or has_else
        known = endpoints(draft.members.values(), draft.topology, configured)
        epoch = endpoints_epoch(known)
        return StreamsBeat(
            after.member_id,
            after.epoch,
            after.assigned if is_told else None,
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


def check_streams_request(beat: StreamsHeartbeat) -> None:
    """Refuse what no member may say, whatever the group is like."""
    if not beat.member_id:
        raise ProtocolError("a heartbeat must have a member id")
    for name, text in (("instance id", beat.instance_id), ("rack id", beat.rack_id)):
        if text is not None and not text.strip():
            raise ProtocolError(f"the {name} of a member is empty")
    if len(msgspec.msgpack.encode(_updated(StreamsMemberValue(), beat))) > _MEMBER_MAX_BYTES:
        raise RecordTooLarge(f"what a member says of itself has more than {_MEMBER_MAX_BYTES} bytes")
    if beat.epoch < LEFT_FOR_NOW:
        raise ProtocolError(f"the member epoch {beat.epoch} has no meaning")
    if beat.epoch == LEFT_FOR_NOW and beat.instance_id is None:
        raise ProtocolError("only a member with an instance id can leave to come back")
    if beat.epoch != JOIN:
        if beat.topology is not None:
            raise ProtocolError("only a member that joins may say its topology")
        return
    if beat.rebalance_timeout_ms == -1:
        raise ProtocolError("a member that joins must say its rebalance timeout")
    if beat.owned:
        raise ProtocolError("a member that joins must have given up its tasks")
    if not beat.process_id:
        raise ProtocolError("a member that joins must say its process id")
    if beat.topology is None:
        raise ProtocolError("a member that joins must say its topology")
    check_topology(beat.topology)


def _check_epoch(member: StreamsMember, beat: StreamsHeartbeat) -> None:
    if beat.epoch == member.epoch:
        return
    # It may have missed our last answer: then it has nothing that was taken from it since.
    if (
        beat.epoch == member.previous_epoch
        and beat.epoch < member.epoch
        and beat.owned is not None
        and beat.owned <= member.assigned
    ):
        return
    raise FencedMemberEpoch(
        f"the member {member.member_id} is at epoch {member.epoch}, not {beat.epoch}: "
        "it must give up its tasks and join again"
    )


def _updated(about: StreamsMemberValue, beat: StreamsHeartbeat) -> StreamsMemberValue:
    if beat.epoch == JOIN:
        # Who joins says everything: whatever a static member was before under its instance id is past.
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
    """Make the target for the group's epoch. A member with an older topology knows other tasks, and gets none."""
    workers = {
        member_id: TaskTaker(member.about.process_id, draft.targets.get(member_id, NO_TASKS), _tags(member.about))
        for member_id, member in draft.members.items()
        if member.about.topology_epoch == topology.epoch
    }
    stateful = frozenset(one.subtopology_id for one in topology.subtopologies if one.changelog_topics)
    tasks = configured.tasks() if configured.is_ready else frozenset()
    targets = assign_tasks(workers, tasks, stateful, draft.about.standby_replicas)
    for member_id in draft.members:
        draft.aim(member_id, targets.get(member_id, NO_TASKS))
    draft.describe(msgspec.structs.replace(draft.about, target_epoch=draft.about.epoch))


def _place(about: StreamsMemberValue) -> tuple[object, ...]:
    """What decides which tasks a member gets."""
    return about.topology_epoch, about.process_id, about.rack_id, about.tags


def _tags(about: StreamsMemberValue) -> tuple[tuple[str, str], ...]:
    return about.tags if about.rack_id is None else (*about.tags, ("", about.rack_id))
