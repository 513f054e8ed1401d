"""Schemas as the answers of the registry show them."""

from typing import Any

import msgspec

from headrace.schemas.machine import SchemaMachine
from headrace.schemas.operations.table import RegistryCall
from headrace.schemas.stored import StoredSchema
from headrace.schemas.subjects import context_of, qualified


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


async def formatted(call: RegistryCall, schema: StoredSchema) -> str:
    """The text in the format of the request: `serialized` is a compiled file of Protobuf."""
    if schema.schema_type == "PROTOBUF" and call.request.query.get("format") == "serialized":
        return await call.checker.compile(call.machine, schema)
    return schema.schema


async def asked_for(call: RegistryCall, schema: StoredSchema) -> dict[str, Any]:
    """The parts of an answer that parameters of the request choose: `format`, `referenceFormat` and `findTags`."""
    answer: dict[str, Any] = {"schema": await formatted(call, schema)}
    if call.request.query.get("referenceFormat") == "qualified" and schema.references:
        context = context_of(schema.subject)
        answer["references"] = [
            msgspec.structs.replace(each, subject=qualified(context, each.subject)) for each in schema.references
        ]
    wanted = call.request.values("findTags")
    if wanted:
        answer["schemaTags"] = [
            {"schemaEntity": {"entityPath": path, "entityType": None}, "tags": tags}
            for path, tags in ((schema.metadata or {}).get("tags") or {}).items()
            if "*" in wanted or not {*wanted}.isdisjoint(tags)
        ]
    return answer


def visible(found: list[StoredSchema], *, deleted: bool) -> list[StoredSchema]:
    return [each for each in found if deleted or not each.deleted]


def newest(machine: SchemaMachine, subject: str) -> StoredSchema | None:
    versions = machine.versions(subject)
    return versions[max(versions)] if versions else None
