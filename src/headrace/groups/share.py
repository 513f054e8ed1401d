"""A share group (KIP-932): its members consume the same partitions, and own none of them exclusively. Pure.

The broker assigns; every partition of a subscribed topic has at least one member. No member has to revoke a partition
before another one gets it, so a member reaches its target with its next heartbeat. The group manages only membership:
the partition's leader manages access to records, by share sessions and acquisition locks.

Epochs and assignments are persisted: after a restart members continue at their epoch. A member that sends no heartbeat
for the session timeout is removed; its next heartbeat is answered with the error, and it rejoins.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

import msgspec

from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.assignors import Assignment, Subscriber, assign_shared
from headrace.groups.consumer_records import MemberKey, TargetKey, by_topic_name, restored, stored
from headrace.groups.deadlines import Deadline, MemberDeadlines
from headrace.groups.group import JOIN, LEAVE, Beat, Effects, Group, GroupLimits, MemberView, Now, Reply
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.groups.records import GroupKey, GroupRecord, Key, OffsetValue, Value
from headrace.groups.share_records import ShareMemberValue, ShareTargetValue, ShareValue
from headrace.model.errors import FencedMemberEpoch, GroupFull, GroupNotFound, ProtocolError, UnknownMember
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage, TopicImage
from headrace.protocol.fields import check_name
from headrace.runtime.deferred import Deferred

ASSIGNOR = "simple"


class ShareHeartbeat(NamedTuple):
    """A ShareGroupHeartbeat request. A field is None if it did not change."""

    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


class ShareGroup(Group):
    kind = "share"
    protocol_type = "share"

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.about = ShareValue()
        self.members: dict[str, ShareMemberValue] = {}
        self.targets: dict[str, Assignment] = {}
        self._limits = limits.share
        self._checked_revision: int | None = None
        """The revision of the last image that was compared with the topics of the target."""
        self._deadlines = MemberDeadlines()

    def replay(self, key: Key, value: Value | None) -> None:
        if isinstance(value, ShareValue):
            self.about = value
        elif isinstance(key, MemberKey):
            if isinstance(value, ShareMemberValue):
                self.members[key.member_id] = value
            else:
                self.members.pop(key.member_id, None)
        elif isinstance(key, TargetKey):
            if isinstance(value, ShareTargetValue):
                self.targets[key.member_id] = restored(value.places)
            else:
                self.targets.pop(key.member_id, None)

    # -- the interface of all groups

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_idle(self) -> bool:
        """Never: only users delete share groups, since their positions in partitions must not expire."""
        return False

    @property
    def member_count(self) -> int:
        return len(self.members)

    def member_views(self, image: ClusterImage) -> list[MemberView]:
        return [
            MemberView(member_id, None, member.client_id, member.client_host, by_topic_name(member.assigned, image))
            for member_id, member in self.members.items()
        ]

    def check_commit(
        self, by: Committer, *, transactional: bool, now: Now, commits: Sequence[OffsetCommit] = ()
    ) -> None:
        raise GroupNotFound(f"the group {self.group_id} is a share group: it has no committed offsets")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Accept every fetch, as Kafka does: the result is empty."""

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.members.values())

    def offset_base_ms(self, topic: str, value: OffsetValue) -> int | None:
        return value.commit_ms

    def tombstones(self) -> Sequence[GroupRecord]:
        keys: list[Key] = []
        for member_id in self.members.keys() | self.targets.keys():
            keys += [TargetKey(self.group_id, member_id), MemberKey(self.group_id, member_id)]
        return [(key, None) for key in [*keys, GroupKey(self.group_id)]]

    # -- members

    def heartbeat(self, beat: ShareHeartbeat, image: ClusterImage, waiter: Deferred[Result[Beat]], now: Now) -> Effects:
        """Handle a member's heartbeat, join or leave. `waiter` is resolved when the resulting records are committed."""
        if beat.epoch == LEAVE:
            self._member(beat.member_id)
            left = Reply(waiter, Result(Beat(beat.member_id, LEAVE)))
            return [Outcome(self._without([beat.member_id], image), [left])]
        draft = _Draft(self)
        before = self._entered(beat)
        wanted = before.topics if beat.topics is None else tuple(sorted(set(beat.topics)))
        after = msgspec.structs.replace(
            before,
            rack_id=before.rack_id if beat.rack_id is None else beat.rack_id,
            client_id=beat.client_id,
            client_host=beat.client_host,
            topics=wanted,
        )
        is_new = beat.member_id not in self.members
        draft.put(beat.member_id, after)
        self._follow(draft, image, has_changed=is_new or wanted != before.topics)
        target = stored(draft.targets.get(beat.member_id, frozenset()))
        if after.epoch != draft.about.target_epoch or after.assigned != target:
            after = msgspec.structs.replace(
                after, epoch=draft.about.target_epoch, previous_epoch=after.epoch, assigned=target
            )
            draft.put(beat.member_id, after)
        self._heard_of(beat.member_id, now)
        sends_assignment = beat.epoch == JOIN or beat.topics is not None or after.assigned != before.assigned
        response = Beat(beat.member_id, after.epoch, restored(after.assigned) if sends_assignment else None)
        return [Outcome(draft.records(), [Reply(waiter, Result(response))])]

    def _entered(self, beat: ShareHeartbeat) -> ShareMemberValue:
        """Return the sender of a heartbeat, before the heartbeat."""
        if beat.epoch == JOIN:
            member = self.members.get(beat.member_id)
            if member is None and len(self.members) >= self._limits.max_size:
                raise GroupFull(
                    f"the group {self.group_id} has group.share.max.size={self._limits.max_size} members already"
                )
            return member or ShareMemberValue()
        member = self._member(beat.member_id)
        # A member that missed the last response sends its previous epoch.
        if beat.epoch not in (member.epoch, member.previous_epoch):
            raise FencedMemberEpoch(
                f"the member {beat.member_id} is at epoch {member.epoch}, not {beat.epoch}: it must join again"
            )
        return member

    def _member(self, member_id: str) -> ShareMemberValue:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"the group {self.group_id} has no member {member_id}")
        return member

    def _without(self, member_ids: Iterable[str], image: ClusterImage) -> list[GroupRecord]:
        """Remove members. Others get their partitions at their next heartbeats."""
        draft = _Draft(self)
        for member_id in member_ids:
            draft.remove(member_id)
            self._deadlines.remove(member_id)
        self._follow(draft, image, has_changed=True)
        return draft.records()

    # -- topics and targets

    def begun(self, topic_ids: Iterable[UUID]) -> Sequence[GroupRecord]:
        """Return the records that add topics with state, such as when a client sets offsets in them."""
        return self._begun(tuple(sorted({*self.about.begun, *topic_ids})))

    def forget_topics(self, topic_ids: Iterable[UUID]) -> Sequence[GroupRecord]:
        """Return the records that remove topics with state."""
        return self._begun(tuple(sorted(set(self.about.begun) - set(topic_ids))))

    def _begun(self, topic_ids: tuple[UUID, ...]) -> Sequence[GroupRecord]:
        if topic_ids == self.about.begun:
            return ()
        return [(GroupKey(self.group_id), msgspec.structs.replace(self.about, begun=topic_ids))]

    def _follow(self, draft: "_Draft", image: ClusterImage, *, has_changed: bool) -> None:
        """Compute a new target if members, subscriptions, or ids or partition counts of subscribed topics changed."""
        if not has_changed and self._checked_revision == image.revision:
            return
        self._checked_revision = image.revision
        wanted = {member_id: tuple(_topics(member, image)) for member_id, member in draft.members.items()}
        counts: dict[UUID, int] = {
            topic.topic_id: len(topic.partitions) for topics in wanted.values() for topic in topics
        }
        found = _hash(counts)
        if not has_changed and found == self.about.topics_hash and self.about.target_epoch == self.about.epoch:
            return
        subscribers = {
            member_id: Subscriber(
                frozenset(topic.topic_id for topic in topics), self.targets.get(member_id, frozenset())
            )
            for member_id, topics in wanted.items()
        }
        epoch = self.about.epoch + 1
        begun = tuple(sorted({*self.about.begun, *counts}))
        draft.describe(ShareValue(epoch, self.about.target_epoch, found, begun))
        for member_id, target in assign_shared(subscribers, counts).items():
            draft.aim(member_id, target)
        draft.describe(ShareValue(epoch, epoch, found, begun))

    # -- time

    def start(self, now: Now) -> None:
        self._deadlines.clear()
        for member_id in self.members:
            self._heard_of(member_id, now)

    def next_deadline_ms(self) -> float | None:
        return self._deadlines.next_ms()

    def expire(self, image: ClusterImage, now: Now) -> Effects:
        late = self._deadlines.late(now)
        records = self._without(late, image) if late else []
        self._deadlines.rewind()
        return [Outcome(records, ())] if records else []

    def _heard_of(self, member_id: str, now: Now) -> None:
        self._deadlines.set(member_id, Deadline(now.ms + self._limits.session_timeout_of(self.group_id)))


class _Draft:
    """Changes to a group while a request is handled, and their records."""

    def __init__(self, group: ShareGroup) -> None:
        self.about = group.about
        self.members = dict(group.members)
        self.targets = dict(group.targets)
        self._group_id = group.group_id
        self._changes: dict[Key, Value | None] = {}
        self._first: list[GroupRecord] = []

    def records(self) -> list[GroupRecord]:
        """Return the records of all changes.

        Many records may need several batches, and a crash may persist only the first ones. So a new epoch comes first,
        with an older target epoch: the next heartbeat then computes a complete target.
        """
        return self._first + [(key, value) for key, value in self._changes.items()]

    def describe(self, about: ShareValue) -> None:
        key = GroupKey(self._group_id)
        if not self._first:
            self._first.append((key, about))
        self.about = about
        self._put(key, about)

    def put(self, member_id: str, member: ShareMemberValue) -> None:
        if self.members.get(member_id) != member:
            self.members[member_id] = member
            self._put(MemberKey(self._group_id, member_id), member)

    def aim(self, member_id: str, target: Assignment) -> None:
        if self.targets.get(member_id) != target:
            self.targets[member_id] = target
            self._put(TargetKey(self._group_id, member_id), ShareTargetValue(stored(target)))

    def remove(self, member_id: str) -> None:
        self.members.pop(member_id, None)
        self._put(MemberKey(self._group_id, member_id), None)
        if self.targets.pop(member_id, None) is not None:
            self._put(TargetKey(self._group_id, member_id), None)

    def _put(self, key: Key, value: Value | None) -> None:
        self._changes.pop(key, None)
        self._changes[key] = value


def check_request(beat: ShareHeartbeat) -> None:
    """Refuse a heartbeat that is invalid in any group."""
    if not beat.member_id:
        raise ProtocolError("a heartbeat must have a member id")
    check_name(beat.member_id)
    if beat.rack_id is not None and not beat.rack_id.strip():
        raise ProtocolError("the rack id of a member is empty")
    if beat.epoch < LEAVE:
        raise ProtocolError(f"the member epoch {beat.epoch} is not valid")
    if beat.epoch == JOIN and beat.topics is None:
        raise ProtocolError("a member that joins must subscribe to topics")


def _topics(member: ShareMemberValue, image: ClusterImage) -> Iterator[TopicImage]:
    """Yield the existing topics of a member's subscription."""
    for name in member.topics:
        topic = image.topics.get(TopicName(name))
        if topic is not None:
            yield topic


def _hash(counts: Mapping[UUID, int]) -> bytes:
    digest = blake2b(digest_size=8)
    for topic_id in sorted(counts):
        digest.update(topic_id.bytes + counts[topic_id].to_bytes(4))
    return digest.digest()
