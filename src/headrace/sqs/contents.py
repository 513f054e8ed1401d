"""What a message may contain, and how its attributes are checked, kept and summed up.

A body and a text attribute may have the characters that XML 1.0 has. An attribute is kept as a header `sqs.<name>` with
its type, a line feed and its value (see `model.queued`).
"""

import re
from collections.abc import Collection, Mapping
from hashlib import md5
from struct import Struct

import msgspec

from headrace.model.queued import ATTRIBUTE_PREFIX, SYSTEM_ATTRIBUTE_PREFIX
from headrace.queues.api import Headers
from headrace.sqs import errors

MAX_BYTES = 1_048_576
TRACE_HEADER = "AWSTraceHeader"
SENDER_ID = "SenderId"
_SENDER_HEADER = SYSTEM_ATTRIBUTE_PREFIX + SENDER_ID
_MOST_ATTRIBUTES = 10
_MOST_NAME_LENGTH = 256
_NAME = re.compile(r"[A-Za-z0-9_.\-]+")
_TYPE_PREFIXES = ("String", "Number", "Binary")
_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_VALID_BYTES = bytes((9, 10, 13, *range(0x20, 0x100)))
_length = Struct(">I").pack
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


class MessageAttributeValue(msgspec.Struct, omit_defaults=True):
    StringValue: str | None = None
    BinaryValue: bytes | None = None
    StringListValues: list[str] | None = None
    BinaryListValues: list[bytes] | None = None
    DataType: str | None = None


Attributes = Mapping[str, MessageAttributeValue]


def valid_bytes(text: str) -> bytes | None:
    """The text in UTF-8; None if it has characters that XML does not."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        return None
    if encoded.translate(None, _VALID_BYTES):
        return None
    return None if not text.isascii() and ("\ufffe" in text or "\uffff" in text) else encoded


def replace_invalid(text: str) -> str:
    """A text that was sent by another way may have what XML does not: it is shown as U+FFFD."""
    return _INVALID.sub("\ufffd", text)


def body_bytes(text: str) -> bytes:
    encoded = valid_bytes(text)
    if encoded is None:
        raise errors.invalid_message_contents(
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | "
            "#xE000 to #xFFFD | #x10000 to #x10FFFF."
        )
    return encoded


def md5_of(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Attributes) -> str:
    """The sum that clients compare: names, types and values with their lengths, in the order of the names."""
    digest = md5(usedforsecurity=False)
    for name in sorted(attributes):
        value = attributes[name]
        is_binary = value.BinaryValue is not None
        data = (value.BinaryValue or b"") if is_binary else (value.StringValue or "").encode()
        for part in (name.encode(), (value.DataType or "").encode()):
            digest.update(_length(len(part)) + part)
        digest.update((b"\x02" if is_binary else b"\x01") + _length(len(data)) + data)
    return digest.hexdigest()


def check_attributes(attributes: Attributes) -> None:
    if len(attributes) > _MOST_ATTRIBUTES:
        raise errors.invalid_parameter(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{_MOST_ATTRIBUTES}]."
        )
    for name, value in attributes.items():
        _check_name(name)
        _check_value(name, value)


def _check_name(name: str) -> None:
    if not name:
        raise errors.invalid_parameter("The message attribute name must not be empty.")
    if _NAME.fullmatch(name) is None:
        raise errors.invalid_parameter(
            f"The message attribute name '{name}' is invalid. Attribute name can contain A-Z, a-z, 0-9, "
            "underscore (_), hyphen (-), and period (.) characters."
        )
    if len(name) > _MOST_NAME_LENGTH:
        raise errors.invalid_parameter(f"The message attribute name '{name}' is longer than {_MOST_NAME_LENGTH}.")
    is_reserved = name.lower().startswith(("aws.", "amazon."))
    if is_reserved or name.startswith(".") or name.endswith(".") or ".." in name:
        raise errors.invalid_parameter(
            f"You can't use message attribute names beginning with 'AWS.' or 'Amazon.' or with periods at an end or in "
            f"a row: '{name}' is invalid."
        )


def _check_value(name: str, value: MessageAttributeValue) -> None:
    if not value.DataType:
        raise errors.invalid_parameter(
            f"The message attribute '{name}' must contain a non-empty message attribute type."
        )
    kind = value.DataType.partition(".")[0]
    if kind not in _TYPE_PREFIXES:
        raise errors.invalid_parameter(
            f"The message attribute '{name}' has an invalid message attribute type, the set of supported type prefixes "
            "is Binary, Number, and String."
        )
    if len(value.DataType) > _MOST_NAME_LENGTH:
        raise errors.invalid_parameter(
            f"The type of the message attribute '{name}' is longer than {_MOST_NAME_LENGTH}."
        )
    if valid_bytes(value.DataType) is None or "\n" in value.DataType:
        raise errors.invalid_parameter(f"The type of the message attribute '{name}' has invalid characters.")
    if value.StringListValues or value.BinaryListValues:
        raise errors.unsupported_operation("Message attribute list values are not supported.")
    if kind == "Binary":
        if not value.BinaryValue:
            raise _empty_value(name, kind)
        if value.StringValue is not None:
            raise errors.invalid_parameter(f"The message attribute '{name}' has more than one value.")
        return
    if value.BinaryValue is not None:
        raise errors.invalid_parameter(
            f"The message attribute '{name}' with type '{kind}' must use field 'String'."
            if value.StringValue is None
            else f"The message attribute '{name}' has more than one value."
        )
    if not value.StringValue:
        raise _empty_value(name, kind)
    if valid_bytes(value.StringValue) is None:
        raise errors.invalid_message_contents(f"The message attribute '{name}' has invalid characters.")
    if kind == "Number" and _NUMBER.fullmatch(value.StringValue) is None:
        raise errors.invalid_parameter(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def _empty_value(name: str, kind: str) -> errors.SqsError:
    return errors.invalid_parameter(
        f"The message attribute '{name}' must contain a non-empty message attribute value for message attribute type "
        f"'{kind}'."
    )


def check_system_attributes(attributes: Attributes) -> None:
    for name, value in attributes.items():
        if name != TRACE_HEADER:
            raise errors.invalid_parameter(
                f"Message system attribute name '{name}' is invalid. The only one that can be sent is {TRACE_HEADER}."
            )
        if value.DataType != "String" or not value.StringValue:
            raise errors.invalid_parameter(f"The message system attribute '{name}' must be a String that is not empty.")
        if valid_bytes(value.StringValue) is None:
            raise errors.invalid_message_contents(f"The message system attribute '{name}' has invalid characters.")


def size_of(attributes: Attributes) -> int:
    """What they count of the size of a message."""
    return sum(
        len(name) + len((value.DataType or "").encode()) + len(value.BinaryValue or (value.StringValue or "").encode())
        for name, value in attributes.items()
    )


def to_headers(attributes: Attributes | None, system: Attributes | None, sender: str) -> Headers:
    headers: list[tuple[str, bytes | None]] = [(_SENDER_HEADER, sender.encode())]
    if system:
        for name, value in system.items():
            headers.append((SYSTEM_ATTRIBUTE_PREFIX + name, (value.StringValue or "").encode()))
    if attributes:
        for name, value in attributes.items():
            data = value.BinaryValue if value.BinaryValue is not None else (value.StringValue or "").encode()
            headers.append((ATTRIBUTE_PREFIX + name, (value.DataType or "").encode() + b"\n" + data))
    return tuple(headers)


def from_headers(headers: Headers) -> tuple[dict[str, MessageAttributeValue], dict[str, str]]:
    """Attributes and system attributes. Headers of other clients are attributes, too: texts, or else binaries."""
    attributes: dict[str, MessageAttributeValue] = {}
    system: dict[str, str] = {}
    for name, data in headers:
        if name.startswith(SYSTEM_ATTRIBUTE_PREFIX):
            system[name.removeprefix(SYSTEM_ATTRIBUTE_PREFIX)] = (data or b"").decode("utf-8", "replace")
        elif name.startswith(ATTRIBUTE_PREFIX):
            kind, _, value = (data or b"").partition(b"\n")
            attributes[name.removeprefix(ATTRIBUTE_PREFIX)] = _value(kind.decode("utf-8", "replace"), value)
        elif data and not name.startswith("hr.") and _NAME.fullmatch(name) is not None:
            attributes[name] = _value("String" if _is_text(data) else "Binary", data)
    return attributes, system


def _value(kind: str, data: bytes) -> MessageAttributeValue:
    if kind.startswith("Binary"):
        return MessageAttributeValue(BinaryValue=data, DataType=kind)
    return MessageAttributeValue(StringValue=data.decode("utf-8", "replace"), DataType=kind)


def _is_text(data: bytes) -> bool:
    try:
        return valid_bytes(data.decode()) is not None
    except UnicodeDecodeError:
        return False


def selected(attributes: Attributes, names: Collection[str]) -> dict[str, MessageAttributeValue]:
    """Those that a receiver asks for: `All`, `.*`, names, and prefixes as in `order.*`."""
    if not names or not attributes:
        return {}
    if "All" in names or ".*" in names:
        return dict(attributes)
    prefixes = tuple(name.removesuffix(".*") for name in names if name.endswith(".*"))
    return {name: value for name, value in attributes.items() if name in names or name.startswith(prefixes)}
