"""Receipts: identify the queue, the message and the attempt of a receive."""

from base64 import urlsafe_b64encode
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from headrace.model.errors import InvalidReceipt

_LAYOUT = Struct(">QI")
_VERSION = "1"
_PREFIX_LENGTH = 23
_LENGTH = _PREFIX_LENGTH + 2 * _LAYOUT.size


class Receipt(NamedTuple):
    offset: int
    attempt: int


class Receipts:
    """The receipts of one queue: a version and the topic's id, then offset and attempt in hexadecimal."""

    def __init__(self, topic_id: UUID) -> None:
        self._prefix = _VERSION + urlsafe_b64encode(topic_id.bytes).decode("ascii").rstrip("=")

    def write(self, offset: int, attempt: int) -> str:
        return self._prefix + _LAYOUT.pack(offset, attempt & 0xFFFF_FFFF).hex()

    def read(self, text: str) -> Receipt:
        """`InvalidReceipt` unless it is one of this queue."""
        try:
            if len(text) != _LENGTH:
                raise ValueError
            # It has the right length only if all characters are hexadecimal digits.
            numbers = bytes.fromhex(text[_PREFIX_LENGTH:])
            if len(numbers) != _LAYOUT.size or text[0] != _VERSION:
                raise ValueError
        except ValueError:
            raise InvalidReceipt("the receipt handle is not one of this service") from None
        if not text.startswith(self._prefix):
            raise InvalidReceipt("the receipt handle is of another queue")
        return Receipt(*_LAYOUT.unpack(numbers))
