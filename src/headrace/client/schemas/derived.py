"""Schemas derived from Python types: dataclasses, msgspec Structs, pydantic models, TypedDicts. Pure.

| Python | Avro |
|---|---|
| int, float, bool, str, bytes, None | long, double, boolean, string, bytes, null |
| datetime, date, time, UUID | their logical types, to the microsecond |
| Decimal, timedelta | string: Avro's decimal needs a precision that the type does not have |
| Enum and Literal of names | enum; of other values string or long |
| list, set, tuple of one type; dict with keys of text | array; map |
| X \\| None and other unions | union |

A field with a default has it in the schema, so that a version of the type with one more field can read older messages.
"""

import json
import re
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from headrace.client.schemas.values import is_protobuf, is_pydantic, name_of_type

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_DEPTH: Final = 64

_SCALARS: Final[tuple[tuple[type[types.Type], Any], ...]] = (
    (types.NoneType, "null"),
    (types.BoolType, "boolean"),
    (types.IntType, "long"),
    (types.FloatType, "double"),
    (types.StrType, "string"),
    (types.BytesType, "bytes"),
    (types.ByteArrayType, "bytes"),
    (types.DateTimeType, {"type": "long", "logicalType": "timestamp-micros"}),
    (types.DateType, {"type": "int", "logicalType": "date"}),
    (types.TimeType, {"type": "long", "logicalType": "time-micros"}),
    (types.UUIDType, {"type": "string", "logicalType": "uuid"}),
    (types.DecimalType, "string"),
    (types.TimeDeltaType, "string"),
)


def is_typed(value: Any) -> bool:
    """Whether the type of a value says what its fields are."""
    return hasattr(value, "__dataclass_fields__") or hasattr(value, "__struct_fields__") or is_pydantic(value)


def derived_schema(kind: Any, form: str) -> tuple[str, str]:
    """The type of schema in the registry, and its text. `form` is avro or json-schema. Raises `TypeError`."""
    if is_protobuf(kind):
        raise TypeError(f"{name_of_type(kind)} is generated from a .proto file: register that file")
    if form == "avro":
        return "AVRO", json.dumps(_AvroTypes().of(_inspected(kind), 0))
    if form == "json-schema":
        return "JSON", json.dumps(_json_schema(kind))
    raise TypeError(f"the format of a derived schema is avro or json-schema, not {form!r}")


def _json_schema(kind: Any) -> dict[str, Any]:
    own: Any = getattr(kind, "model_json_schema", None)
    found = own() if own is not None else msgspec.json.schema(kind, schema_hook=_model_schema)
    _close(found)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def _model_schema(kind: type) -> dict[str, Any]:
    if not is_pydantic(kind):
        raise TypeError(f"no schema is derived from {name_of_type(kind)}")
    raise TypeError(f"a field has the pydantic model {name_of_type(kind)}: make the outer type a pydantic model, too")


def _close(schema: Any) -> None:
    """Allow no other properties: only so may a later version have one more (see docs/registry.md)."""
    pending = [schema]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += each
        elif isinstance(each, dict):
            pending += each.values()
            if isinstance(each.get("properties"), dict) and each.get("type") == "object":
                each.setdefault("additionalProperties", False)


def _inspected(kind: Any) -> types.Type:
    try:
        return types.type_info(kind)
    except (TypeError, NameError) as error:
        raise TypeError(f"no schema is derived from {name_of_type(kind)}: {error}") from None


class _AvroTypes:
    def __init__(self) -> None:
        self._known: dict[str, type] = {}

    def of(self, type_: types.Type, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise TypeError(f"the type is nested more than {_MAX_DEPTH} deep")
        if isinstance(type_, types.Metadata):
            return self.of(type_.type, depth)
        for kind, schema in _SCALARS:
            if isinstance(type_, kind):
                return schema
        if isinstance(type_, types.UnionType):
            return _union([self.of(each, depth + 1) for each in type_.types])
        if isinstance(type_, types.EnumType):
            return self._enum(type_.cls)
        if isinstance(type_, types.LiteralType):
            return _plain_values(list(type_.values))
        if isinstance(type_, types.ListType | types.SetType | types.FrozenSetType | types.VarTupleType):
            return {"type": "array", "items": self.of(type_.item_type, depth + 1)}
        if isinstance(type_, types.DictType) and isinstance(type_.key_type, types.StrType):
            return {"type": "map", "values": self.of(type_.value_type, depth + 1)}
        return self._record(type_, depth)

    def _record(self, type_: types.Type, depth: int) -> Any:
        kind = getattr(type_, "cls", None)
        if kind is None or not _has_fields(type_):
            raise TypeError(
                f"no Avro schema is derived from {type(type_).__name__.removesuffix('Type')}: use another type, or "
                'format="json-schema"'
            )
        name = _name(kind.__name__)
        if self._is_known(name, kind):
            return name
        fields = []
        if isinstance(type_, types.StructType) and type_.tag_field is not None:
            fields.append({"name": type_.tag_field, "type": "long" if isinstance(type_.tag, int) else "string"})
        for field_name, inner, default in _fields(type_):
            fields.append(_field(_name(field_name), self.of(inner, depth + 1), default))
        return {"type": "record", "name": name, "fields": fields}

    def _enum(self, kind: type[Enum]) -> Any:
        values = [each.value for each in kind]
        if not all(isinstance(each, str) and _NAME.fullmatch(each) for each in values):
            return _plain_values(values)
        name = kind.__name__
        return name if self._is_known(name, kind) else {"type": "enum", "name": name, "symbols": values}

    def _is_known(self, name: str, kind: type) -> bool:
        """Whether the type is written already, and by its name from now on."""
        if name not in self._known:
            self._known[name] = kind
            return False
        if self._known[name] is not kind:
            raise TypeError(f"two types have the name {name}: give one of them another")
        return True


def _has_fields(type_: types.Type) -> bool:
    if isinstance(type_, types.StructType | types.DataclassType | types.TypedDictType):
        return True
    return isinstance(type_, types.CustomType) and is_pydantic(type_.cls)


def _fields(type_: types.Type) -> list[tuple[str, types.Type, Any]]:
    """Name, type and default of each field; the default is `NODEFAULT` where there is none."""
    if isinstance(type_, types.CustomType):
        return [
            (name, _inspected(each.annotation), _default(each.default, each.default_factory, each.is_required()))
            for name, each in type_.cls.model_fields.items()  # type: ignore[attr-defined]
        ]
    assert isinstance(type_, types.StructType | types.DataclassType | types.TypedDictType)
    if isinstance(type_, types.TypedDictType) and not all(each.required for each in type_.fields):
        name = next(each.name for each in type_.fields if not each.required)
        raise TypeError(f"{name_of_type(type_.cls)} may lack {name}, which Avro cannot say: use format='json-schema'")
    return [
        (each.encode_name, each.type, _default(each.default, each.default_factory, each.required))
        for each in type_.fields
    ]


def _default(default: Any, factory: Any, is_required: bool) -> Any:
    if is_required:
        return msgspec.NODEFAULT
    if factory in (list, dict, set, tuple):
        return {} if factory is dict else []
    if factory is None or factory is msgspec.NODEFAULT:
        return default.value if isinstance(default, Enum) else default
    return msgspec.NODEFAULT


def _field(name: str, schema: Any, default: Any) -> dict[str, Any]:
    if default is msgspec.NODEFAULT or not (
        default is None or default in ([], {}) or isinstance(default, bool | int | float | str)
    ):
        return {"name": name, "type": schema}
    if isinstance(schema, list):
        # The default of a union is of its first branch.
        first = [each for each in schema if _fits(each, default)]
        schema = [*first[:1], *(each for each in schema if not first or each is not first[0])]
        if not first:
            return {"name": name, "type": schema}
    elif not _fits(schema, default):
        return {"name": name, "type": schema}
    return {"name": name, "type": schema, "default": default}


def _fits(schema: Any, default: Any) -> bool:
    kind = schema["type"] if isinstance(schema, dict) else schema
    match default:
        case None:
            return bool(kind == "null")
        case bool():
            return bool(kind == "boolean")
        case int():
            return kind in ("long", "double") and not (isinstance(schema, dict) and "logicalType" in schema)
        case float():
            return bool(kind == "double")
        case str():
            return schema == "string" or (kind == "enum" and default in schema["symbols"])
        case list():
            return bool(kind == "array")
    return bool(kind == "map")


def _union(branches: list[Any]) -> Any:
    flat = [inner for each in branches for inner in (each if isinstance(each, list) else [each])]
    unique = [each for place, each in enumerate(flat) if each not in flat[:place]]
    # None first, as is the custom: a default of null then fits.
    return sorted(unique, key=lambda each: each != "null") if len(unique) > 1 else unique[0]


def _plain_values(values: list[Any]) -> Any:
    """The type of values that are no names."""
    kinds = {"null" if each is None else "string" if isinstance(each, str) else "long" for each in values}
    return _union(sorted(kinds))


def _name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise TypeError(f"{text!r} is not a name in Avro: use format='json-schema'")
    return text
