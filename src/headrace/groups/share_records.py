"""The records of a share group (KIP-932) in `__consumer_offsets`.

key                           value                  meaning
["group", group]              ["share-1", …]         the group: its epochs, and the topics with state
["member", group, member]     ["share-member-1", …]  a member: its identity, subscription and current assignment
["target", group, member]     ["share-target-1", …]  the target assignment of the member

The state of acknowledged records is not here: the leader of each partition stores it, see `queues/`.
"""

from uuid import UUID

import msgspec

from headrace.groups.consumer_records import StoredPlaces


class ShareValue(msgspec.Struct, array_like=True, frozen=True, tag="share-1"):
    epoch: int = 0
    """Incremented whenever members, subscriptions or the subscribed topics change."""
    target_epoch: int = 0
    """The epoch for which the target assignment was computed."""
    topics_hash: bytes = b""
    """A hash of the ids and partition counts of the subscribed topics, to detect changes."""
    begun: tuple[UUID, ...] = ()
    """The topics of which members have had partitions: they have state to describe, to reset and to delete."""


class ShareMemberValue(msgspec.Struct, array_like=True, frozen=True, tag="share-member-1"):
    epoch: int = 0
    previous_epoch: int = 0
    """The epoch before: still accepted, since the member may have missed the response with the next one."""
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    assigned: StoredPlaces = ()


class ShareTargetValue(msgspec.Struct, array_like=True, frozen=True, tag="share-target-1"):
    places: StoredPlaces


ShareGroupValue = ShareValue | ShareMemberValue | ShareTargetValue
