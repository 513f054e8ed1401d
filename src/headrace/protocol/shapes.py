"""The wire layout of kio's entities, derived from the entity classes."""

from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin

FIXED_SIZES: Mapping[str, int] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "float64": 8,
    "uuid": 16,
}
"""The sizes of the fixed-size types. Values of other types start with their length."""


class Shape(NamedTuple):
    is_array: bool
    is_nullable: bool
    primitive: str
    """Kafka's name of the type, or "" for an entity."""
    entity: type | None


class Layout(NamedTuple):
    plain: tuple[Shape, ...]
    tagged: Mapping[int, Shape]


@cache
def layout(entity: type) -> Layout:
    """The fields of an entity in order, and its tagged fields by tag."""
    plain, tagged = [], {}
    for field in fields(entity):
        shape = _shape(field)
        if "tag" in field.metadata:
            tagged[int(field.metadata["tag"])] = shape
        else:
            plain.append(shape)
    return Layout(tuple(plain), tagged)


def _shape(field: Field[Any]) -> Shape:
    inner, is_nullable = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = _without_none(get_args(inner)[0])
    if isinstance(inner, type) and is_dataclass(inner):
        return Shape(is_array, is_nullable, "", inner)
    return Shape(is_array, is_nullable, field.metadata["kafka_type"], None)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    arguments = get_args(annotation)
    if NoneType in arguments:
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return inner, True
    return annotation, False
