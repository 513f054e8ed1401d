"""Messages of Protobuf as Python values, and back. Pure.

A message is a dict by the names of its fields. Fields that are not set are left out if the message can tell, and have
the default of their type if not. `Timestamp` is a datetime, `Duration` a timedelta, a wrapper its value, and what else
Protobuf brings is as in its JSON. Values of Protobuf's JSON are taken too: base64 for bytes, text for 64-bit numbers,
camelCase names.
"""

import base64
import binascii
import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from headrace.schemas.payload.errors import InvalidPayload

_SHOWN_CHARACTERS: Final = 40
MAX_FIELDS: Final = 1_000_000
"""Fields of one value, with those of the messages in it."""
_FIELDS_OF_A_BYTE: Final = 4
"""So many more for each byte of the value."""
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_AS_JSON: Final = frozenset(
    f"google.protobuf.{name}"
    for name in (
        *("Any", "Struct", "Value", "ListValue", "FieldMask", "DoubleValue", "FloatValue", "Int64Value", "UInt64Value"),
        *("Int32Value", "UInt32Value", "BoolValue", "StringValue", "BytesValue"),
    )
)
_REALS: Final = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


class FieldLimit:
    """Counts the fields of a value: an empty message takes two bytes, and has a default for each of its fields."""

    __slots__ = ("_left",)

    def __init__(self, size_bytes: int) -> None:
        self._left = MAX_FIELDS + _FIELDS_OF_A_BYTE * size_bytes

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise InvalidPayload(f"the message has more than {MAX_FIELDS} fields, most of them with defaults")


def value_of(message: Message, limit: FieldLimit) -> Any:
    """The value of a message."""
    name = message.DESCRIPTOR.full_name
    if name == _TIMESTAMP:
        return message.ToDatetime(datetime.UTC)
    if name == _DURATION:
        return message.ToTimedelta()
    if name in _AS_JSON:
        return json_format.MessageToDict(message, preserving_proto_field_name=True)
    found = {}
    limit.take(len(message.DESCRIPTOR.fields))
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        try:
            found[field.name] = _field_value(field, getattr(message, field.name), limit)
        except InvalidPayload as error:
            raise error.within(field.name) from None
    return found


def _field_value(field: FieldDescriptor, value: Any, limit: FieldLimit) -> Any:
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]
        return {key: _single_value(inner, value[key], limit) for key in value}
    if _is_repeated(field):
        return [_single_value(field, each, limit) for each in value]
    return _single_value(field, value, limit)


def _single_value(field: FieldDescriptor, value: Any, limit: FieldLimit) -> Any:
    if field.message_type is not None:
        try:
            return value_of(value, limit)
        except (ValueError, OverflowError, TypeError) as error:
            raise InvalidPayload(f"the value has no form in Python: {error}") from None
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def fill(message: Message, value: Any) -> None:
    """Set the fields of a message. Raises `InvalidPayload`."""
    if isinstance(value, Message):
        _copy(message, value)
        return
    name = message.DESCRIPTOR.full_name
    if name == _TIMESTAMP and isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise InvalidPayload(f"the time {value.isoformat()} has no time zone: give it one, such as datetime.UTC")
        message.FromDatetime(value)
    elif name == _DURATION and isinstance(value, datetime.timedelta):
        message.FromTimedelta(value)
    elif name in _AS_JSON or name in (_TIMESTAMP, _DURATION):
        _parse_json(message, value)
    elif isinstance(value, Mapping):
        _fill_fields(message, value)
    else:
        raise _wrong(value, name)


def _fill_fields(message: Message, value: Mapping[str, Any]) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    by_json_name = message.DESCRIPTOR.fields_by_camelcase_name
    for name, each in value.items():
        field = fields.get(name) or by_json_name.get(name)
        if field is None:
            raise InvalidPayload(f"{message.DESCRIPTOR.full_name} has no such field", str(name)[:_SHOWN_CHARACTERS])
        if each is None:
            continue
        try:
            _set(message, field, each)
        except InvalidPayload as error:
            raise error.within(name) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidPayload(f"the value does not fit: {str(error)[:200]}", name) from None


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    target = getattr(message, field.name)
    if _is_map(field):
        _set_map(target, field, value)
    elif _is_repeated(field):
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise _wrong(value, "repeated field")
        for index, each in enumerate(value):
            try:
                if field.message_type is not None:
                    fill(target.add(), each)
                else:
                    target.append(_scalar(field, each))
            except InvalidPayload as error:
                raise error.within(f"[{index}]") from None
    elif field.message_type is not None:
        target.SetInParent()
        fill(target, value)
    else:
        setattr(message, field.name, _scalar(field, value))


def _set_map(target: Any, field: FieldDescriptor, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise _wrong(value, "map")
    key_field, value_field = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    for key, each in value.items():
        try:
            found = _scalar(key_field, _key_of_text(key_field, key))
            if value_field.message_type is not None:
                fill(target[found], each)
            else:
                target[found] = _scalar(value_field, each)
        except InvalidPayload as error:
            raise error.within(str(key)[:_SHOWN_CHARACTERS]) from None


def _key_of_text(field: FieldDescriptor, key: Any) -> Any:
    """Keys of objects are text in JSON."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL and key in ("true", "false"):
        return key == "true"
    return key


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return _bytes(value) if field.type == FieldDescriptor.TYPE_BYTES else _text(value)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        if not isinstance(value, bool):
            raise _wrong(value, "bool")
        return value
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return _enum_number(field, value)
    if isinstance(value, str):
        value = _number_of_text(value, is_real=kind in _REALS)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, "number")
    if kind not in _REALS and isinstance(value, float):
        if not value.is_integer():
            raise _wrong(value, "whole number")
        return int(value)
    return value


def _number_of_text(value: str, *, is_real: bool) -> int | float:
    try:
        return float(value) if is_real else int(value)
    except ValueError:
        raise InvalidPayload(f"{value[:_SHOWN_CHARACTERS]!r} is not a number") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "string")
    return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise _wrong(value, "bytes")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidPayload("the text is not base64, as bytes are written in JSON") from None


def _enum_number(field: FieldDescriptor, value: Any) -> int:
    name = getattr(value, "value", value)
    if isinstance(name, int) and not isinstance(name, bool):
        return name
    known = field.enum_type.values_by_name.get(name) if isinstance(name, str) else None
    if known is None:
        names = ", ".join(each.name for each in field.enum_type.values[:20])
        raise InvalidPayload(f"{repr(name)[:_SHOWN_CHARACTERS]} is none of {names}")
    return int(known.number)


def _copy(message: Message, value: Message) -> None:
    """Set a message to one of a generated class, whose descriptor is another object of the same name."""
    expected, found = message.DESCRIPTOR.full_name, value.DESCRIPTOR.full_name
    if expected != found:
        raise InvalidPayload(f"the message is a {found}, not a {expected}")
    message.ParseFromString(value.SerializeToString())


def _parse_json(message: Message, value: Any) -> None:
    try:
        json_format.ParseDict(value, message)
    except (json_format.ParseError, TypeError, AttributeError, ValueError) as error:
        raise InvalidPayload(f"the value does not fit {message.DESCRIPTOR.full_name}: {str(error)[:200]}") from None


def _is_repeated(field: FieldDescriptor) -> bool:
    """`is_repeated` is new in version 6.31; `label` is gone in 7."""
    found = getattr(field, "is_repeated", None)
    return bool(found) if found is not None else field.label == FieldDescriptor.LABEL_REPEATED


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _wrong(value: Any, kind: str) -> InvalidPayload:
    return InvalidPayload(f"{repr(value)[:_SHOWN_CHARACTERS]} is a value of {type(value).__name__}, not of {kind}")
