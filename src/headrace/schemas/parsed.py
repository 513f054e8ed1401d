"""One interface over the three types of schemas: parse, canonical text, compatibility. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from headrace.schemas.avro.canonical import canonical_avro, normalized_avro
from headrace.schemas.avro.compatibility import avro_incompatibilities
from headrace.schemas.avro.types import AvroSchema, parse_avro
from headrace.schemas.errors import InvalidSchema, SchemaTooComplex
from headrace.schemas.incompatibility import Incompatibility
from headrace.schemas.json_schema.compatibility import json_incompatibilities
from headrace.schemas.json_schema.document import (
    JsonSchemaDocument,
    canonical_json_schema,
    normalized_json_schema,
    parse_json_schema,
)
from headrace.schemas.protobuf.compatibility import proto_incompatibilities
from headrace.schemas.protobuf.descriptor import read_descriptor
from headrace.schemas.protobuf.parser import parse_proto
from headrace.schemas.protobuf.resolution import ProtobufSchema, resolve_proto, with_full_names
from headrace.schemas.protobuf.text import canonical_proto, normalized_proto

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]
SCHEMA_TYPES: tuple[SchemaType, ...] = get_args(SchemaType)

MAX_SCHEMA_BYTES = 1024 * 1024
"""A longer text is refused before it is parsed."""
MAX_BYTES_IN_ALL = 4 * 1024 * 1024
"""With the texts that it refers to."""


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """A valid schema."""

    type: SchemaType
    canonical: str
    """The text that is stored: equal for texts that differ in layout only."""
    normalized: str
    """The text that is compared with `normalize`: equal for schemas that mean the same."""
    content: Any
    """`AvroSchema`, `JsonSchemaDocument` or `ProtobufSchema`."""


def parse_any(
    type_: str, text: str, references: Sequence[tuple[str, str]] = (), *, is_new: bool = True
) -> ParsedSchema:
    """Parse a schema; `references` are names and texts of those it refers to, each before those that use it.

    Raises `InvalidSchema` or `SchemaTooComplex`.
    """
    if len(text) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"the schema is longer than {MAX_SCHEMA_BYTES} bytes")
    if len(text) + sum(len(each) for _, each in references) > MAX_BYTES_IN_ALL:
        raise InvalidSchema(f"the schema and those that it refers to are longer than {MAX_BYTES_IN_ALL} bytes in all")
    if not text.strip():
        raise InvalidSchema("the schema is empty")
    try:
        parsed = _parsed(type_, text, references, is_new)
        parsed.canonical.encode()
    except RecursionError:
        raise SchemaTooComplex("the schema is nested too deep") from None
    except UnicodeEncodeError:
        raise InvalidSchema("the schema has half of a character (a lone surrogate) in a string") from None
    return parsed


def _parsed(type_: str, text: str, references: Sequence[tuple[str, str]], is_new: bool) -> ParsedSchema:
    match type_:
        case "AVRO":
            avro = parse_avro(text, [each for _, each in references], is_new=is_new)
            return ParsedSchema("AVRO", canonical_avro(avro), normalized_avro(avro), avro)
        case "JSON":
            document = parse_json_schema(text, dict(references))
            return ParsedSchema("JSON", canonical_json_schema(document), normalized_json_schema(document), document)
        case "PROTOBUF":
            return _protobuf(text, dict(references))
    raise InvalidSchema(f"there is no type of schemas {type_[:40]!r}: it is one of {', '.join(SCHEMA_TYPES)}")


def incompatibilities(reader: ParsedSchema, writer: ParsedSchema, *, is_lenient: bool = False) -> list[Incompatibility]:
    """What keeps data of `writer` from being read with `reader`; empty if nothing does. Raises `SchemaTooComplex`."""
    if reader.type != writer.type:
        text = f"the schema is of the type {reader.type}, the old one {writer.type}"
        return [Incompatibility("SCHEMA_TYPE_CHANGED", "/", text)]
    try:
        if isinstance(reader.content, AvroSchema):
            return avro_incompatibilities(reader.content, writer.content)
        if isinstance(reader.content, JsonSchemaDocument):
            return json_incompatibilities(reader.content, writer.content, is_lenient=is_lenient)
        return proto_incompatibilities(reader.content, writer.content)
    except RecursionError:
        raise SchemaTooComplex("the schemas are nested too deep") from None


def _protobuf(text: str, references: Mapping[str, str]) -> ParsedSchema:
    file = read_descriptor(text) or parse_proto(text)
    others = {name: read_descriptor(each) or parse_proto(each) for name, each in references.items()}
    schema: ProtobufSchema = resolve_proto(file, others)
    return ParsedSchema("PROTOBUF", canonical_proto(file), normalized_proto(with_full_names(schema)), schema)
