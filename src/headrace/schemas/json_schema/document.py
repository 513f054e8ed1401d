"""Parses a JSON Schema document into nodes, and resolves its references. Pure.

The draft is that of `$schema`, and 7 without it. The document is checked against the meta-schema of its draft. A
reference leads to a part of the document or to a document that it was registered with; nothing is ever fetched.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urljoin

import jsonschema
import referencing
from jsonschema.validators import validator_for
from referencing.exceptions import CannotDetermineSpecification, NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT7, UnknownDialect

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.json_schema.meta_schema import MetaSchemaMisfit, compiled_meta_schema
from headrace.schemas.json_schema.nodes import JsonNode
from headrace.schemas.json_text import loaded_json
from headrace.schemas.steps import CHARS_OF_A_STEP, StepLimit

COMBINED: Final = ("allOf", "anyOf", "oneOf")
_OBJECT: Final = frozenset(
    {"properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"}
    | {"dependencies", "dependentRequired", "dependentSchemas", "propertyNames", "unevaluatedProperties"}
)
_ARRAY: Final = frozenset(
    {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains"}
    | {"maxContains", "unevaluatedItems"}
)
_STRING: Final = frozenset({"minLength", "maxLength", "pattern", "format"})
_NUMBER: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_SNIFFED: Final = (("object", _OBJECT), ("array", _ARRAY), ("string", _STRING), ("number", _NUMBER))
_OLD_DRAFTS: Final = ("draft-03", "draft-04", "draft-06", "draft-07")
"""Drafts in which the siblings of `$ref` are ignored."""

_EXPLAINED_CHARS: Final = 32 * 1024

Resolver = Any
"""`referencing`'s resolver; its type is private."""


@dataclass(frozen=True, slots=True)
class JsonSchemaDocument:
    root: JsonNode
    value: Any
    """The document as parsed JSON."""
    references: Mapping[str, Any]
    """The documents that it refers to, by name."""
    draft: Any
    """The specification of its draft, of `referencing`."""


def parse_json_schema(text: str, references: Mapping[str, str] | None = None) -> JsonSchemaDocument:
    """Parse a document; `references` are the documents that it refers to, by name. Raises `InvalidSchema`."""
    value = _loaded(text)
    if not isinstance(value, dict | bool):
        raise InvalidSchema("a JSON Schema is an object, true or false")
    others = {name: _loaded(each) for name, each in (references or {}).items()}
    _check(value, len(text))
    draft = _specification(value)
    registry, root_id = document_registry(value, others, draft)
    builder = _NodeBuilder()
    try:
        root = builder.node(value, registry.resolver(root_id), _draft_of(value, "draft-07"), 0)
        builder.finish()
    except Unresolvable as error:
        raise InvalidSchema(
            f"the reference {str(error.ref)[:200]} leads to nothing: register the document that it names, and list it "
            "in the references; remote documents are not fetched"
        ) from None
    return JsonSchemaDocument(root, value, others, draft)


def document_registry(value: Any, references: Mapping[str, Any], draft: Any) -> tuple[Any, str]:
    """A registry of `referencing` with a document and those that it refers to, and the address of the first."""
    root_id = str(value.get("$id", value.get("id", ""))) if isinstance(value, dict) else ""
    registry: Any = cast(Any, referencing.Registry)(retrieve=_never_fetched)
    for name, each in references.items():
        resource = referencing.Resource.from_contents(each, default_specification=draft)
        registry = registry.with_resource(name, resource)
        if root_id and (full := urljoin(root_id, name)) != name:
            registry = registry.with_resource(full, resource)
    root = referencing.Resource.from_contents(value, default_specification=draft)
    return registry.with_resource(root_id, root), root_id


def canonical_json_schema(document: JsonSchemaDocument) -> str:
    """The text without white space outside of strings, as Confluent's registry stores it."""
    return json.dumps(document.value, separators=(",", ":"), ensure_ascii=False)


def normalized_json_schema(document: JsonSchemaDocument) -> str:
    """The canonical text with the keys of objects in order, in which equal schemas are equal."""
    return canonical_value(document.value)


def canonical_value(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def _loaded(text: str) -> Any:
    try:
        return loaded_json(text)
    except ValueError as error:
        raise InvalidSchema(f"a JSON Schema is JSON: {error}") from None


def _check(value: Any, size: int) -> None:
    validator: Any = validator_for(value, default=jsonschema.Draft7Validator)
    quick = compiled_meta_schema(validator)
    try:
        if quick is not None:
            quick(value)
        else:
            validator.check_schema(value)
    except MetaSchemaMisfit as misfit:
        _explain(validator, value, size)
        raise InvalidSchema(f"at #/{_where(reversed(misfit.path))}: {str(misfit)[:300]}") from None
    except jsonschema.SchemaError as error:
        raise InvalidSchema(f"at #/{_where(error.absolute_path)}: {error.message[:300]}") from None
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep") from None


def _explain(validator: Any, value: Any, size: int) -> None:
    """Raise what `jsonschema` says about a document that does not fit, unless it is so large that this takes long."""
    if size <= _EXPLAINED_CHARS:
        validator.check_schema(value)


def _where(path: Iterable[str | int]) -> str:
    return "/".join(map(str, path))


def _specification(value: Any) -> Any:
    try:
        return referencing.Resource.from_contents(value, default_specification=DRAFT7)._specification
    except CannotDetermineSpecification:
        raise InvalidSchema("the dialect of $schema is not known") from None
    except UnknownDialect as error:
        raise InvalidSchema(f"the dialect {error.uri} is not known") from None


def _draft_of(value: Any, inherited: str) -> str:
    return str(value["$schema"]) if isinstance(value, dict) and "$schema" in value else inherited


def _never_fetched(uri: str) -> Any:
    raise cast(Any, NoSuchResource)(ref=uri)


class _NodeBuilder:
    def __init__(self) -> None:
        self._nodes: dict[int, JsonNode] = {}
        """By the identity of the parsed JSON, which the document and the registry hold."""
        self._steps = StepLimit()
        self._later: list[Callable[[], None]] = []

    def finish(self) -> None:
        """Resolve references, which may add nodes with references."""
        while self._later:
            self._later.pop()()

    def node(self, schema: Any, resolver: Resolver, draft: str, depth: int) -> JsonNode:
        self._steps.step(depth)
        if not isinstance(schema, dict):
            return JsonNode("never" if schema is False else "any")
        known = self._nodes.get(id(schema))
        if known is not None:
            return known
        made = self._nodes[id(schema)] = JsonNode("any")
        resolver = resolver.in_subresource(DRAFT7.create_resource(schema)) if _has_id(schema) else resolver
        draft = _draft_of(schema, draft)
        parts = self._parts(schema, resolver, draft, depth)
        if len(parts) == 1:
            _become(made, parts[0])
        elif parts:
            texts = tuple(canonical_value([place]) for place, _ in enumerate(parts))
            _become(made, JsonNode("combined", criterion="allOf", parts=tuple(parts), texts=texts))
        made.has_default = "default" in schema
        made.connect_type = str(schema.get("connect.type", ""))
        return made

    def _parts(self, schema: Mapping[str, Any], resolver: Resolver, draft: str, depth: int) -> list[JsonNode]:
        parts = []
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(schema.get(keyword), str):
                parts.append(self._reference(schema[keyword], resolver, draft, depth))
                if any(each in draft for each in _OLD_DRAFTS):
                    return parts
        if "enum" in schema:
            parts.append(JsonNode("enum", values=tuple(map(canonical_value, schema["enum"]))))
        if "const" in schema:
            parts.append(JsonNode("const", values=(canonical_value(schema["const"]),)))
        for criterion in COMBINED:
            if criterion in schema:
                parts.append(self._combined(criterion, schema[criterion], resolver, draft, depth))
        if "not" in schema:
            parts.append(JsonNode("not", target=self.node(schema["not"], resolver, draft, depth + 1)))
        if "if" in schema:
            parts.append(JsonNode("conditional"))
        parts.extend(self._typed(schema, resolver, draft, depth))
        return parts

    def _reference(self, ref: str, resolver: Resolver, draft: str, depth: int) -> JsonNode:
        made = JsonNode("ref")

        def resolve() -> None:
            found = resolver.lookup(ref)
            made.target = self.node(found.contents, found.resolver, _draft_of(found.contents, draft), depth + 1)

        self._later.append(resolve)
        return made

    def _combined(self, criterion: str, schemas: Any, resolver: Resolver, draft: str, depth: int) -> JsonNode:
        parts: dict[str, JsonNode] = {}
        for each in schemas:
            text = canonical_value(each)
            self._steps.step(depth, 1 + len(text) // CHARS_OF_A_STEP)
            if text not in parts:
                parts[text] = self.node(each, resolver, draft, depth + 1)
        return JsonNode("combined", criterion=criterion, parts=tuple(parts.values()), texts=tuple(parts))

    def _typed(self, schema: Mapping[str, Any], resolver: Resolver, draft: str, depth: int) -> list[JsonNode]:
        kinds = schema.get("type")
        if kinds is None:
            found = [kind for kind, keywords in _SNIFFED if keywords & schema.keys()]
            return [self._of(kind, schema, resolver, draft, depth) for kind in found]
        if isinstance(kinds, str):
            return [self._of(kinds, schema, resolver, draft, depth)]
        parts = tuple(self._of(kind, schema, resolver, draft, depth) for kind in kinds)
        return [JsonNode("combined", criterion="anyOf", parts=parts, texts=tuple(kinds))]

    def _of(self, kind: str, schema: Mapping[str, Any], resolver: Resolver, draft: str, depth: int) -> JsonNode:
        if kind == "object":
            return self._object(schema, resolver, draft, depth)
        if kind == "array":
            return self._array(schema, resolver, draft, depth)
        if kind in ("integer", "number"):
            return JsonNode(
                "number", {key: schema[key] for key in _NUMBER & schema.keys()}, is_integer=kind == "integer"
            )
        if kind == "string":
            return JsonNode("string", {key: schema[key] for key in _STRING & schema.keys()})
        return JsonNode(kind)

    def _object(self, schema: Mapping[str, Any], resolver: Resolver, draft: str, depth: int) -> JsonNode:
        def nodes(keyword: str) -> dict[str, JsonNode]:
            return {
                name: self.node(each, resolver, draft, depth + 1)
                for name, each in schema.get(keyword, {}).items()
                if isinstance(each, dict | bool)
            }

        patterns = nodes("patternProperties")
        dependencies = {**schema.get("dependencies", {}), **schema.get("dependentRequired", {})}
        more = schema.get("additionalProperties", True)
        return JsonNode(
            "object",
            {key: schema[key] for key in ("minProperties", "maxProperties") if key in schema},
            properties=nodes("properties"),
            required=frozenset(schema.get("required", ())) if isinstance(schema.get("required"), list) else frozenset(),
            patterns=tuple(patterns.items()),
            needed={name: frozenset(each) for name, each in dependencies.items() if isinstance(each, list)},
            dependent={**nodes("dependencies"), **nodes("dependentSchemas")},
            permits_more=more is not False,
            more=self.node(more, resolver, draft, depth + 1) if isinstance(more, dict) else None,
            unevaluated=self._optional(schema, "unevaluatedProperties", resolver, draft, depth),
        )

    def _array(self, schema: Mapping[str, Any], resolver: Resolver, draft: str, depth: int) -> JsonNode:
        items, first, more = schema.get("items"), schema.get("prefixItems"), schema.get("additionalItems", True)
        if first is None and isinstance(items, list):
            first, items = items, None
        elif first is not None:
            more, items = (True if items is None else items), None
        node = JsonNode(
            "array",
            {key: schema[key] for key in ("minItems", "maxItems", "minContains", "maxContains") if key in schema},
            tuple_items=tuple(self.node(each, resolver, draft, depth + 1) for each in first or ()),
            items=None if items is None else self.node(items, resolver, draft, depth + 1),
            permits_more=more is not False,
            more=self.node(more, resolver, draft, depth + 1) if isinstance(more, dict) else None,
            unevaluated=self._optional(schema, "unevaluatedItems", resolver, draft, depth),
        )
        if schema.get("uniqueItems") is True:
            node.keywords = {**node.keywords, "uniqueItems": True}
        return node

    def _optional(
        self, schema: Mapping[str, Any], keyword: str, resolver: Resolver, draft: str, depth: int
    ) -> JsonNode | None:
        return self.node(schema[keyword], resolver, draft, depth + 1) if keyword in schema else None


def _has_id(schema: Mapping[str, Any]) -> bool:
    return isinstance(schema.get("$id"), str)


def _become(made: JsonNode, other: JsonNode) -> None:
    """Fill a node that others refer to already."""
    for slot in JsonNode.__slots__:
        setattr(made, slot, getattr(other, slot))
    if other.kind == "ref":
        made.kind, made.target = "ref", other
