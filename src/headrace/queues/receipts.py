"""Receipts: what a receiver shows to acknowledge a message. They name the queue, the message and the attempt."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from headrace.model.errors import InvalidReceipt

_LAYOUT = Struct(">B16sQIB")
_VERSION = 1
_LENGTH = 40


class Receipt(NamedTuple):
    offset: int
    attempt: int


def receipt_for(topic_id: UUID, offset: int, attempt: int) -> str:
    body = _LAYOUT.pack(_VERSION, topic_id.bytes, offset, attempt & 0xFFFF_FFFF, 0)
    return urlsafe_b64encode(body).decode("ascii")


def read_receipt(text: str, topic_id: UUID) -> Receipt:
    """`InvalidReceipt` unless it is one of this queue."""
    try:
        if len(text) != _LENGTH:
            raise InvalidReceipt("the receipt handle is not one of this service")
        version, topic, offset, attempt, _ = _LAYOUT.unpack(urlsafe_b64decode(text))
    except (ValueError, Base64Error):
        raise InvalidReceipt("the receipt handle is not one of this service") from None
    if version != _VERSION:
        raise InvalidReceipt("the receipt handle is not one of this service")
    if topic != topic_id.bytes:
        raise InvalidReceipt("the receipt handle is of another queue")
    return Receipt(offset, attempt)
