"""The target assignment of a consumer group, and the topics that its members subscribe to. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from uuid import UUID

from headrace.groups.assignors import ASSIGNORS, Subscriber
from headrace.groups.consumer_member import ConsumerMember
from headrace.groups.consumer_records import ConsumerValue
from headrace.groups.consumer_state import ConsumerDraft, ConsumerState
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage, TopicImage
from headrace.model.invariants import invariant
from headrace.model.patterns import topic_pattern


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """The topics that a client may see, by one version of the access rules."""

    rules: object
    """The access rules: another object after each change of them."""
    client: Hashable
    """The client, as the rules identify it."""
    shows: Callable[[str], bool] = field(compare=False)


class SubscribedTopics:
    """The topics that subscriptions match in the last image.

    A pattern matches only topics that its member may see: each member has the filter of its last heartbeat. Filters are
    not persisted. A target may therefore have topics that a member must not see until its next heartbeat, which
    computes a new one before it is answered.
    """

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._matching: dict[tuple[str, TopicFilter | None], tuple[TopicImage, ...]] = {}
        self._filters: dict[str, TopicFilter] = {}
        """The filters of members; one without an entry may see all topics."""
        self._is_checked = False

    def restrict(self, member: ConsumerMember, topic_filter: TopicFilter | None, image: ClusterImage) -> bool:
        """Set the filter of a member. Returns whether its pattern matches other topics by that."""
        before = self._filters.get(member.member_id)
        if before == topic_filter:
            return False
        if topic_filter is None:
            del self._filters[member.member_id]
        else:
            self._filters[member.member_id] = topic_filter
        pattern = member.about.pattern
        if pattern is None:
            return False
        self._look_at(image)
        return self._matches(pattern, before, image) != self._matches(pattern, topic_filter, image)

    def retain(self, member_ids: Collection[str]) -> None:
        """Drop the filters of all other members."""
        if self._filters.keys() - member_ids:
            self._filters = {name: each for name, each in self._filters.items() if name in member_ids}

    def forget(self) -> None:
        """Note that subscriptions changed, so that the topics are compared again."""
        self._is_checked = False

    def follow(self, image: ClusterImage, draft: ConsumerDraft) -> None:
        """Raise the epoch if the ids or partition counts of the subscribed topics in an image changed."""
        self._look_at(image)
        if self._is_checked:
            return
        self._is_checked = True
        found = self._hash(draft.members.values())
        about = draft.about
        if found != about.topics_hash:
            draft.describe(ConsumerValue(about.epoch, about.target_epoch, about.assignor, found))
            draft.bump()

    def have_changed(self, image: ClusterImage, state: ConsumerState) -> bool:
        """Whether the next call of `follow` raises the epoch."""
        self._look_at(image)
        if not self._is_checked:
            self._is_checked = self._hash(state.members.values()) == state.about.topics_hash
        return not self._is_checked

    def _look_at(self, image: ClusterImage) -> None:
        if self._image is None or self._image.revision != image.revision:
            self._image = image
            self._matching.clear()
            self._is_checked = False

    def of(self, member: ConsumerMember) -> Iterator[TopicImage]:
        """Yield the existing topics of a member's subscription."""
        assert self._image is not None
        wants = member.about
        for name in wants.topics:
            topic = self._image.topics.get(TopicName(name))
            if topic is not None:
                yield topic
        if wants.pattern is not None:
            yield from self._matches(wants.pattern, self._filters.get(member.member_id), self._image)

    def _matches(self, text: str, topic_filter: TopicFilter | None, image: ClusterImage) -> tuple[TopicImage, ...]:
        key = text, topic_filter
        found = self._matching.get(key)
        if found is None:
            if topic_filter is None:
                pattern = topic_pattern(text)
                found = tuple(
                    topic for name, topic in image.topics.items() if not topic.is_internal and pattern.matches(name)
                )
            else:
                found = tuple(topic for topic in self._matches(text, None, image) if topic_filter.shows(topic.name))
            self._matching[key] = found
        return found

    def _hash(self, members: Iterable[ConsumerMember]) -> bytes:
        topics = {topic.topic_id: topic for member in members for topic in self.of(member)}
        digest = blake2b(digest_size=8)
        for topic_id in sorted(topics):
            digest.update(topic_id.bytes + len(topics[topic_id].partitions).to_bytes(4))
        return digest.digest()


def aim(draft: ConsumerDraft, topics: SubscribedTopics, default_assignor: str) -> None:
    """Compute the target for the group's epoch."""
    topics.retain(draft.members.keys())
    counts: dict[UUID, int] = {}
    subscribers: dict[str, Subscriber] = {}
    for member_id, member in draft.members.items():
        wanted: dict[UUID, int] = {topic.topic_id: len(topic.partitions) for topic in topics.of(member)}
        counts.update(wanted)
        held = draft.targets.get(member_id, frozenset())
        subscribers[member_id] = Subscriber(frozenset(wanted), held, member.about.instance_id)
    name = _elected(draft, default_assignor)
    targets = ASSIGNORS[name](subscribers, counts)
    size = sum(map(len, targets.values()))
    invariant(size == sum(counts.values()), 24, "as many partitions are assigned as are subscribed to")
    invariant(size == len(frozenset[object]().union(*targets.values())), 24, "no partition is assigned twice")
    for member_id, target in targets.items():
        draft.aim(member_id, target)
    about = draft.about
    draft.describe(ConsumerValue(about.epoch, about.epoch, name, about.topics_hash))


def _elected(draft: ConsumerDraft, default: str) -> str:
    """Return the assignor that most members request; a tie goes to the first by name."""
    votes = Counter(member.about.assignor for member in draft.members.values() if member.about.assignor in ASSIGNORS)
    if not votes:
        return default
    return min(votes, key=lambda name: (-votes[name], str(name))) or default
