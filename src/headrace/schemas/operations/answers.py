"""Schemas as the answers of the registry show them. Pure."""

from typing import Any

from headrace.schemas.machine import SchemaMachine
from headrace.schemas.parsed import ParsedSchema
from headrace.schemas.protobuf.descriptor_writer import serialized_proto
from headrace.schemas.stored import StoredSchema


def full_answer(schema: StoredSchema) -> dict[str, Any]:
    """A version of a subject."""
    return {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.id,
        "guid": schema.md5,
        **text_answer(schema),
        **({"deleted": True} if schema.deleted else {}),
    }


def text_answer(schema: StoredSchema, text: str | None = None) -> dict[str, Any]:
    """A schema without its subject. What it does not have is left out, as clients expect it."""
    answer: dict[str, Any] = {}
    if schema.schema_type != "AVRO":
        answer["schemaType"] = schema.schema_type
    if schema.references:
        answer["references"] = schema.references
    if schema.metadata is not None:
        answer["metadata"] = schema.metadata
    if schema.rule_set is not None:
        answer["ruleSet"] = schema.rule_set
    answer["schema"] = schema.schema if text is None else text
    return answer


def formatted(parsed: ParsedSchema, wanted: str) -> str | None:
    """The text in another format: `serialized` is a compiled file of Protobuf. None for the stored text."""
    if parsed.type == "PROTOBUF" and wanted == "serialized":
        return serialized_proto(parsed.content)
    return None


def visible(found: list[StoredSchema], *, deleted: bool) -> list[StoredSchema]:
    return [each for each in found if deleted or not each.deleted]


def newest(machine: SchemaMachine, subject: str) -> StoredSchema | None:
    versions = machine.versions(subject)
    return versions[max(versions)] if versions else None
