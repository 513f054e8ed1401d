"""Schemas by id and GUID, across subjects."""

from headrace.schemas.errors import SchemaNotFound
from headrace.schemas.operations.answers import asked_for, formatted, full_answer, newest, text_answer, visible
from headrace.schemas.operations.subjects import listed
from headrace.schemas.operations.table import LIST_SUBJECTS, RegistryCall, operation
from headrace.schemas.parsed import SCHEMA_TYPES
from headrace.schemas.requests import MalformedRequest, RegistryReply, reply
from headrace.schemas.stored import StoredSchema
from headrace.schemas.subjects import context_of, qualified


@operation("GET", "/schemas", needs=LIST_SUBJECTS)
async def list_schemas(call: RegistryCall) -> RegistryReply:
    found: list[StoredSchema] = []
    kind = call.request.query.get("ruleType", "").upper()
    latest_only, deleted = call.request.flag("latestOnly"), call.request.flag("deleted")
    async for subject in listed(call, aliases=call.request.flag("aliases")):
        if latest_only:
            latest = newest(call.machine, subject)
            versions = [] if latest is None else [latest]
        else:
            versions = [*call.machine.versions(subject, deleted=deleted).values()]
        found += [each for each in versions if not kind or _has_rule(each, kind)]
        if len(found) >= call.page_end:
            break
    return reply(await call.page_of_bytes(found, full_answer))


def _has_rule(schema: StoredSchema, kind: str) -> bool:
    rules = [rule for each in (schema.rule_set or {}).values() if isinstance(each, list) for rule in each]
    return any(isinstance(rule, dict) and str(rule.get("type", "")).upper() == kind for rule in rules)


@operation("GET", "/schemas/types", needs=LIST_SUBJECTS)
async def list_types(_: RegistryCall) -> RegistryReply:
    return reply(list(SCHEMA_TYPES))


@operation("GET", "/schemas/ids/{id}", needs=LIST_SUBJECTS)
async def show_id(call: RegistryCall) -> RegistryReply:
    found = _with_id(call)[0]
    answer = text_answer(found) | await asked_for(call, found) | {"guid": found.md5}
    if call.request.query.get("subject"):
        answer |= {"subject": found.subject, "version": found.version}
    if call.request.flag("fetchMaxId"):
        answer["maxId"] = call.machine.highest_id(context_of(found.subject))
    return reply(answer)


@operation("GET", "/schemas/ids/{id}/schema", needs=LIST_SUBJECTS)
async def show_id_text(call: RegistryCall) -> RegistryReply:
    return RegistryReply(200, (await formatted(call, _with_id(call)[0])).encode())


@operation("GET", "/schemas/ids/{id}/subjects", needs=LIST_SUBJECTS)
async def show_id_subjects(call: RegistryCall) -> RegistryReply:
    found = visible(_with_id(call), deleted=call.request.flag("deleted"))
    return reply(call.page(sorted({each.subject for each in found})))


@operation("GET", "/schemas/ids/{id}/versions", needs=LIST_SUBJECTS)
async def show_id_versions(call: RegistryCall) -> RegistryReply:
    found = visible(_with_id(call), deleted=call.request.flag("deleted"))
    entries = sorted((each.subject, each.version) for each in found)
    return reply([{"subject": subject, "version": version} for subject, version in call.page(entries)])


@operation("GET", "/schemas/guids/{guid}", needs=LIST_SUBJECTS)
async def show_guid(call: RegistryCall) -> RegistryReply:
    found = _with_guid(call)[0]
    return reply(text_answer(found) | await asked_for(call, found) | {"guid": found.md5})


@operation("GET", "/schemas/guids/{guid}/ids", needs=LIST_SUBJECTS)
async def show_guid_ids(call: RegistryCall) -> RegistryReply:
    found = dict.fromkeys((context_of(each.subject), each.id) for each in _with_guid(call))
    return reply([{"context": context, "id": number} for context, number in found])


def _with_id(call: RegistryCall) -> list[StoredSchema]:
    """The versions with the id of the path, that the caller may see; `SchemaNotFound` if there are none."""
    text = call.names["id"]
    try:
        number = int(text)
    except ValueError:
        raise MalformedRequest(f"an id is a number, not {text[:40]!r}") from None
    subject = call.request.query.get("subject", "")
    context = context_of(qualified(call.context, subject or "x"))
    found = [each for each in call.machine.with_id(context, number) if call.shows(each.subject)]
    own = [each for each in found if each.subject == qualified(call.context, subject)]
    if not found:
        raise SchemaNotFound(f"Schema {number} not found")
    return own or found


def _with_guid(call: RegistryCall) -> list[StoredSchema]:
    guid = call.names["guid"].lower()
    found = [each for each in call.machine.with_digest(guid) if call.shows(each.subject)]
    if not found:
        raise SchemaNotFound(f"Schema {guid[:40]} not found")
    return found
