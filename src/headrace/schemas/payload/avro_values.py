"""Makes Python values fit an Avro schema before they are encoded: checks types, and reads values of JSON. Pure.

| Type | Python | JSON |
|---|---|---|
| bytes, fixed | bytes | base64 |
| date, time, timestamp | date, time, datetime with a time zone | ISO 8601, or the number |
| local timestamp | datetime without a time zone | ISO 8601, or the number |
| decimal | Decimal, int | text or a number |
| uuid | UUID | text |
| union | the branch of the same type, or the first that fits | or `{"branch": value}`, as Avro has it |

Unknown fields are an error: they would be lost without a word.
"""

import base64
import binascii
import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

import msgspec

from headrace.schemas.avro.types import AvroSchemaField, AvroSchemaType
from headrace.schemas.payload.errors import InvalidPayload

Fit = Callable[[Any], Any]
"""Takes a value, and returns it as `fastavro` encodes it. Raises `InvalidPayload`."""

_SHOWN_CHARACTERS = 40
_TEXTUAL = (datetime.date, datetime.time, datetime.timedelta, Decimal, UUID)
"""Values that are text where their schema has no type for them, as in JSON."""
_INT: Final = (-(2**31), 2**31 - 1)
_LONG: Final = (-(2**63), 2**63 - 1)


def value_fit(root: AvroSchemaType) -> Fit:
    return _Fits().of(root)


def _wrong(value: Any, kind: str) -> InvalidPayload:
    return InvalidPayload(f"{repr(value)[:_SHOWN_CHARACTERS]} is a value of {type(value).__name__}, not of {kind}")


def _null(value: Any) -> None:
    if value is not None:
        raise _wrong(value, "null")


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, "boolean")
    return value


def _whole(low: int, high: int, kind: str) -> Fit:
    def fit(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(value, kind)
        if not low <= value <= high:
            raise InvalidPayload(f"{repr(value)[:_SHOWN_CHARACTERS]} does not fit the type {kind}")
        return int(value)

    return fit


def _real(kind: str) -> Fit:
    def fit(value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _wrong(value, kind)
        try:
            return float(value)
        except OverflowError:
            raise InvalidPayload(f"{repr(value)[:_SHOWN_CHARACTERS]} does not fit the type {kind}") from None

    return fit


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidPayload("the text is not base64, as bytes are written in JSON") from None
    raise _wrong(value, "bytes")


def _string(value: Any) -> str:
    if isinstance(value, _TEXTUAL):
        return str(msgspec.to_builtins(value))
    if not isinstance(value, str):
        raise _wrong(value, "string")
    return value


_PRIMITIVES: Final[dict[str, Fit]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole(*_INT, "int"),
    "long": _whole(*_LONG, "long"),
    "float": _real("float"),
    "double": _real("double"),
    "bytes": _bytes,
    "string": _string,
}


def _fixed(type_: AvroSchemaType) -> Fit:
    def fit(value: Any) -> bytes:
        found = _bytes(value)
        if len(found) != type_.size:
            raise InvalidPayload(f"{type_.name} has {type_.size} bytes, not {len(found)}")
        return found

    return fit


def _enum(type_: AvroSchemaType) -> Fit:
    symbols = frozenset(type_.symbols)

    def fit(value: Any) -> str:
        name = getattr(value, "value", value)
        if not isinstance(name, str):
            raise _wrong(value, type_.name)
        if name not in symbols:
            raise InvalidPayload(f"{name[:_SHOWN_CHARACTERS]!r} is none of {', '.join(type_.symbols[:20])}")
        return name

    return fit


def _dated(of_text: Callable[[str], Any], kind: type, number: Fit) -> Fit:
    """A date or a time of the day, of text too; numbers are what is stored."""

    def fit(value: Any) -> Any:
        if isinstance(value, str):
            value = _of_text(of_text, value)
        is_kind = isinstance(value, kind) and not (kind is datetime.date and isinstance(value, datetime.datetime))
        return value if is_kind else number(value)

    return fit


def _of_text(of_text: Callable[[str], Any], value: str) -> Any:
    try:
        return of_text(value)
    except ValueError as error:
        raise InvalidPayload(f"{value[:_SHOWN_CHARACTERS]!r}: {error}") from None


def _timestamp(*, has_zone: bool) -> Fit:
    number = _PRIMITIVES["long"]

    def fit(value: Any) -> Any:
        if isinstance(value, str):
            value = _of_text(datetime.datetime.fromisoformat, value)
        if not isinstance(value, datetime.datetime):
            return number(value)
        if has_zone and value.tzinfo is None:
            raise InvalidPayload(f"the time {value.isoformat()} has no time zone: give it one, such as datetime.UTC")
        if not has_zone and value.tzinfo is not None:
            raise InvalidPayload(f"the time {value.isoformat()} has a time zone, and its type has none")
        return value

    return fit


def _decimal(type_: AvroSchemaType) -> Fit:
    precision, scale = type_.properties.get("precision"), type_.properties.get("scale", 0)

    def fit(value: Any) -> Decimal | bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, bool) or not isinstance(value, Decimal | int | str | float):
            raise _wrong(value, "decimal")
        try:
            found = Decimal(str(value))
        except InvalidOperation:
            raise InvalidPayload(f"{str(value)[:_SHOWN_CHARACTERS]!r} is not a decimal number") from None
        exponent = found.as_tuple().exponent
        if not isinstance(exponent, int) or -exponent > scale:
            raise InvalidPayload(f"{str(found)[:_SHOWN_CHARACTERS]} has more than {scale} digits after the point")
        if found.adjusted() + 1 + scale > precision:
            raise InvalidPayload(f"{str(found)[:_SHOWN_CHARACTERS]} has more than {precision} digits")
        return found

    return fit


def _uuid(number: Fit) -> Fit:
    def fit(value: Any) -> Any:
        if isinstance(value, UUID):
            return value
        return UUID(_of_text(lambda text: str(UUID(text)), value)) if isinstance(value, str) else number(value)

    return fit


def _logical(type_: AvroSchemaType, plain: Fit) -> Fit:
    """The type with its logical type, if that is known and fits it; else the type alone, as Avro has it."""
    match type_.kind, type_.properties.get("logicalType"):
        case "int", "date":
            return _dated(datetime.date.fromisoformat, datetime.date, plain)
        case ("int", "time-millis") | ("long", "time-micros"):
            return _dated(datetime.time.fromisoformat, datetime.time, plain)
        case "long", "timestamp-millis" | "timestamp-micros":
            return _timestamp(has_zone=True)
        case "long", "local-timestamp-millis" | "local-timestamp-micros":
            return _timestamp(has_zone=False)
        case "bytes" | "fixed", "decimal" if isinstance(type_.properties.get("precision"), int):
            return _decimal(type_)
        case "string", "uuid":
            return _uuid(plain)
    return plain


def _distance(branch: AvroSchemaType, kind: type) -> int:
    """How far a branch of a union is from a Python type: 0 if they are the same, so that no value changes its type."""
    if "logicalType" in branch.properties:
        return int(issubclass(kind, bool | int | float | str | bytes | Mapping) or kind is type(None))
    for python, kinds in _NATURAL:
        if issubclass(kind, python):
            return kinds.index(branch.kind) if branch.kind in kinds else len(kinds)
    return 1


_NATURAL: Final[tuple[tuple[type, tuple[str, ...]], ...]] = (
    (bool, ("boolean",)),
    (int, ("int", "long")),
    (float, ("double", "float")),
    (str, ("string",)),
    (bytes, ("bytes",)),
)


class _Fits:
    """Makes a function for each type; that of a record is made once, so that recursion ends."""

    def __init__(self) -> None:
        self._made: dict[int, Fit] = {}

    def of(self, type_: AvroSchemaType) -> Fit:
        if type_.kind in _PRIMITIVES:
            return _logical(type_, _PRIMITIVES[type_.kind])
        match type_.kind:
            case "enum":
                return _enum(type_)
            case "fixed":
                return _logical(type_, _fixed(type_))
            case "union":
                return self._union(type_)
            case "array":
                return self._array(type_)
            case "map":
                return self._map(type_)
        return self._made.get(id(type_)) or self._record(type_)

    def _union(self, type_: AvroSchemaType) -> Fit:
        branches = [(each.label, self.of(each)) for each in type_.branches]
        by_name = dict(branches)
        orders: dict[type, list[tuple[str, Fit]]] = {}

        def fit(value: Any) -> Any:
            problem = None
            kind = type(value)
            if kind not in orders:
                places = sorted(range(len(branches)), key=lambda place: _distance(type_.branches[place], kind))
                orders[kind] = [branches[place] for place in places]
            for label, each in orders[kind]:
                try:
                    found = each(value)
                except InvalidPayload as error:
                    if problem is None or error.path:
                        problem = error
                else:
                    return found if found is None else (label, found)
            if isinstance(value, Mapping) and len(value) == 1:
                ((name, inner),) = value.items()
                if name in by_name:
                    return (name, by_name[name](inner))
            if problem is not None and problem.path:
                raise problem
            raise _wrong(value, " or ".join(label for label, _ in branches))

        return fit

    def _array(self, type_: AvroSchemaType) -> Fit:
        assert type_.items is not None
        each = self.of(type_.items)

        def fit(value: Any) -> list[Any]:
            if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
                raise _wrong(value, "array")
            found: list[Any] = []
            try:
                for item in value:
                    found.append(each(item))
            except InvalidPayload as error:
                raise error.within(f"[{len(found)}]") from None
            return found

        return fit

    def _map(self, type_: AvroSchemaType) -> Fit:
        assert type_.items is not None
        each = self.of(type_.items)

        def fit(value: Any) -> dict[str, Any]:
            if not isinstance(value, Mapping):
                raise _wrong(value, "map")
            found: dict[str, Any] = {}
            key: Any = ""
            try:
                for key, item in value.items():
                    found[_string(key)] = each(item)
            except InvalidPayload as error:
                raise error.within(str(key)[:_SHOWN_CHARACTERS]) from None
            return found

        return fit

    def _record(self, type_: AvroSchemaType) -> Fit:
        fields: dict[str, tuple[AvroSchemaField, Fit]] = {}

        def fit(value: Any) -> dict[str, Any]:
            if not isinstance(value, Mapping):
                raise _wrong(value, type_.label)
            found = {}
            for name, (field, each) in fields.items():
                if name in value:
                    try:
                        found[name] = each(value[name])
                    except InvalidPayload as error:
                        raise error.within(name) from None
                elif not field.has_default:
                    raise InvalidPayload("the field is missing, and has no default", name)
            if len(found) < len(value):
                unknown = next(key for key in value if key not in fields)
                raise InvalidPayload(f"{type_.label} has no such field", str(unknown)[:_SHOWN_CHARACTERS])
            return found

        self._made[id(type_)] = fit
        fields.update({each.name: (each, self.of(each.type)) for each in type_.fields})
        return fit
