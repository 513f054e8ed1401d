"""The text of receipts: a version and the topic's id, then offset and attempt in hexadecimal.

Brokers write and read them. The SDK writes those of messages that it received as ranges, whose answer has none.
"""

from base64 import urlsafe_b64encode
from struct import Struct
from uuid import UUID

LAYOUT = Struct(">QI")
VERSION = "1"
PREFIX_LENGTH = 23
LENGTH = PREFIX_LENGTH + 2 * LAYOUT.size


def receipt_prefix(topic_id: UUID) -> str:
    """What all receipts of a queue begin with."""
    return VERSION + urlsafe_b64encode(topic_id.bytes).decode("ascii").rstrip("=")


def receipt_text(prefix: str, offset: int, attempt: int) -> str:
    return prefix + LAYOUT.pack(offset, attempt & 0xFFFF_FFFF).hex()
