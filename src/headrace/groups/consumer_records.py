"""The records of a consumer group (KIP-848) in `__consumer_offsets`.

key                           value              meaning
["group", group]              ["consumer-1", …]  the group: its epoch, its target epoch, assignor and topics hash
["member", group, member]     ["member-1", …]    a member: its identity and subscription
["target", group, member]     ["target-1", …]    the target assignment of the member
["current", group, member]    ["current-1", …]   the current assignment of the member, and partitions to revoke
"""

from collections.abc import Iterable
from itertools import groupby
from uuid import UUID

import msgspec

from headrace.groups.assignors import Assignment, TopicIdPartition
from headrace.model.image import ClusterImage

StoredPlaces = tuple[tuple[UUID, tuple[int, ...]], ...]
"""Partitions by topic, in order."""


class MemberKey(msgspec.Struct, array_like=True, frozen=True, tag="member"):
    group: str
    member_id: str


class TargetKey(msgspec.Struct, array_like=True, frozen=True, tag="target"):
    group: str
    member_id: str


class CurrentKey(msgspec.Struct, array_like=True, frozen=True, tag="current"):
    group: str
    member_id: str


class ConsumerValue(msgspec.Struct, array_like=True, frozen=True, tag="consumer-1"):
    epoch: int = 0
    """Incremented whenever members, subscriptions or the subscribed topics change."""
    target_epoch: int = 0
    """The epoch for which the target assignment was computed."""
    assignor: str = ""
    topics_hash: bytes = b""
    """A hash of the ids and partition counts of the subscribed topics, to detect changes."""


class ClassicMember(msgspec.Struct, array_like=True, frozen=True):
    """The additional fields of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """The protocols that it supports, preferred first, each with its subscription."""


class SubscriptionValue(msgspec.Struct, array_like=True, frozen=True, tag="member-1"):
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignor: str | None = None
    classic: ClassicMember | None = None
    """None for a member of the consumer protocol."""


class TargetValue(msgspec.Struct, array_like=True, frozen=True, tag="target-1"):
    places: StoredPlaces


class CurrentValue(msgspec.Struct, array_like=True, frozen=True, tag="current-1"):
    epoch: int
    previous_epoch: int
    phase: str
    assigned: StoredPlaces
    revoking: StoredPlaces


ConsumerKey = MemberKey | TargetKey | CurrentKey
ConsumerGroupValue = ConsumerValue | SubscriptionValue | TargetValue | CurrentValue


def stored(places: Assignment) -> StoredPlaces:
    return tuple(
        (topic_id, tuple(place.partition for place in of_topic))
        for topic_id, of_topic in groupby(sorted(places), key=lambda place: place.topic_id)
    )


def by_topic_name(places: StoredPlaces, image: ClusterImage) -> dict[str, tuple[int, ...]]:
    """Partitions by the name of their topic; those of deleted topics are left out."""
    return {image.topic_names[topic_id]: partitions for topic_id, partitions in places if topic_id in image.topic_names}


def restored(places: Iterable[tuple[UUID, Iterable[int]]]) -> Assignment:
    return frozenset(
        TopicIdPartition(topic_id, partition) for topic_id, partitions in places for partition in partitions
    )
