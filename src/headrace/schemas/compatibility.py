"""The levels of compatibility: which earlier versions a new schema is compared with, and in which direction. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from headrace.schemas.incompatibility import Incompatibility
from headrace.schemas.parsed import ParsedSchema, incompatibilities

CompatibilityLevel = Literal[
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]
COMPATIBILITY_LEVELS: tuple[CompatibilityLevel, ...] = get_args(CompatibilityLevel)
DEFAULT_LEVEL: CompatibilityLevel = "BACKWARD"


@dataclass(frozen=True, slots=True)
class VersionToCompare:
    version: int
    schema: ParsedSchema
    text: str


@dataclass(frozen=True, slots=True)
class CompatibilityVerdict:
    is_compatible: bool
    messages: tuple[str, ...] = ()
    """Why not: each change, then the version it was compared with and the level."""


def check_compatibility(
    level: CompatibilityLevel, new: ParsedSchema, earlier: Sequence[VersionToCompare], *, is_lenient: bool = False
) -> CompatibilityVerdict:
    """Compare a new schema with the earlier versions, oldest first."""
    if level == "NONE":
        return CompatibilityVerdict(True)
    direction = level.removesuffix("_TRANSITIVE")
    compared = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    for each in reversed(compared):
        found: list[Incompatibility] = []
        if direction in ("BACKWARD", "FULL"):
            found += incompatibilities(new, each.schema, is_lenient=is_lenient)
        if direction in ("FORWARD", "FULL"):
            found += incompatibilities(each.schema, new, is_lenient=is_lenient)
        if found:
            details = (
                f"{{oldSchemaVersion: {each.version}}}",
                f"{{oldSchema: '{each.text}'}}",
                f"{{compatibility: '{level}'}}",
            )
            return CompatibilityVerdict(False, (*dict.fromkeys(map(str, found)), *details))
    return CompatibilityVerdict(True)
