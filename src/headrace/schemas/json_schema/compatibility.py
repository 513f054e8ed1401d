"""Whether values that are valid by one JSON Schema are valid by another. Pure.

The names of the changes and which of them break readers are those of Confluent's registry. The content model decides on
properties: an open object (other properties are allowed) may lose properties but not gain typed ones, because writers
may have used the name for something else; a closed one may gain optional properties but not lose any.
"""

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any, Final

import re2

from headrace.schemas.bipartite import largest_matching
from headrace.schemas.incompatibility import Incompatibility
from headrace.schemas.json_schema.document import JsonSchemaDocument
from headrace.schemas.json_schema.nodes import JsonNode, resolved
from headrace.schemas.json_schema.texts import described
from headrace.schemas.steps import StepLimit

MAX_FINDINGS: Final = 100
LENIENT: Final = frozenset(
    {
        "ADDITIONAL_PROPERTIES_NARROWED",
        "ADDITIONAL_PROPERTIES_REMOVED",
        "UNEVALUATED_PROPERTIES_NARROWED",
        "UNEVALUATED_PROPERTIES_REMOVED",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    }
)
"""Changes that the policy LENIENT allows in addition."""

_STEPS_OF_A_PATTERN: Final = 50
_Found = list[tuple[str, str]]
"""Changes that break readers: name and path relative to the compared pair."""
_UPPER: Final = ("maxLength", "maximum", "exclusiveMaximum", "maxProperties", "maxItems", "maxContains")
_LOWER: Final = ("minLength", "minimum", "exclusiveMinimum", "minProperties", "minItems", "minContains")


def json_incompatibilities(
    reader: JsonSchemaDocument, writer: JsonSchemaDocument, *, is_lenient: bool = False
) -> list[Incompatibility]:
    """What keeps values of `writer` from being valid by `reader`; empty if nothing does."""
    allowed = LENIENT if is_lenient else frozenset()
    steps, broken = StepLimit(), frozenset[tuple[int, int]]()
    while True:
        # A pair that is compared within itself counts as compatible, unless the last round has found it not to be.
        comparison = _JsonComparison(steps, allowed, broken)
        found = comparison.compare(writer.root, reader.root, 0)
        if not comparison.has_assumed or comparison.broken <= broken:
            return [Incompatibility(kind, f"#/{path}", described(kind, f"#/{path}")) for kind, path in found]
        broken |= comparison.broken


class _JsonComparison:
    def __init__(self, steps: StepLimit, allowed: frozenset[str], broken: frozenset[tuple[int, int]]) -> None:
        self._steps = steps
        self._allowed = allowed
        self._broken_before = broken
        self._known: dict[tuple[int, int], _Found] = {}
        self._in_progress: set[tuple[int, int]] = set()
        self._nodes: list[JsonNode] = []
        """Nodes made on the way, so that no other one gets their identity."""
        self.has_assumed = False
        self._patterns: dict[str, Callable[[str], Any] | None] = {}

    @property
    def broken(self) -> frozenset[tuple[int, int]]:
        return frozenset(pair for pair, found in self._known.items() if found)

    def compare(self, old: JsonNode | None, new: JsonNode | None, depth: int) -> _Found:
        self._steps.step(depth)
        if old is None or new is None:
            return [("SCHEMA_ADDED", "")] if new is not None else []
        old, new = resolved(old), resolved(new)
        self._nodes += (old, new)
        pair = (id(old), id(new))
        known = self._known.get(pair)
        if known is not None:
            return known
        if pair in self._in_progress:
            if pair in self._broken_before:
                return [("TYPE_CHANGED", "")]
            self.has_assumed = True
            return []
        self._in_progress.add(pair)
        differences = (each for each in self._differences(old, new, depth + 1) if each[0] not in self._allowed)
        found = [*islice(differences, MAX_FINDINGS)]
        self._in_progress.discard(pair)
        self._known[pair] = found
        return found

    def _within(self, path: str, old: JsonNode | None, new: JsonNode | None, depth: int) -> Iterator[tuple[str, str]]:
        for kind, inner in self.compare(old, new, depth):
            yield kind, f"{path}/{inner}".rstrip("/")

    def _differences(self, old: JsonNode, new: JsonNode, depth: int) -> Iterator[tuple[str, str]]:
        if (old.kind == "combined") is not (new.kind == "combined") and self._fits_a_part(old, new, depth):
            return
        if old.kind != new.kind:
            is_bytes = old.connect_type == new.connect_type == "bytes"
            if old.kind != "never" and new.kind != "any" and not is_bytes:
                yield "TYPE_CHANGED", ""
            return
        yield from _limits(old.keywords, new.keywords)
        match old.kind:
            case "number":
                yield from _numbers(old, new)
            case "string":
                yield from _pattern(old.keywords.get("pattern"), new.keywords.get("pattern"))
            case "enum":
                yield from _enum(set(old.values), set(new.values))
            case "const" if old.values != new.values:
                yield "ENUM_ARRAY_CHANGED", "const"
            case "not" if self.compare(new.target, old.target, depth):
                yield "NOT_TYPE_EXTENDED", "not"
            case "combined":
                yield from self._combined(old, new, depth)
            case "object":
                yield from self._objects(old, new, depth)
            case "array":
                yield from self._arrays(old, new, depth)

    def _fits_a_part(self, old: JsonNode, new: JsonNode, depth: int) -> bool:
        """Whether a schema fits into one of the parts of a sum, or one of the parts of a product fits into it."""
        if new.kind == "combined":
            if len(new.parts) > 1 and new.criterion == "allOf":
                return False
            return any(not self.compare(old, part, depth) for part in new.parts)
        if len(old.parts) > 1 and old.criterion != "allOf":
            return False
        return any(not self.compare(part, new, depth) for part in old.parts)

    def _combined(self, old: JsonNode, new: JsonNode, depth: int) -> Iterator[tuple[str, str]]:
        if not _is_criterion_extended(old, new):
            yield "COMBINED_TYPE_CHANGED", ""
            return
        if len(old.parts) < len(new.parts) and new.criterion == "allOf":
            yield "PRODUCT_TYPE_EXTENDED", ""
        elif len(old.parts) > len(new.parts) and old.criterion != "allOf":
            yield "SUM_TYPE_NARROWED", ""
        fitting = [
            [place for place, part in enumerate(new.parts) if not self.compare(each, part, depth)] for each in old.parts
        ]
        if largest_matching(fitting, len(new.parts), self._steps) < min(len(old.parts), len(new.parts)):
            yield "COMBINED_TYPE_SUBSCHEMAS_CHANGED", ""

    # -- objects

    def _objects(self, old: JsonNode, new: JsonNode, depth: int) -> Iterator[tuple[str, str]]:
        for name in old.properties.keys() & new.properties.keys():
            if name in new.required and name not in old.required and not new.properties[name].has_default:
                yield "REQUIRED_ATTRIBUTE_ADDED", f"required/{name}"
        for name in sorted(old.properties.keys() | new.properties.keys()):
            path, before, after = f"properties/{name}", old.properties.get(name), new.properties.get(name)
            if before is not None and after is not None:
                yield from self._within(path, before, after, depth)
            elif before is not None:
                yield from self._removed_property(name, before, new, path, depth)
            elif after is not None:
                yield from self._added_property(name, after, old, new, path, depth)
        yield from self._dependencies(old, new, depth)
        yield from self._others("additionalProperties", "ADDITIONAL_PROPERTIES", old, new, depth)
        yield from self._unevaluated("unevaluatedProperties", "UNEVALUATED_PROPERTIES", old, new, depth)

    def _removed_property(
        self, name: str, before: JsonNode, new: JsonNode, path: str, depth: int
    ) -> Iterator[tuple[str, str]]:
        if new.is_open:
            return
        covering = self._covering(new, name)
        if covering is not None:
            found = list(self._within(path, before, covering, depth))
            yield from found
            if found:
                yield "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path
        elif resolved(before).kind != "never":
            yield "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path

    def _added_property(
        self, name: str, after: JsonNode, old: JsonNode, new: JsonNode, path: str, depth: int
    ) -> Iterator[tuple[str, str]]:
        is_required, model = name in new.required, "OPEN" if old.is_open else "UNOPEN"
        if old.is_open:
            if resolved(after).kind == "any":
                return
            if not is_required:
                yield "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", path
            elif after.has_default:
                yield "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL", path
        elif (covering := self._covering(old, name)) is not None:
            found = list(self._within(path, covering, after, depth))
            yield from found
            if found:
                yield "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path
        if is_required and not after.has_default:
            yield f"REQUIRED_PROPERTY_ADDED_TO_{model}_CONTENT_MODEL", path

    def _covering(self, node: JsonNode, name: str) -> JsonNode | None:
        """The schema that a partially open object has for a property that it does not name."""
        for pattern, schema in node.patterns:
            self._steps.step()
            if pattern not in self._patterns:
                self._steps.step(0, _STEPS_OF_A_PATTERN)
                self._patterns[pattern] = _compiled(pattern)
            matches = self._patterns[pattern]
            if matches is not None and matches(name):
                return schema
        return node.schema_of_others

    def _dependencies(self, old: JsonNode, new: JsonNode, depth: int) -> Iterator[tuple[str, str]]:
        for name, after in new.needed.items():
            path, before = f"dependencies/{name}", old.needed.get(name)
            if before is None:
                yield "DEPENDENCY_ARRAY_ADDED", path
            elif not after <= before:
                yield f"DEPENDENCY_ARRAY_{'EXTENDED' if before < after else 'CHANGED'}", path
        for name, schema in new.dependent.items():
            path = f"dependencies/{name}"
            if name not in old.dependent:
                yield "DEPENDENCY_SCHEMA_ADDED", path
            else:
                yield from self._within(path, old.dependent[name], schema, depth)

    def _others(self, path: str, prefix: str, old: JsonNode, new: JsonNode, depth: int) -> Iterator[tuple[str, str]]:
        """Properties or items that are not named."""
        if old.permits_more is not new.permits_more:
            if not new.permits_more:
                yield f"{prefix}_REMOVED", path
        elif old.more is None and new.more is not None:
            yield f"{prefix}_NARROWED", path
        elif old.more is not None and new.more is not None:
            yield from self._within(path, old.more, new.more, depth)

    def _unevaluated(
        self, path: str, prefix: str, old: JsonNode, new: JsonNode, depth: int
    ) -> Iterator[tuple[str, str]]:
        before, after = old.unevaluated, new.unevaluated
        if after is None or (before is not None and before.kind == "never" and after.kind != "never"):
            return
        if after.kind == "never" and (before is None or before.kind != "never"):
            yield f"{prefix}_REMOVED", path
        elif before is None or (before.kind == "any" and after.kind != "any"):
            yield f"{prefix}_NARROWED", path
        elif after.kind != "any":
            yield from self._within(path, before, after, depth)

    # -- arrays

    def _arrays(self, old: JsonNode, new: JsonNode, depth: int) -> Iterator[tuple[str, str]]:
        if "uniqueItems" in new.keywords and "uniqueItems" not in old.keywords:
            yield "UNIQUE_ITEMS_ADDED", "uniqueItems"
        yield from self._within("items", old.items, new.items, depth)
        both = min(len(old.tuple_items), len(new.tuple_items))
        for place in range(both):
            yield from self._within(f"items/{place}", old.tuple_items[place], new.tuple_items[place], depth)
        for place in range(both, len(old.tuple_items)):
            yield from self._removed_item(old.tuple_items[place], new, f"items/{place}", depth)
        for place in range(both, len(new.tuple_items)):
            yield from self._added_item(new.tuple_items[place], old, f"items/{place}", depth)
        yield from self._others("additionalItems", "ADDITIONAL_ITEMS", old, new, depth)
        yield from self._unevaluated("unevaluatedItems", "UNEVALUATED_ITEMS", old, new, depth)

    def _removed_item(self, before: JsonNode, new: JsonNode, path: str, depth: int) -> Iterator[tuple[str, str]]:
        if new.is_open:
            return
        covering = new.schema_of_others
        if covering is not None:
            found = list(self._within(path, before, covering, depth))
            yield from found
            if found:
                yield "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path
        elif resolved(before).kind != "never":
            yield "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", path

    def _added_item(self, after: JsonNode, old: JsonNode, path: str, depth: int) -> Iterator[tuple[str, str]]:
        covering = old.schema_of_others
        if old.is_open:
            if resolved(after).kind != "any":
                yield "ITEM_ADDED_TO_OPEN_CONTENT_MODEL", path
        elif covering is not None:
            found = list(self._within(path, covering, after, depth))
            yield from found
            if found:
                yield "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path


def _is_criterion_extended(old: JsonNode, new: JsonNode) -> bool:
    """Whether `new` combines its parts in the way of `old`, or in a wider one."""
    if old.criterion == new.criterion or new.criterion == "anyOf":
        return True
    is_old_single, is_new_single = len(old.parts) == 1, len(new.parts) == 1
    return (
        (is_old_single and is_new_single)
        or (is_old_single and new.criterion == "oneOf")
        or (is_new_single and old.criterion == "allOf")
    )


def _compiled(pattern: str) -> Callable[[str], Any] | None:
    """A search for a pattern; None for one with a look-around: no name is known to match it."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options).search  # type: ignore[no-any-return]
    except re2.error:
        return None


def _limits(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Limits that became narrower."""
    for keyword in (*_UPPER, *_LOWER):
        before, after = _limit(old, keyword), _limit(new, keyword)
        if after is None:
            continue
        name = _screaming(keyword)
        if before is None:
            yield f"{name}_ADDED", keyword
        elif keyword in _UPPER and after < before:
            yield f"{name}_DECREASED", keyword
        elif keyword in _LOWER and after > before:
            yield f"{name}_INCREASED", keyword


def _limit(keywords: Mapping[str, Any], keyword: str) -> Decimal | None:
    """A limit; the `exclusiveMaximum: true` of draft 4 is the limit `maximum`."""
    value = keywords.get(keyword)
    if isinstance(value, bool):
        return _exact(keywords.get(keyword.removeprefix("exclusive").lower(), 0)) if value else None
    return None if value is None else _exact(value)


def _exact(value: float) -> Decimal:
    return Decimal(str(value))


def _screaming(keyword: str) -> str:
    return "".join(f"_{each}" if each.isupper() else each.upper() for each in keyword)


def _numbers(old: JsonNode, new: JsonNode) -> Iterator[tuple[str, str]]:
    if new.is_integer and not old.is_integer:
        yield "TYPE_NARROWED", ""
    before, after = old.keywords.get("multipleOf"), new.keywords.get("multipleOf")
    if after is None or before == after:
        return
    if before is None:
        yield "MULTIPLE_OF_ADDED", "multipleOf"
        return
    was, is_now = Fraction(_exact(before)), Fraction(_exact(after))
    if (was / is_now).denominator != 1:
        yield f"MULTIPLE_OF_{'EXPANDED' if (is_now / was).denominator == 1 else 'CHANGED'}", "multipleOf"


def _pattern(old: str | None, new: str | None) -> Iterator[tuple[str, str]]:
    if new is not None and new != old:
        yield ("PATTERN_ADDED" if old is None else "PATTERN_CHANGED"), "pattern"


def _enum(old: set[str], new: set[str]) -> Iterator[tuple[str, str]]:
    if not old <= new:
        yield ("ENUM_ARRAY_NARROWED" if new < old else "ENUM_ARRAY_CHANGED"), "enum"
