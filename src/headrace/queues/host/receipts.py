"""Receipts: identify the queue, the message and the attempt of a receive."""

from typing import NamedTuple
from uuid import UUID

from headrace.model.errors import InvalidReceipt
from headrace.model.queue_receipts import LAYOUT, LENGTH, PREFIX_LENGTH, VERSION, receipt_prefix, receipt_text


class Receipt(NamedTuple):
    offset: int
    attempt: int


class Receipts:
    """The receipts of one queue."""

    def __init__(self, topic_id: UUID) -> None:
        self._prefix = receipt_prefix(topic_id)

    def write(self, offset: int, attempt: int) -> str:
        return receipt_text(self._prefix, offset, attempt)

    def write_all(self, first: int, last: int, attempt: int) -> list[str]:
        """The receipts of messages with consecutive offsets."""
        return [self.write(offset, attempt) for offset in range(first, last + 1)]

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
            numbers = bytes.fromhex(text[PREFIX_LENGTH:])
        except ValueError:
            numbers = b""
        # They have the right length only if all characters are hexadecimal digits.
        if len(numbers) != LAYOUT.size or len(text) != LENGTH or text[0] != VERSION:
            return InvalidReceipt("the receipt handle is not one of this service")
        if not text.startswith(self._prefix):
            return InvalidReceipt("the receipt handle is of another queue")
        return Receipt._make(LAYOUT.unpack(numbers))
