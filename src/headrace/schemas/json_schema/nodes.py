"""The parts of a JSON Schema as the rules of compatibility see them. Pure.

A schema with several groups of keywords is an `allOf` of them, and one with a list of types an `anyOf`: so each node is
of one kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class JsonNode:
    """A schema of one kind; one object for each place in a document, so that recursion is a cycle."""

    kind: str
    """any, never, string, number, boolean, null, object, array, enum, const, not, combined, conditional or ref."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """The limits of strings, numbers, arrays and objects as they are written."""
    has_default: bool = False
    connect_type: str = ""
    """`connect.type`, which Kafka Connect writes."""
    target: "JsonNode | None" = None
    """What a reference or `not` refers to."""
    values: tuple[str, ...] = ()
    """The values of `enum` and `const`, as canonical JSON."""
    criterion: str = ""
    """oneOf, anyOf or allOf."""
    parts: tuple["JsonNode", ...] = ()
    texts: tuple[str, ...] = ()
    """The canonical JSON of each part, which tells duplicates."""
    is_integer: bool = False
    properties: Mapping[str, "JsonNode"] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    patterns: tuple[tuple[str, "JsonNode"], ...] = ()
    """`patternProperties`, in the order of the document."""
    needed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Properties that others need: `dependencies` and `dependentRequired`."""
    dependent: Mapping[str, "JsonNode"] = field(default_factory=dict)
    items: "JsonNode | None" = None
    """The schema of all items of an array."""
    tuple_items: tuple["JsonNode", ...] = ()
    """The schemas of the first items, one by one."""
    permits_more: bool = True
    """Whether an object has other properties, or an array other items, than those that are named."""
    more: "JsonNode | None" = None
    """The schema of those; None if they can be anything."""
    unevaluated: "JsonNode | None" = None

    @property
    def is_open(self) -> bool:
        """Whether any other property or item is allowed."""
        if not self.permits_more or self.more is not None or self.patterns:
            return False
        return self.unevaluated is None or self.unevaluated.kind == "any"

    @property
    def schema_of_others(self) -> "JsonNode | None":
        """The schema of properties or items that are not named, where the model is partially open."""
        if self.more is not None:
            return self.more
        if self.permits_more and self.unevaluated is not None and self.unevaluated.kind not in ("any", "never"):
            return self.unevaluated
        return None


def resolved(node: JsonNode) -> JsonNode:
    """The node that a chain of references leads to; `any` for one that leads back to itself."""
    seen = set()
    while node.kind == "ref":
        if id(node) in seen or node.target is None:
            return JsonNode("any")
        seen.add(id(node))
        node = node.target
    return node
