"""Subjects at a glance, for the dashboard: searched, sorted and paged here, since texts of schemas are long.

These are not part of Confluent's API; their paths begin with `/headrace`.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import msgspec

from headrace.schemas.machine import SchemaMachine
from headrace.schemas.operations.table import LIST_SUBJECTS, READ_SUBJECT, RegistryCall, in_turns, operation
from headrace.schemas.requests import MalformedRequest, RegistryReply, reply
from headrace.schemas.stored import SchemaReference, StoredSchema
from headrace.schemas.subjects import topic_of

SHOWN_VERSIONS = 500
"""Versions of one subject that are listed, the newest first."""
SHOWN_REFERRERS = 100


class SubjectSummary(msgspec.Struct, frozen=True):
    """A subject with its newest version."""

    subject: str
    topic: str
    """The topic whose permissions the subject has."""
    schema_type: str
    id: int
    version: int
    versions: int
    """How many there are, without deleted ones."""
    compatibility: str
    mode: str
    is_deleted: bool


class SubjectPage(msgspec.Struct, frozen=True):
    total: int
    items: list[SubjectSummary]


class VersionSummary(msgspec.Struct, frozen=True):
    version: int
    id: int
    guid: str | None
    schema_type: str
    references: int
    is_deleted: bool


class SubjectVersions(msgspec.Struct, frozen=True):
    summary: SubjectSummary
    own_compatibility: str | None
    """The level of the subject itself; None if it has that of its context, or the global one."""
    versions: list[VersionSummary]


class SchemaReferrer(msgspec.Struct, frozen=True):
    subject: str
    version: int


class VersionText(msgspec.Struct, frozen=True):
    """A version with its text, what it refers to, and what refers to it."""

    summary: VersionSummary
    schema: str
    references: list[SchemaReference]
    referenced_by: list[SchemaReferrer]
    metadata: dict[str, Any] | None
    rule_set: dict[str, Any] | None


def _last(machine: SchemaMachine, subject: str) -> StoredSchema:
    found = machine.versions(subject) or machine.versions(subject, deleted=True)
    return found[max(found)]


_SORTED_BY: dict[str, Callable[[SchemaMachine, str], Any]] = {
    "subject": lambda _, subject: subject,
    "topic": lambda _, subject: topic_of(subject),
    "schema_type": lambda machine, subject: _last(machine, subject).schema_type,
    "id": lambda machine, subject: _last(machine, subject).id,
    "version": lambda machine, subject: _last(machine, subject).version,
    "versions": lambda machine, subject: len(machine.versions(subject)),
    "compatibility": lambda machine, subject: machine.effective_config(subject).compatibility_level or "",
    "mode": lambda machine, subject: machine.effective_mode(subject),
}
SORT_FIELDS = tuple(_SORTED_BY)


@operation("GET", "/headrace/subjects", needs=LIST_SUBJECTS)
async def list_summaries(call: RegistryCall) -> RegistryReply:
    machine, query = call.machine, call.request.query
    search, is_deleted = query.get("search", "").casefold(), call.request.flag("deleted")
    value = _SORTED_BY.get(query.get("sort") or "subject")
    if value is None:
        raise MalformedRequest(f"subjects are sorted by one of {', '.join(SORT_FIELDS)}")
    found = [
        (value(machine, each), each)
        async for each in in_turns(machine.subjects())
        if search in each.casefold() and _is_there(machine, each, is_deleted) and call.shows(each)
    ]
    found.sort(key=itemgetter(0), reverse=query.get("order") == "desc")
    page = [each for _, each in call.page(found)]
    items = [_summary(machine, each) async for each in in_turns(page) if _is_there(machine, each, is_deleted)]
    return reply(SubjectPage(len(found), items))


def _is_there(machine: SchemaMachine, subject: str, is_deleted: bool) -> bool:
    """Whether a subject has versions still: it may have been deleted for good in another turn."""
    return bool(machine.state(subject).versions) if is_deleted else machine.has_versions(subject)


@operation("GET", "/headrace/subjects/{subject}", needs=READ_SUBJECT)
async def show_summary(call: RegistryCall) -> RegistryReply:
    machine, subject = call.machine, call.subject
    versions = [*machine.known_versions(subject, deleted=True).values()][-SHOWN_VERSIONS:]
    own = machine.config(subject)
    return reply(
        SubjectVersions(
            _summary(machine, subject),
            None if own is None else own.compatibility_level,
            [_version(each) for each in reversed(versions)],
        )
    )


@operation("GET", "/headrace/subjects/{subject}/versions/{version}", needs=READ_SUBJECT)
async def show_version_text(call: RegistryCall) -> RegistryReply:
    machine, subject = call.machine, call.subject
    found = machine.version(subject, call.version, deleted=True)
    users = sorted({(each.subject, each.version) for each in machine.referenced_by(subject, found.version)})
    shown = [SchemaReferrer(*each) for each in users if call.shows(each[0])]
    return reply(
        VersionText(
            _version(found),
            found.schema,
            found.references,
            shown[:SHOWN_REFERRERS],
            found.metadata,
            found.rule_set,
        )
    )


def _summary(machine: SchemaMachine, subject: str) -> SubjectSummary:
    left, last = machine.versions(subject), _last(machine, subject)
    return SubjectSummary(
        subject=subject,
        topic=topic_of(subject),
        schema_type=last.schema_type,
        id=last.id,
        version=last.version,
        versions=len(left),
        compatibility=machine.effective_config(subject).compatibility_level or "",
        mode=machine.effective_mode(subject),
        is_deleted=not left,
    )


def _version(schema: StoredSchema) -> VersionSummary:
    return VersionSummary(
        schema.version, schema.id, schema.md5, schema.schema_type, len(schema.references), schema.deleted
    )
