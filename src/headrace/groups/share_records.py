"""What is stored of a share group (KIP-932) in `__consumer_offsets`.

key                           value                  meaning
["group", group]              ["share-1", …]         the group: its epoch, and of which topics there is state
["member", group, member]     ["share-member-1", …]  a member: who it is, what it wants, what it has
["target", group, member]     ["share-target-1", …]  what the member shall have

Which records of a partition the group is done with is not here: see `queues/`, which keeps it where the partition is
led.
"""

from uuid import UUID

import msgspec

from headrace.groups.consumer_records import StoredPlaces


class ShareValue(msgspec.Struct, array_like=True, frozen=True, tag="share-1"):
    epoch: int = 0
    """Raised whenever members, subscriptions or the topics they mean change."""
    target_epoch: int = 0
    """The epoch that the target assignment was made for."""
    topics_hash: bytes = b""
    """Of the ids and partition counts of the subscribed topics, to notice that they changed."""
    begun: tuple[UUID, ...] = ()
    """The topics of which members have had partitions: there is state of them to describe, to reset and to delete."""


class ShareMemberValue(msgspec.Struct, array_like=True, frozen=True, tag="share-member-1"):
    epoch: int = 0
    previous_epoch: int = 0
    """Where it was before: it is still listened to with that, since it may have missed our answer."""
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    assigned: StoredPlaces = ()


class ShareTargetValue(msgspec.Struct, array_like=True, frozen=True, tag="share-target-1"):
    places: StoredPlaces


ShareGroupValue = ShareValue | ShareMemberValue | ShareTargetValue
