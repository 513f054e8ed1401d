"""The canonical text of an Avro schema, as Avro for Java writes it, so that registries agree on what is the same. Pure.

A named type is written in full where it is first used and by its name after that; types of referenced schemas are
always written by name.
"""

import json
from typing import Any

from headrace.schemas.avro.types import AvroSchema, AvroSchemaField, AvroSchemaType
from headrace.schemas.steps import StepLimit


def canonical_avro(schema: AvroSchema) -> str:
    """The canonical text."""
    written = _AvroWriter(set(schema.referenced)).type(schema.root, "", 0)
    return json.dumps(written, separators=(",", ":"), ensure_ascii=False)


def normalized_avro(schema: AvroSchema) -> str:
    """The canonical text without differences that mean nothing: properties in the order of their names."""
    written = _AvroWriter(set(schema.referenced), is_sorted=True).type(schema.root, "", 0)
    return json.dumps(written, separators=(",", ":"), ensure_ascii=False)


class _AvroWriter:
    def __init__(self, known: set[str], *, is_sorted: bool = False) -> None:
        self._known = known
        self._is_sorted = is_sorted
        self._steps = StepLimit()

    def type(self, type_: AvroSchemaType, namespace: str, depth: int) -> Any:
        self._steps.step(depth)
        if type_.name:
            return self._named(type_, namespace, depth)
        if type_.kind == "union":
            return [self.type(branch, namespace, depth + 1) for branch in type_.branches]
        properties = self._ordered(type_.properties)
        if type_.items is not None:
            key = "items" if type_.kind == "array" else "values"
            return {"type": type_.kind, key: self.type(type_.items, namespace, depth + 1), **properties}
        return {"type": type_.kind, **properties} if properties else type_.kind

    def _named(self, type_: AvroSchemaType, namespace: str, depth: int) -> Any:
        own = type_.namespace
        if type_.name in self._known:
            return type_.short_name if own == namespace else type_.name
        self._known.add(type_.name)
        written: dict[str, Any] = {"type": type_.kind, "name": type_.short_name}
        if own != namespace:
            written["namespace"] = own
        if type_.doc is not None:
            written["doc"] = type_.doc
        if type_.kind == "enum":
            written["symbols"] = list(type_.symbols)
            if type_.default_symbol is not None:
                written["default"] = type_.default_symbol
        elif type_.kind == "fixed":
            written["size"] = type_.size
        else:
            written["fields"] = [self._field(each, own, depth + 1) for each in type_.fields]
        written |= self._ordered(type_.properties)
        if type_.aliases:
            written["aliases"] = [_relative(alias, own) for alias in type_.aliases]
        return written

    def _field(self, field: AvroSchemaField, namespace: str, depth: int) -> dict[str, Any]:
        written: dict[str, Any] = {"name": field.name, "type": self.type(field.type, namespace, depth)}
        if field.doc is not None:
            written["doc"] = field.doc
        if field.has_default:
            written["default"] = field.default
        if field.order != "ascending":
            written["order"] = field.order
        if field.aliases:
            written["aliases"] = list(field.aliases)
        return written | self._ordered(field.properties)

    def _ordered(self, properties: Any) -> dict[str, Any]:
        return dict(sorted(properties.items())) if self._is_sorted else dict(properties)


def _relative(name: str, namespace: str) -> str:
    own, _, short = name.rpartition(".")
    return short if own == namespace else name
