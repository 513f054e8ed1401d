"""Whether the default of an Avro field, which is JSON, is a value of the field's type. Pure."""

from math import isinf, isnan
from typing import TYPE_CHECKING, Any

from headrace.schemas.steps import StepLimit

if TYPE_CHECKING:
    from headrace.schemas.avro.types import AvroSchemaType

_RANGES = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}


def check_default(type_: "AvroSchemaType", value: Any, steps: StepLimit, depth: int = 0) -> bool:
    """True if the value is of the type; a default of a union is of any of its branches, as Avro 1.12 has it."""
    steps.step(depth)
    kind = type_.kind
    if kind == "union":
        return any(check_default(branch, value, steps, depth + 1) for branch in type_.branches)
    if kind in ("array", "map"):
        if not isinstance(value, list if kind == "array" else dict) or type_.items is None:
            return False
        items = value.values() if isinstance(value, dict) else value
        return all(check_default(type_.items, each, steps, depth + 1) for each in items)
    if kind in ("record", "error"):
        return isinstance(value, dict) and all(
            check_default(each.type, value[each.name], steps, depth + 1) if each.name in value else each.has_default
            for each in type_.fields
        )
    return _is_simple(type_, value)


def _is_simple(type_: "AvroSchemaType", value: Any) -> bool:
    kind = type_.kind
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in _RANGES:
        low, high = _RANGES[kind]
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    if kind in ("float", "double"):
        if isinstance(value, str):
            return value in ("NaN", "Infinity", "-Infinity")
        return isinstance(value, int | float) and not isinstance(value, bool) and not (isinf(value) or isnan(value))
    if kind == "enum":
        return isinstance(value, str) and value in type_.symbol_set
    if kind == "fixed":
        return isinstance(value, str) and len(value) == type_.size
    return isinstance(value, str)
