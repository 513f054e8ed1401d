"""A share group (KIP-932): its members take records of the same partitions, and none of them owns any. Pure.

The broker assigns; every partition of a subscribed topic has at least one member. Nobody has to give up anything before
somebody else gets it, so a member goes to its target with its next heartbeat. What a member may do with single records
is decided where their partition is led, by share sessions and acquisition locks; the group knows who is there.

Epochs and assignments are durable: after a restart members go on at the epoch at which they were. A member that is
silent for the session timeout is removed; it learns so from its next heartbeat and joins again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

import msgspec

from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.assignors import Assignment, Subscriber, assign_shared
from headrace.groups.consumer_records import MemberKey, TargetKey, restored, stored
from headrace.groups.deadlines import Deadline, MemberDeadlines
from headrace.groups.group import JOIN, LEAVE, Beat, Effects, Group, GroupLimits, Now, Reply
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
    """What a member says. None where nothing changed."""

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
        """The last image whose topics were compared with those that the target was made for."""
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

    # -- what every group is

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_idle(self) -> bool:
        """Share groups are deleted by their users: where they are in their partitions must not be forgotten."""
        return False

    def check_commit(
        self, by: Committer, *, transactional: bool, now: Now, commits: Sequence[OffsetCommit] = ()
    ) -> None:
        raise GroupNotFound(f"the group {self.group_id} is a share group: it has no committed offsets")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """As in Kafka: it is answered, and there are none."""

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
        """A member lives, comes or goes. `waiter` is answered when what follows from it is committed."""
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
        is_told = beat.epoch == JOIN or beat.topics is not None or after.assigned != before.assigned
        told = Beat(beat.member_id, after.epoch, restored(after.assigned) if is_told else None)
        return [Outcome(draft.records(), [Reply(waiter, Result(told))])]

    def _entered(self, beat: ShareHeartbeat) -> ShareMemberValue:
        """The member that a heartbeat speaks of, as it was before."""
        if beat.epoch == JOIN:
            member = self.members.get(beat.member_id)
            if member is None and len(self.members) >= self._limits.max_size:
                raise GroupFull(
                    f"the group {self.group_id} has group.share.max.size={self._limits.max_size} members already"
                )
            return member or ShareMemberValue()
        member = self._member(beat.member_id)
        # One that missed our last answer is listened to.
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
        """Members are gone, and what they had has others: these learn so at their next heartbeats."""
        draft = _Draft(self)
        for member_id in member_ids:
            draft.remove(member_id)
            self._deadlines.remove(member_id)
        self._follow(draft, image, has_changed=True)
        return draft.records()

    # -- who has what

    def begun(self, topic_ids: Iterable[UUID]) -> Sequence[GroupRecord]:
        """The records that say that there is state of these topics, as when somebody has set offsets in them."""
        return self._begun(tuple(sorted({*self.about.begun, *topic_ids})))

    def forget_topics(self, topic_ids: Iterable[UUID]) -> Sequence[GroupRecord]:
        """There is no state of these topics any more."""
        return self._begun(tuple(sorted(set(self.about.begun) - set(topic_ids))))

    def _begun(self, topic_ids: tuple[UUID, ...]) -> Sequence[GroupRecord]:
        if topic_ids == self.about.begun:
            return ()
        return [(GroupKey(self.group_id), msgspec.structs.replace(self.about, begun=topic_ids))]

    def _follow(self, draft: "_Draft", image: ClusterImage, *, has_changed: bool) -> None:
        """If members want something else, or the topics they want are others than before or have grown, make a target
        for that."""
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
    """Changes to a group while a request is worked on, and the records that make them."""

    def __init__(self, group: ShareGroup) -> None:
        self.about = group.about
        self.members = dict(group.members)
        self.targets = dict(group.targets)
        self._group_id = group.group_id
        self._changes: dict[Key, Value | None] = {}
        self._first: list[GroupRecord] = []

    def records(self) -> list[GroupRecord]:
        """Many records are more than one batch, and a crash may leave the first of them alone. So a new epoch comes
        first, with a target that is behind it: the next heartbeat then makes a whole one."""
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
    """Refuse what no member may say, whatever the group is like."""
    if not beat.member_id:
        raise ProtocolError("a heartbeat must have a member id")
    check_name(beat.member_id)
    if beat.rack_id is not None and not beat.rack_id.strip():
        raise ProtocolError("the rack id of a member is empty")
    if beat.epoch < LEAVE:
        raise ProtocolError(f"the member epoch {beat.epoch} has no meaning")
    if beat.epoch == JOIN and beat.topics is None:
        raise ProtocolError("a member that joins must say which topics it wants")


def _topics(member: ShareMemberValue, image: ClusterImage) -> Iterator[TopicImage]:
    """The topics that a member wants, as far as they exist."""
    for name in member.topics:
        topic = image.topics.get(TopicName(name))
        if topic is not None:
            yield topic


def _hash(counts: Mapping[UUID, int]) -> bytes:
    digest = blake2b(digest_size=8)
    for topic_id in sorted(counts):
        digest.update(topic_id.bytes + counts[topic_id].to_bytes(4))
    return digest.digest()
