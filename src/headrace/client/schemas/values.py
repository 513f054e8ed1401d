"""Typed values as plain ones, and back: dataclasses, msgspec Structs, pydantic models, TypedDicts. Pure.

Plain values are dicts, lists, and scalars; times, bytes, decimals and UUIDs stay what they are. Messages of generated
Protobuf classes are not touched.
"""

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Protocol, TypeGuard
from uuid import UUID

import msgspec

from headrace.schemas.payload.errors import InvalidPayload

_NATIVE = (datetime, date, time, bytes, bytearray, Decimal, UUID)


class _PydanticModel(Protocol):
    """What is used of `pydantic.BaseModel`, which is not imported."""

    def model_dump(self) -> dict[str, Any]: ...


class _ProtobufMessage(Protocol):
    """What is used of `google.protobuf.message.Message`."""

    DESCRIPTOR: Any

    def SerializeToString(self) -> bytes: ...


def is_protobuf(value: Any) -> TypeGuard[_ProtobufMessage]:
    """Whether a value is a message of a generated class, or such a class."""
    return hasattr(value, "DESCRIPTOR") and hasattr(value, "SerializeToString")


def is_pydantic(value: Any) -> TypeGuard[_PydanticModel]:
    """Whether a value is a model of pydantic, or such a class."""
    return hasattr(value, "model_dump") and hasattr(value, "model_validate")


def encode_hook(value: Any) -> Any:
    """What msgspec encodes in place of a value that it does not know."""
    if is_pydantic(value):
        return value.model_dump()
    raise TypeError(f"a value of {type(value).__name__} cannot be encoded")


def as_plain(value: Any) -> Any:
    """The value without its types. Raises `InvalidPayload`."""
    if is_protobuf(value):
        return value
    try:
        return msgspec.to_builtins(value, builtin_types=_NATIVE, enc_hook=encode_hook)
    except (TypeError, ValueError) as error:
        raise InvalidPayload(str(error)) from None
    except RecursionError:
        raise InvalidPayload("the value is nested too deep") from None


def as_type(value: Any, kind: Any) -> Any:
    """A plain value as one of a type. Raises `InvalidPayload`."""
    try:
        return msgspec.convert(value, kind, dec_hook=_decode_hook)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"the value is not of the type {name_of_type(kind)}: {error}") from None


def of_json(data: bytes, kind: Any) -> Any:
    """A value of a type from JSON. Raises `InvalidPayload`."""
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_decode_hook)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"the value is not of the type {name_of_type(kind)}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidPayload(f"the value has no schema, and is not JSON: {error}") from None
    except RecursionError:
        raise InvalidPayload("the value is nested too deep") from None


def name_of_type(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))


def _decode_hook(kind: Any, value: Any) -> Any:
    """A model of pydantic from a plain value; msgspec reports what this raises with the path."""
    if not is_pydantic(kind):
        raise NotImplementedError(f"values of {name_of_type(kind)} cannot be decoded")
    return kind.model_validate(value)  # type: ignore[attr-defined]
