"""The read-only settings of a mirror topic that say where its records are from. Pure.

They belong to the topic, not to each record: batches are copied byte for byte. A topic that was taken over keeps them.
"""

from typing import NamedTuple
from uuid import UUID

_EPOCHS = 2**31
"""Leader epochs have 32 bits."""

MIRROR_SOURCE = "mirror.source"
"""The cluster id and the topic that it is copied from, or was before it was taken over."""
MIRROR_STATE = "mirror.state"
"""mirroring, paused, promoting, faulted, or stopped: a topic that was taken over, and is like any other now."""
MIRROR_LINK = "mirror.link"
"""The name of the link that fills it, or did, and its id."""
MIRROR_ORIGINS = "mirror.origins"
"""The ids of all clusters whose records it may have, besides those that were written here, by comma."""
MIRROR_PROMOTION = "mirror.promotion"
"""Of a topic that was taken over: a `Promotion` as text."""


class Promotion(NamedTuple):
    """Where a topic that was taken over was copied from, as its own cluster tells others."""

    cluster_id: str
    topic_id: UUID
    promoted_epoch: int
    """The lowest leader epoch of its own writes: everything before is the source's."""

    def text(self) -> str:
        return f"{self.cluster_id}/{self.topic_id}/{self.promoted_epoch}"


def read_promotion(text: str) -> Promotion | None:
    """The promotion in the setting `mirror.promotion` of another cluster; None if it is not one."""
    try:
        cluster_id, topic_id, epoch = text.rsplit("/", 2)
        found = Promotion(cluster_id, UUID(topic_id), int(epoch))
    except ValueError:
        return None
    return found if 0 <= found.promoted_epoch < _EPOCHS else None
