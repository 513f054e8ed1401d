"""Subjects and contexts: list and delete."""

from collections.abc import AsyncIterator

from headrace.schemas.errors import ContextNotEmpty, SchemaNotFound, SubjectNotFound, SubjectSoftDeleted
from headrace.schemas.operations.answers import formatted, full_answer
from headrace.schemas.operations.table import (
    ALTER_REGISTRY,
    DELETE_SUBJECT,
    LIST_SUBJECTS,
    READ_SUBJECT,
    RegistryCall,
    in_turns,
    operation,
)
from headrace.schemas.requests import RegistryReply, reply
from headrace.schemas.subjects import context_of, qualified


async def listed(call: RegistryCall, *, aliases: bool = False) -> AsyncIterator[str]:
    """The subjects that a list asks for, without those that the caller may not see.

    With `aliases` also those that subjects of the prefix are aliases of.
    """
    request = call.request
    deleted_only = request.flag("deletedOnly")
    prefix = request.query.get("subjectPrefix", "")
    if prefix.startswith(":*:"):
        prefix = prefix[3:]
    else:
        prefix = qualified(call.context, prefix)
    meant = call.machine.aliased(prefix) if aliases else ()
    with_deleted = request.flag("deleted")
    async for subject in in_turns(call.machine.subjects()):
        if not subject.startswith(prefix) and subject not in meant:
            continue
        has_versions = call.machine.has_versions(subject)
        is_wanted = not has_versions if deleted_only else has_versions or with_deleted
        if is_wanted and call.shows(subject):
            yield subject


@operation("GET", "/subjects", needs=LIST_SUBJECTS)
async def list_subjects(call: RegistryCall) -> RegistryReply:
    found = []
    async for subject in listed(call):
        found.append(subject)
        if len(found) >= call.page_end:
            break
    return reply(call.page(found))


@operation("DELETE", "/subjects/{subject}", needs=DELETE_SUBJECT)
async def delete_subject(call: RegistryCall) -> RegistryReply:
    subject, permanent = call.subject, call.request.flag("permanent")
    try:
        return reply(await call.commit(lambda: call.machine.delete_subject(subject, permanent=permanent)))
    except (SubjectNotFound, SubjectSoftDeleted):
        done = call.machine.deleted_versions(subject, permanent=permanent)
        if call.request.is_repeat and done:
            return reply(done)
        raise


@operation("GET", "/subjects/{subject}/metadata", needs=READ_SUBJECT)
async def show_by_metadata(call: RegistryCall) -> RegistryReply:
    """The newest version with these properties in its metadata."""
    request = call.request
    wanted = dict(zip(request.values("key"), request.values("value"), strict=False))
    found = call.machine.known_versions(call.read_subject, deleted=request.flag("deleted"))
    for number in sorted(found, reverse=True):
        properties = (found[number].metadata or {}).get("properties") or {}
        if wanted.items() <= properties.items():
            return reply(full_answer(found[number]) | {"schema": await formatted(call, found[number])})
    raise SchemaNotFound("Schema not found")


@operation("GET", "/contexts", needs=LIST_SUBJECTS)
async def list_contexts(call: RegistryCall) -> RegistryReply:
    shown = {context_of(each) async for each in in_turns(call.machine.subjects()) if call.shows(each)}
    prefix = call.request.query.get("contextPrefix", "").strip(":")
    return reply(call.page(sorted(each for each in {".", *shown} if each.startswith(prefix))))


@operation("DELETE", "/contexts/{context}", needs=ALTER_REGISTRY)
async def delete_context(call: RegistryCall) -> RegistryReply:
    """A context is there while it has subjects: deleting an empty one changes nothing."""
    name = call.names["context"].strip(":")
    context = name if name.startswith(".") else f".{name}"
    if any(context_of(each) == context for each in call.machine.subjects()):
        raise ContextNotEmpty(f"The specified context '{context}' is not empty.")
    return RegistryReply(204, b"")
