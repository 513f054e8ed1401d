"""Checks JSON values by their schema: nearly all by msgspec, at the speed of a parser, the others by jsonschema.

`parser_type` translates a schema into a type of msgspec, if that type accepts nothing that the schema does not. What it
refuses, and every value of a schema that it cannot express, is judged by `jsonschema` (`schemas/payload`).
"""

from contextlib import suppress
from typing import Any, Literal, Union

import msgspec

from headrace.pipelines.json_schema.columns import parse_document
from headrace.pipelines.values.nodes import UnreadableValue
from headrace.pipelines.values.schemas import WriterSchema
from headrace.pipelines.values.types import SchemaError
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.json_codec import JsonSchemaCodec

_MAX_DEPTH = 16
_ANNOTATIONS = {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
_AT_ROOT = {"$schema", "$id", "definitions", "$defs"}
_OLD_DRAFTS = ("draft-03", "draft-04")
"""In these 1.0 is no integer."""
_SIMPLE: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}


class NotExpressible(Exception):
    """A schema that no type of msgspec expresses."""


class JsonCheck:
    """Checks values of one schema. Raises `SchemaError` for a schema that cannot be used."""

    def __init__(self, schema: WriterSchema) -> None:
        if schema.kind != "JSON":
            raise SchemaError(f"it is of type {schema.kind}, not JSON Schema")
        document = parse_document(schema.text, schema.references)
        try:
            self._codec = JsonSchemaCodec(document, allows_any_pattern=True)
        except InvalidSchema as error:
            raise SchemaError(f"values cannot be checked by it: {error}") from None
        self._decoder: msgspec.json.Decoder[Any] | None = None
        with suppress(NotExpressible, TypeError, ValueError, RecursionError):
            self._decoder = msgspec.json.Decoder(parser_type(document.value))

    def check(self, data: bytes) -> None:
        """Raise `UnreadableValue` with the reason, if a value does not fit."""
        if self._decoder is not None:
            try:
                self._decoder.decode(data)
                return
            except (msgspec.MsgspecError, ValueError, RecursionError):
                pass  # It may be valid nevertheless, and if not, jsonschema says why.
        try:
            self._codec.check(data)
        except InvalidPayload as error:
            raise UnreadableValue(str(error)) from None


def parser_type(document: Any) -> Any:
    """A type that accepts only what the schema accepts; `NotExpressible` if there is none."""
    if not isinstance(document, dict) or any(each in str(document.get("$schema", "")) for each in _OLD_DRAFTS):
        raise NotExpressible
    return _ParserTypes(document).of({key: each for key, each in document.items() if key not in _AT_ROOT}, 0)


class _ParserTypes:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._structs = 0

    def of(self, schema: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH or not isinstance(schema, dict):
            raise NotExpressible
        keys = schema.keys() - _ANNOTATIONS
        if keys == {"$ref"}:
            return self.of(self._target(schema["$ref"]), depth + 1)
        kind = schema.get("type")
        if isinstance(kind, list):
            limits = {key: each for key, each in schema.items() if key != "type"}
            parts = [
                self.of({"type": "null"} if each == "null" else {**limits, "type": each}, depth + 1) for each in kind
            ]
            return Union[tuple(parts)]  # noqa: UP007
        if keys in ({"anyOf"}, {"oneOf"}):
            return self._nullable(schema.get("anyOf") or schema.get("oneOf"), depth)
        if kind == "object":
            return self._object(schema, keys, depth)
        if kind == "array" and keys <= {"type", "items"}:
            return list[self.of(schema["items"], depth + 1)] if "items" in schema else list[Any]  # type: ignore[misc]
        if kind == "string" and keys == {"type", "enum"} and all(isinstance(each, str) for each in schema["enum"]):
            return Literal[tuple(schema["enum"])]
        if kind in _SIMPLE and keys <= {"type", "format"}:
            return _SIMPLE[kind]
        raise NotExpressible

    def _target(self, ref: Any) -> Any:
        parts = str(ref).split("/")
        if len(parts) != 3 or parts[0] != "#" or parts[1] not in ("definitions", "$defs") or "~" in ref or "%" in ref:
            raise NotExpressible
        return self._root.get(parts[1], {}).get(parts[2])

    def _nullable(self, schemas: Any, depth: int) -> Any:
        others = [each for each in schemas if each != {"type": "null"}]
        if len(others) != 1 or len(schemas) != 2 or others[0].get("type") not in (*_SIMPLE, "object", "array"):
            raise NotExpressible
        return Union[self.of(others[0], depth + 1), None]  # noqa: UP007

    def _object(self, schema: dict[str, Any], keys: set[str], depth: int) -> Any:
        if not keys <= {"type", "properties", "required", "additionalProperties"}:
            raise NotExpressible
        properties, required = schema.get("properties", {}), schema.get("required", [])
        more = schema.get("additionalProperties", True)
        if not properties and not required:
            if more is False:
                raise NotExpressible
            return dict[str, Any if more is True else self.of(more, depth + 1)]  # type: ignore[misc]
        if not isinstance(more, bool) or not set(required) <= properties.keys():
            raise NotExpressible
        fields: list[Any] = []
        for place, (name, each) in enumerate(properties.items()):
            kind = self.of(each, depth + 1)
            optional = (Union[kind, msgspec.UnsetType], msgspec.UNSET)  # noqa: UP007
            fields.append((f"f{place}", kind) if name in required else (f"f{place}", *optional))
        self._structs += 1
        return msgspec.defstruct(
            f"Object{self._structs}",
            fields,
            kw_only=True,
            rename={f"f{place}": name for place, name in enumerate(properties)},
            forbid_unknown_fields=not more,
        )
