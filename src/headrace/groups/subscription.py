"""The one part of a consumer's subscription that the broker looks into: the names of the topics.

    version 2 bytes, topic count 4 bytes, then per topic: length 2 bytes, name; what follows is the clients' business.

Everything else that members tell each other passes through unread.
"""

from struct import Struct
from struct import error as StructError

CONSUMER = "consumer"
"""The protocol type of groups whose members are consumers; others (Kafka Connect, say) write what they like."""

_HEAD = Struct(">hi")
_LENGTH = Struct(">h")


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics a consumer subscribes to; None if these bytes are not a consumer's subscription."""
    topics: set[str] = set()
    try:
        version, count = _HEAD.unpack_from(subscription)
        at = _HEAD.size
        if version < 0 or not 0 <= count <= len(subscription):
            return None
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(subscription, at)
            at += _LENGTH.size
            if not 0 <= length <= len(subscription) - at:
                return None
            topics.add(str(subscription[at : at + length], "utf-8"))
            at += length
    except (StructError, UnicodeDecodeError):
        return None
    return frozenset(topics)
