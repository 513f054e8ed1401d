"""Online upgrade and downgrade of a group between the classic and the consumer protocol. Pure.

Upgrade: every member retains its partitions, at an epoch equal to the generation, and continues to use the classic
protocol, which the consumer group supports as well (`classic_members.py`). Its partitions are those assigned in the
last stable generation and those that it reported as owned in a later join; both are valid also during a rebalance. A
member whose first join has not been answered is left out: it owns nothing, and rejoins.

Downgrade: members have to rejoin, as in any rebalance, and report the partitions that they own or revoke them. No
partition is assigned until all members have joined, or the rebalance timeout is over.
"""

from collections.abc import Iterable, Sequence

from headrace.groups.assignors import Assignment, TopicIdPartition
from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer_member import ConsumerMember
from headrace.groups.consumer_records import (
    ClassicMember,
    ConsumerGroupValue,
    ConsumerKey,
    ConsumerValue,
    CurrentKey,
    MemberKey,
    SubscriptionValue,
    TargetKey,
    TargetValue,
    stored,
)
from headrace.groups.group import GroupLimits, Now
from headrace.groups.members import Member
from headrace.groups.records import GroupKey, GroupRecord
from headrace.groups.subscription import (
    CONSUMER,
    MemberSubscription,
    TopicPartitions,
    read_assignment,
    read_subscription,
    write_assignment,
)
from headrace.model.errors import GroupNotFound
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage
from headrace.model.invariants import invariant

Record = tuple[GroupKey | ConsumerKey, ConsumerGroupValue]


def to_consumer(group: ClassicGroup, image: ClusterImage, limits: GroupLimits) -> list[Record]:
    """Return the records that upgrade a classic group; `GroupNotFound` with the reason if that is not possible."""
    if not limits.consumer.can_upgrade:
        raise _cannot(group, "group.consumer.migration.policy does not allow it")
    if group.protocol_type != CONSUMER:
        raise _cannot(group, f"it has the protocol type {group.protocol_type}")
    if len(group.members) > limits.consumer.max_size:
        raise _cannot(group, f"it has more members than group.consumer.max.size={limits.consumer.max_size}")
    members = [(member, _subscription(group, member)) for member in group.members.values() if not member.is_new]
    held = _held(group, members, image)
    epoch = group.generation
    # The group comes first: if a crash loses the other records, members have to rejoin, and no epoch goes back.
    records: list[Record] = [(GroupKey(group.group_id), ConsumerValue(epoch, epoch))]
    for member, subscription in members:
        now = ConsumerMember(member.member_id, epoch=epoch, previous_epoch=epoch, assigned=held[member.member_id])
        records += [
            (MemberKey(group.group_id, member.member_id), _wants(member, subscription)),
            (TargetKey(group.group_id, member.member_id), TargetValue(stored(now.assigned))),
            (CurrentKey(group.group_id, member.member_id), now.current()),
        ]
    return records


def to_classic(
    group_id: str,
    epoch: int,
    members: Sequence[ConsumerMember],
    image: ClusterImage,
    limits: GroupLimits,
    now: Now,
) -> tuple[ClassicGroup, GroupRecord]:
    """Downgrade a consumer group whose members all use the classic protocol. Returns the group and its record."""
    group = ClassicGroup(group_id, limits, now.wall_ms)
    return group, group.take_over(epoch, [_classic(member, image) for member in members], now)


def places(named: Iterable[TopicPartitions], image: ClusterImage) -> Assignment:
    """Resolve partitions given by topic name to topic ids, and drop those that do not exist."""
    return frozenset(
        TopicIdPartition(topic.topic_id, partition)
        for name, partitions in named
        if (topic := image.topics.get(TopicName(name))) is not None
        for partition in partitions
        if 0 <= partition < len(topic.partitions)
    )


def assignment_for(member: ConsumerMember, held: Assignment, image: ClusterImage) -> bytes:
    """Encode the assignment of a member of the classic protocol, in the version of its subscription."""
    subscription = None if member.about.classic is None else read_subscription(member.about.classic.protocols[0][1])
    names = image.topic_names
    named = ((names[topic_id], numbers) for topic_id, numbers in stored(held) if topic_id in names)
    return write_assignment(0 if subscription is None else subscription.version, named)


def _held(
    group: ClassicGroup, members: Sequence[tuple[Member, MemberSubscription]], image: ClusterImage
) -> dict[str, Assignment]:
    """Return the partitions of each member. No two members get the same one, even if both report that they own it."""
    held: dict[str, Assignment] = {}
    taken: set[TopicIdPartition] = set()
    for member, _ in members:
        assigned = read_assignment(group.last_assignment(member.member_id))
        if assigned is None:
            raise _cannot(group, "an assignment of its members cannot be decoded")
        held[member.member_id] = places(assigned, image) - taken
        taken |= held[member.member_id]
    for member, subscription in members:
        more = places(subscription.owned, image) - taken
        held[member.member_id] |= more
        taken |= more
    invariant(len(taken) == sum(map(len, held.values())), 25, "no partition is held by two members")
    return held


def _subscription(group: ClassicGroup, member: Member) -> MemberSubscription:
    subscription = read_subscription(member.protocols[0][1])
    if subscription is None:
        raise _cannot(group, f"the subscription of the member {member.member_id} cannot be decoded")
    return subscription


def _wants(member: Member, subscription: MemberSubscription) -> SubscriptionValue:
    return SubscriptionValue(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=tuple(sorted(subscription.topics)),
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )


def _classic(member: ConsumerMember, image: ClusterImage) -> Member:
    wants = member.about
    assert wants.classic is not None
    return Member(
        member.member_id,
        wants.instance_id,
        wants.client_id,
        wants.client_host,
        wants.classic.session_timeout_ms,
        wants.rebalance_timeout_ms,
        wants.classic.protocols,
        assignment_for(member, member.holds, image),
    )


def _cannot(group: ClassicGroup, reason: str) -> GroupNotFound:
    return GroupNotFound(f"the classic group {group.group_id} cannot become a consumer group: {reason}")
