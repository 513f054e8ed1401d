"""What is stored of a consumer group (KIP-848) in `__consumer_offsets`, beside its record under `["group", group]`.

key                           value              meaning
["group", group]              ["consumer-1", …]  the group: its epoch, that of its target, what it was made from
["member", group, member]     ["member-1", …]    a member: who it is and what it wants
["target", group, member]     ["target-1", …]    what the member shall read
["current", group, member]    ["current-1", …]   what the member may read now, and what it has yet to give up
"""

from collections.abc import Iterable
from itertools import groupby
from uuid import UUID

import msgspec

from headrace.groups.assignors import Assignment, TopicIdPartition

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
    """Raised whenever members, subscriptions or the topics they mean change."""
    target_epoch: int = 0
    """The epoch that the target assignment was made for."""
    assignor: str = ""
    topics_hash: bytes = b""
    """Of the ids and partition counts of the subscribed topics, to notice that they changed."""


class ClassicMember(msgspec.Struct, array_like=True, frozen=True):
    """What is known of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """What it can speak, best first, with what it says under each."""


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


def restored(places: Iterable[tuple[UUID, Iterable[int]]]) -> Assignment:
    return frozenset(
        TopicIdPartition(topic_id, partition) for topic_id, partitions in places for partition in partitions
    )
