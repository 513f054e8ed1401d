"""Work on the texts of schemas: parse, compare, compile. Pure.

A check and its result are plain data, so that it can be carried out in another process.
"""

from collections.abc import Callable

import msgspec

from headrace.schemas.compatibility import CompatibilityLevel, VersionToCompare, check_compatibility
from headrace.schemas.parsed import ParsedSchema, parse_any
from headrace.schemas.protobuf.descriptor_writer import serialized_proto

NamedTexts = tuple[tuple[str, str], ...]
"""Names and texts of the schemas that one refers to, each before those that use it."""


class SchemaText(msgspec.Struct, frozen=True):
    """A schema as text; `is_new` demands more of it than of one that is registered already."""

    type: str
    text: str
    references: NamedTexts = ()
    is_new: bool = False
    version: int = 0

    @property
    def size(self) -> int:
        return len(self.text) + sum(len(each) for _, each in self.references)


class ParseCheck(msgspec.Struct, frozen=True, tag="parse"):
    schema: SchemaText

    @property
    def size(self) -> int:
        return self.schema.size


class CompareCheck(msgspec.Struct, frozen=True, tag="compare"):
    level: CompatibilityLevel
    new: SchemaText
    earlier: tuple[SchemaText, ...]
    """Oldest first."""
    is_lenient: bool = False

    @property
    def size(self) -> int:
        return self.new.size + sum(each.size for each in self.earlier)


class CompileCheck(msgspec.Struct, frozen=True, tag="compile"):
    """A Protobuf schema as a compiled file."""

    schema: SchemaText

    @property
    def size(self) -> int:
        return self.schema.size


SchemaCheck = ParseCheck | CompareCheck | CompileCheck


class CheckResult(msgspec.Struct, frozen=True):
    texts: tuple[str, ...] = ()
    """Of a parsed schema the canonical and the normalized text; of a compiled one its base64."""
    messages: tuple[str, ...] = ()
    """Why a schema is not compatible; empty if it is."""
    invalid: str = ""
    """Why a text is not a valid schema."""


Parse = Callable[[SchemaText], ParsedSchema]


def parse_text(schema: SchemaText) -> ParsedSchema:
    return parse_any(schema.type, schema.text, schema.references, is_new=schema.is_new)


def carry_out(check: SchemaCheck, parse: Parse = parse_text) -> CheckResult:
    """Carry out a check. Raises `InvalidSchema`."""
    match check:
        case ParseCheck():
            parsed = parse(check.schema)
            return CheckResult((parsed.canonical, parsed.normalized))
        case CompileCheck():
            return CheckResult((serialized_proto(parse(check.schema).content),))
        case CompareCheck():
            earlier = [VersionToCompare(each.version, parse(each), each.text) for each in check.earlier]
            verdict = check_compatibility(check.level, parse(check.new), earlier, is_lenient=check.is_lenient)
            return CheckResult(messages=verdict.messages)
