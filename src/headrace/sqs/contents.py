"""The contents of a message: allowed characters, and how attributes are checked, stored and summed up.

A body and a text attribute may have the characters that XML 1.0 allows. An attribute is stored as a header
`sqs.<name>` with its type, a line feed and its value (see `model.queued`).
"""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from hashlib import md5
from struct import Struct

import msgspec

from headrace.model.failure_headers import FAILURE_HEADERS
from headrace.model.queued import ATTRIBUTE_PREFIX, SYSTEM_ATTRIBUTE_PREFIX
from headrace.queues.api import Headers
from headrace.sqs import errors

MAX_BYTES = 1_048_576
TRACE_HEADER = "AWSTraceHeader"
SENDER_ID = "SenderId"
_SENDER_HEADER = SYSTEM_ATTRIBUTE_PREFIX + SENDER_ID
_TRACE_HEADER = SYSTEM_ATTRIBUTE_PREFIX + TRACE_HEADER
_MOST_ATTRIBUTES = 10
_MOST_NAME_BYTES = 256
_MOST_TRACE_BYTES = 16 * 1024
"""AWS does not count system attributes in the size of a message; here they are bounded all the same."""
_NAME = re.compile(r"[A-Za-z0-9_.\-]+")
_NAME_PUNCTUATION = frozenset("_.-")
_EVERYTHING = frozenset({"All", ".*", "*"})
_TYPE_PREFIXES = ("String", "Number", "Binary")
_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_VALID_BYTES = bytes((9, 10, 13, *range(0x20, 0x100)))
_length = Struct(">I").pack
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


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
    """A text that was not sent over SQS may have characters that XML does not allow: they become U+FFFD."""
    return _INVALID.sub("\ufffd", text)


def body_bytes(text: str) -> bytes:
    encoded = valid_bytes(text)
    if encoded is None:
        raise errors.invalid_message_contents(_invalid_character(text, "message body"))
    return encoded


def _invalid_character(text: str, where: str) -> str:
    found = _INVALID.search(text)
    code = f"#x{ord(found[0]):X}" if found else ""
    return (
        f"Invalid binary character '{code}' was found in the {where}, the set of allowed characters is #x9 | #xA | #xD "
        "| [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]."
    )


def md5_of(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Attributes) -> str:
    """The MD5 sum that clients compare: names, types and values with their lengths, sorted by name."""
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
        raise errors.invalid_parameter("The request must contain non-empty message (user) attribute names.")
    if not all(char.isalpha() or char.isdecimal() or char in _NAME_PUNCTUATION for char in name):
        raise errors.invalid_parameter(
            "Message (user) attributes name can only contain upper and lower score characters, digits, periods, "
            "hyphens and underscores. "
        )
    if len(name.encode()) > _MOST_NAME_BYTES:
        raise errors.invalid_parameter(f"Message (user) attribute name must be shorter than {_MOST_NAME_BYTES} bytes.")
    if name.lower().startswith(("aws.", "amazon.")):
        raise errors.invalid_parameter(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for "
            "internal use."
        )
    if name.startswith("."):
        raise errors.invalid_parameter("Message (user) attribute name must not begin with character '.'.")
    if name.endswith("."):
        raise errors.invalid_parameter("Message (user) attribute name must not end with character '.'.")
    if ".." in name:
        raise errors.invalid_parameter("Message (user) attribute name must not have successive '.' characters.")


def _check_value(name: str, value: MessageAttributeValue) -> None:
    if value.StringListValues or value.BinaryListValues:
        raise errors.unsupported_operation("Message attribute list values in SendMessage operation are not supported.")
    if not value.DataType:
        missing = "value" if value.StringValue is None and value.BinaryValue is None else "type"
        raise errors.invalid_parameter(
            f"The message (user) attribute '{name}' must contain a non-empty message attribute {missing}."
        )
    kind = value.DataType.partition(".")[0]
    if kind not in _TYPE_PREFIXES:
        raise errors.invalid_parameter(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the following supported type "
            "prefixes: Binary, Number, String."
        )
    if len(value.DataType.encode("utf-8", "surrogatepass")) > _MOST_NAME_BYTES:
        raise errors.invalid_parameter(f"Message (user) attribute type must be shorter than {_MOST_NAME_BYTES} bytes.")
    # A line feed separates the type from the value in the record's header.
    if valid_bytes(value.DataType) is None or "\n" in value.DataType:
        raise errors.invalid_parameter(f"The type of message (user) attribute '{name}' has invalid characters.")
    if value.StringValue is not None and value.BinaryValue is not None:
        raise errors.invalid_parameter(f"Message (user) attribute '{name}' must have a single value.")
    if not value.StringValue and not value.BinaryValue:
        raise errors.invalid_parameter(
            f"Message (user) attribute '{name}' must contain a non-empty value of type '{value.DataType}'."
        )
    field = "Binary" if kind == "Binary" else "String"
    if (value.BinaryValue is None) == (field == "Binary"):
        raise errors.invalid_parameter(
            f"Message (user) attribute '{name}' with type '{value.DataType}' must use field '{field}'."
        )
    if value.StringValue:
        _check_text(name, kind, value.StringValue)


def _check_text(name: str, kind: str, text: str) -> None:
    if valid_bytes(text) is None:
        raise errors.invalid_parameter(_invalid_character(text, f"message attribute '{name}' value"))
    if kind == "Number" and _NUMBER.fullmatch(text) is None:
        raise errors.invalid_parameter(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def check_system_attributes(attributes: Attributes) -> None:
    for name, value in attributes.items():
        if name != TRACE_HEADER:
            raise errors.invalid_parameter(f"Message system attribute name '{name}' is invalid.")
        if value.DataType != "String":
            raise errors.invalid_parameter(
                f"The type of message system attribute '{name}' is invalid. You must use only the following supported "
                "type prefixes: String."
            )
        if not value.StringValue:
            raise errors.invalid_parameter(
                f"Message system attribute '{name}' must contain a non-empty value of type 'String'."
            )
        if not is_trace(value.StringValue):
            raise errors.invalid_parameter(
                f"Message system attribute '{name}' has invalid characters, or more than {_MOST_TRACE_BYTES} bytes."
            )


def is_trace(text: str) -> bool:
    """Whether a text can be the trace header of a message."""
    encoded = valid_bytes(text)
    return encoded is not None and 0 < len(encoded) <= _MOST_TRACE_BYTES


def size_of(attributes: Attributes) -> int:
    """The bytes that attributes add to the size of a message."""
    return sum(
        _utf8_length(name)
        + _utf8_length(value.DataType or "")
        + (len(value.BinaryValue) if value.BinaryValue else _utf8_length(value.StringValue or ""))
        for name, value in attributes.items()
    )


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def to_headers(attributes: Attributes | None, trace: str, sender: str) -> Headers:
    """`trace` is the trace header of the message, empty for none."""
    if not trace and not attributes:
        return _only_sender(sender)
    headers: list[tuple[str, bytes | None]] = [(_SENDER_HEADER, sender.encode())]
    if trace:
        headers.append((_TRACE_HEADER, trace.encode()))
    if attributes:
        for name, value in attributes.items():
            data = value.BinaryValue if value.BinaryValue is not None else (value.StringValue or "").encode()
            headers.append((ATTRIBUTE_PREFIX + name, (value.DataType or "").encode() + b"\n" + data))
    return tuple(headers)


@lru_cache(maxsize=256)
def _only_sender(sender: str) -> Headers:
    return ((_SENDER_HEADER, sender.encode()),)


def from_headers(headers: Headers) -> tuple[dict[str, MessageAttributeValue], dict[str, str]]:
    """Attributes and system attributes. Headers of other clients are attributes, too: texts, or else binaries.

    The failure headers of a dead letter are not: AWS returns a dead letter with the attributes that it was sent with.
    """
    attributes: dict[str, MessageAttributeValue] = {}
    system: dict[str, str] = {}
    for name, data in headers:
        if name.startswith(SYSTEM_ATTRIBUTE_PREFIX):
            system[name.removeprefix(SYSTEM_ATTRIBUTE_PREFIX)] = (data or b"").decode("utf-8", "replace")
        elif name.startswith(ATTRIBUTE_PREFIX):
            kind, _, value = (data or b"").partition(b"\n")
            attributes[name.removeprefix(ATTRIBUTE_PREFIX)] = _value(kind.decode("utf-8", "replace"), value)
        elif data and not name.startswith("hr.") and name not in FAILURE_HEADERS and _NAME.fullmatch(name) is not None:
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
    """The attributes that a receiver asks for by `All`, `.*`, `*`, names, and prefixes as in `order.*`."""
    if not names or not attributes:
        return {}
    if not _EVERYTHING.isdisjoint(names):
        return dict(attributes)
    prefixes = tuple(name.removesuffix(".*") for name in names if name.endswith(".*"))
    return {name: value for name, value in attributes.items() if name in names or name.startswith(prefixes)}
