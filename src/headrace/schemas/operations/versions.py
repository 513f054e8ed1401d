"""Versions of subjects: register, look up, show, delete."""

from typing import Any

import msgspec

from headrace.schemas.checker import CheckedSchema, dead_reference, referenced_texts
from headrace.schemas.compatibility import COMPATIBILITY_LEVELS, CompatibilityLevel
from headrace.schemas.digest import digest_of
from headrace.schemas.errors import (
    IncompatibleSchema,
    InvalidSchema,
    OutcomeUnknown,
    SchemaNotFound,
    SchemasChanged,
    SubjectNotFound,
    VersionNotFound,
    VersionSoftDeleted,
)
from headrace.schemas.machine import LATEST, SubjectState
from headrace.schemas.operations.answers import asked_for, formatted, full_answer
from headrace.schemas.operations.table import (
    DELETE_SUBJECT,
    READ_SUBJECT,
    WRITE_SUBJECT,
    RegistryCall,
    operation,
)
from headrace.schemas.requests import RegistryReply, reply
from headrace.schemas.stored import SchemaReference, StoredConfig, StoredSchema
from headrace.schemas.subjects import context_of, qualified

MAX_TRIES = 20
"""Registrations of one subject at the same time are compared again, each with the one before."""


class SchemaBody(msgspec.Struct, rename="camel"):
    """The body of a registration, a look-up or a test of compatibility."""

    schema: str = ""
    schema_type: str | None = None
    references: list[SchemaReference] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int | None = None

    def stored(self, subject: str) -> StoredSchema:
        return StoredSchema(
            subject,
            max(0, self.version or 0),
            max(0, self.id or 0),
            self.schema,
            schema_type=(self.schema_type or "AVRO").upper(),
            references=self.references or [],
            metadata=self.metadata,
            rule_set=self.rule_set,
        )


@operation("GET", "/subjects/{subject}/versions", needs=READ_SUBJECT)
async def list_versions(call: RegistryCall) -> RegistryReply:
    request = call.request
    is_deleted_only = request.flag("deletedOnly")
    found = call.machine.known_versions(call.read_subject, deleted=request.flag("deleted") or is_deleted_only)
    numbers = [
        -number if each.deleted and request.flag("deletedAsNegative") else number
        for number, each in found.items()
        if each.deleted or not is_deleted_only
    ]
    return reply(call.page(numbers))


@operation("GET", "/subjects/{subject}/versions/{version}", needs=READ_SUBJECT)
async def show_version(call: RegistryCall) -> RegistryReply:
    found = call.machine.version(call.read_subject, call.version, deleted=call.request.flag("deleted"))
    return reply(full_answer(found) | await asked_for(call, found))


@operation("GET", "/subjects/{subject}/versions/{version}/schema", needs=READ_SUBJECT)
async def show_text(call: RegistryCall) -> RegistryReply:
    found = call.machine.version(call.read_subject, call.version, deleted=call.request.flag("deleted"))
    return RegistryReply(200, (await formatted(call, found)).encode())


@operation("GET", "/subjects/{subject}/versions/{version}/referencedby", needs=READ_SUBJECT)
async def show_referrers(call: RegistryCall) -> RegistryReply:
    found = call.machine.version(call.read_subject, call.version, deleted=True)
    users = call.machine.referenced_by(call.read_subject, found.version, deleted=call.request.flag("deleted"))
    return reply(call.page(sorted({each.id for each in users if call.shows(each.subject)})))


@operation("POST", "/subjects/{subject}/versions", needs=WRITE_SUBJECT)
async def register(call: RegistryCall) -> RegistryReply:
    stored = await register_version(call, call.request.read(SchemaBody).stored(call.subject))
    answer = full_answer(stored) | {"schema": await formatted(call, stored)}
    return reply({key: answer[key] for key in ("id", "version", "guid")} | _type_and_text(answer))


async def register_version(call: RegistryCall, wanted: StoredSchema) -> StoredSchema:
    """Register a schema, again if others register one of the same subject meanwhile."""
    for _ in range(MAX_TRIES):
        try:
            return await _register(call, wanted)
        except SchemasChanged:
            continue
    raise SchemasChanged("others register schemas of this subject at the same time: try again")


def _type_and_text(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key in ("schemaType", "references", "schema")}


async def _register(call: RegistryCall, wanted: StoredSchema) -> StoredSchema:
    machine, subject = call.machine, wanted.subject
    seen = _copied(machine.state(subject))
    config = machine.effective_config(subject)
    parsed = await parsed_for(call, wanted)
    is_normalized = call.request.flag("normalize") or bool(config.normalize)
    text = parsed.normalized if is_normalized else parsed.canonical
    wanted = msgspec.structs.replace(_with_defaults(wanted, config), schema=text)
    known = await _same(call, seen, wanted, parsed, is_normalized)
    if known is not None and not wanted.version:
        machine.check_id(known, wanted.id)
        return known
    machine.check_import(subject, has_id=wanted.id > 0)
    if wanted.id <= 0:
        await _check_compatible(call, wanted, seen, config)
    return await call.commit(lambda: machine.register(wanted, digest_of(wanted), seen))


def _copied(state: SubjectState) -> SubjectState:
    """The versions as they are now: the machine changes its own."""
    return SubjectState(dict(state.versions), state.revision)


async def parsed_for(call: RegistryCall, schema: StoredSchema) -> CheckedSchema:
    """Parse the schema of a request.

    To refer to another one is to read it: the caller must be allowed to see it, unless a version has these references.
    """
    context = context_of(schema.subject)
    shown = {each: call.shows(qualified(context, each)) for each in {each.subject for each in schema.references}}
    hidden = [each for each in schema.references if not shown[each.subject]]
    known = call.machine.state(schema.subject).versions.values() if hidden else ()
    try:
        if hidden and not any(each.references == schema.references for each in known):
            raise dead_reference(hidden[0])
        # An imported schema was valid where it comes from, perhaps before rules became stricter.
        return await call.checker.parse(call.machine, schema, is_new=schema.id <= 0)
    except InvalidSchema as error:
        text = str(error)
        raise InvalidSchema(text if text.startswith("Invalid schema") else f"Invalid schema: {text}") from None


def _with_defaults(schema: StoredSchema, config: StoredConfig) -> StoredSchema:
    """Metadata and rules with what the settings of the subject add and override."""
    metadata = _merged(config.default_metadata, schema.metadata, config.override_metadata)
    rules = _merged(config.default_rule_set, schema.rule_set, config.override_rule_set)
    return msgspec.structs.replace(schema, metadata=metadata, rule_set=rules)


def _merged(*layers: dict[str, Any] | None) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for layer in layers:
        for key, value in (layer or {}).items():
            both = isinstance(value, dict) and isinstance(found.get(key), dict)
            found[key] = {**found[key], **value} if both else value
    return found or None


async def _same(
    call: RegistryCall, seen: SubjectState, wanted: StoredSchema, parsed: CheckedSchema, is_normalized: bool
) -> StoredSchema | None:
    """The newest version that is this schema already."""
    for number in sorted(seen.versions, reverse=True):
        each = seen.versions[number]
        if each.deleted or each.schema_type != wanted.schema_type:
            continue
        if (each.metadata, each.rule_set) != (wanted.metadata, wanted.rule_set):
            continue
        if each.schema == wanted.schema and each.references == wanted.references:
            return each
        if is_normalized:
            other = await call.checker.parse(call.machine, each, is_new=False)
            if other.normalized == parsed.normalized and _texts(call, each) == _texts(call, wanted):
                return each
    return None


def _texts(call: RegistryCall, schema: StoredSchema) -> object:
    return referenced_texts(call.machine, schema.subject, schema.references)


async def _check_compatible(call: RegistryCall, wanted: StoredSchema, seen: SubjectState, config: StoredConfig) -> None:
    earlier = comparable(seen, wanted, config)
    level = level_of(config)
    verdict = await call.checker.compare(
        call.machine, level, wanted, earlier, is_lenient=config.compatibility_policy == "LENIENT"
    )
    if not verdict.is_compatible:
        details = ", ".join(verdict.messages)
        raise IncompatibleSchema(
            f'Schema being registered is incompatible with an earlier schema for subject "{wanted.subject}", '
            f"details: [{details}]"
        )


def level_of(config: StoredConfig) -> CompatibilityLevel:
    return next((each for each in COMPATIBILITY_LEVELS if each == config.compatibility_level), "BACKWARD")


def comparable(seen: SubjectState, wanted: StoredSchema, config: StoredConfig) -> list[StoredSchema]:
    """The versions that a schema must be compatible with: with groups, those of its own group."""
    found = [each for _, each in sorted(seen.versions.items()) if not each.deleted]
    group = config.compatibility_group
    return [each for each in found if not group or _property(each, group) == _property(wanted, group)]


def _property(schema: StoredSchema, name: str) -> object:
    properties = (schema.metadata or {}).get("properties")
    return properties.get(name) if isinstance(properties, dict) else None


@operation("POST", "/subjects/{subject}", needs=READ_SUBJECT)
async def look_up(call: RegistryCall) -> RegistryReply:
    """The version that is this schema."""
    subject, is_deleted = call.read_subject, call.request.flag("deleted")
    call.machine.known_versions(subject, deleted=is_deleted)
    wanted = call.request.read(SchemaBody).stored(subject)
    config = call.machine.effective_config(subject)
    parsed = await parsed_for(call, wanted)
    is_normalized = call.request.flag("normalize") or bool(config.normalize)
    wanted = msgspec.structs.replace(wanted, schema=parsed.normalized if is_normalized else parsed.canonical)
    versions = {
        number: msgspec.structs.replace(each, deleted=False) if is_deleted else each
        for number, each in call.machine.versions(subject, deleted=is_deleted).items()
    }
    found = await _same_text(call, versions, wanted, parsed)
    if found is None:
        raise SchemaNotFound("Schema not found")
    return reply(full_answer(found) | await asked_for(call, found))


async def _same_text(
    call: RegistryCall, versions: dict[int, StoredSchema], wanted: StoredSchema, parsed: CheckedSchema
) -> StoredSchema | None:
    """The newest version of this text; metadata and rules are compared if there are some."""
    for number in sorted(versions, reverse=True):
        each = versions[number]
        state = SubjectState({number: each}, 0)
        plain = msgspec.structs.replace(
            wanted, metadata=wanted.metadata or each.metadata, rule_set=wanted.rule_set or each.rule_set
        )
        if await _same(call, state, plain, parsed, True) is not None:
            return each
    return None


@operation("DELETE", "/subjects/{subject}/versions/{version}", needs=DELETE_SUBJECT)
async def delete_version(call: RegistryCall) -> RegistryReply:
    subject, version, permanent = call.subject, call.version, call.request.flag("permanent")
    is_repeat = call.request.is_repeat
    if is_repeat and version == LATEST and call.machine.version(subject, LATEST, deleted=True).deleted:
        raise OutcomeUnknown("the leader changed, and whether the latest version was deleted is not known: list them")
    try:
        return reply(await call.commit(lambda: call.machine.delete_version(subject, version, permanent=permanent)))
    except (SubjectNotFound, VersionNotFound, VersionSoftDeleted):
        if is_repeat and version in call.machine.deleted_versions(subject, permanent=permanent):
            return reply(version)
        raise
