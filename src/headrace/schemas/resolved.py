"""A schema with the texts of those that it refers to, and the calls between brokers that look schemas up."""

import msgspec

from headrace.model.features import SCHEMAS_LEVEL
from headrace.replication.calls import Call
from headrace.schemas.checker import referenced_texts
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.machine import SchemaMachine
from headrace.schemas.subjects import DEFAULT_CONTEXT

MAX_RESOLVED_CHARS = 16 * 1024 * 1024
"""The text of a schema and of all that it refers to; a longer one is not sent to other brokers."""

IdOrGuid = int | str
"""The id of a schema in the default context, or its GUID, as a message has it."""
Membership = tuple[IdOrGuid, str]
"""A schema, and a subject that it may belong to."""


class ResolvedSchema(msgspec.Struct, frozen=True, array_like=True):
    """A schema as it was registered. What belongs to an id never changes."""

    id: int
    guid: str
    type: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Names and texts of the schemas that it refers to, each before those that use it."""
    problem: str = ""
    """Why it cannot be used, without its text; empty if it can."""

    @property
    def size_chars(self) -> int:
        return len(self.text) + sum(len(name) + len(text) for name, text in self.references)


class MembershipCall(Call, frozen=True):
    """Asks for each schema whether its subject has a version of it that is not deleted."""

    wanted: tuple[Membership, ...]

    level = SCHEMAS_LEVEL


class SchemaTextCall(Call, frozen=True):
    """Asks for a schema by id or GUID."""

    key: IdOrGuid

    level = SCHEMAS_LEVEL


def resolve(machine: SchemaMachine, key: IdOrGuid) -> ResolvedSchema | None:
    """The schema with an id or GUID, deleted ones included; None if there is none."""
    found = machine.with_id(DEFAULT_CONTEXT, key) if isinstance(key, int) else machine.with_digest(key)
    if not found:
        return None
    first = found[0]
    try:
        texts = referenced_texts(machine, first.subject, first.references)
    except InvalidSchema as error:
        return ResolvedSchema(first.id, first.md5 or "", first.schema_type, "", problem=str(error))
    resolved = ResolvedSchema(first.id, first.md5 or "", first.schema_type, first.schema, texts)
    if resolved.size_chars > MAX_RESOLVED_CHARS:
        problem = f"the schema {key} and those that it refers to have more than {MAX_RESOLVED_CHARS} bytes"
        return ResolvedSchema(first.id, first.md5 or "", first.schema_type, "", problem=problem)
    return resolved
