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
        found = self.parse(text)
        if isinstance(found, InvalidReceipt):
            raise found
        return found

    def parse(self, text: str) -> Receipt | InvalidReceipt:
        """Like `read`, with the error as a result: one that was never raised has no traceback, which would refer to
        the frames that hold it."""
        try:
            numbers = bytes.fromhex(text[_PREFIX_LENGTH:])
        except ValueError:
            numbers = b""
        # They have the right length only if all characters are hexadecimal digits.
        if len(numbers) != _LAYOUT.size or len(text) != _LENGTH or text[0] != _VERSION:
            return InvalidReceipt("the receipt handle is not one of this service")
        if not text.startswith(self._prefix):
            return InvalidReceipt("the receipt handle is of another queue")
        return Receipt._make(_LAYOUT.unpack(numbers))
