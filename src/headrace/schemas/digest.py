"""The digest of a schema, which is also its GUID: the MD5 that Confluent's registry computes. Pure."""

from hashlib import md5
from typing import Any
from uuid import UUID

from headrace.schemas.stored import SchemaReference, StoredSchema


def digest_of(schema: StoredSchema) -> str:
    """The digest as a UUID: equal for equal texts, references, metadata and rules."""
    found = md5(schema.schema.encode(), usedforsecurity=False)
    for each in schema.references:
        found.update(_of_reference(each))
    for part in _texts(schema.metadata):
        found.update(part.encode())
    for part in _texts(schema.rule_set):
        found.update(part.encode())
    return str(UUID(bytes=found.digest()))


def _of_reference(reference: SchemaReference) -> bytes:
    version = (reference.version & 0xFFFF_FFFF).to_bytes(4, "big")
    return b"".join((reference.name.encode(), reference.subject.encode(), version))


def _texts(value: Any) -> list[str]:
    """Keys and values in order."""
    if isinstance(value, dict):
        return [part for key, each in value.items() for part in (key, *_texts(each))]
    if isinstance(value, list):
        return [part for each in value for part in _texts(each)]
    return [] if value is None else [str(value)]
