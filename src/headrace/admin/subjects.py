"""Subjects of the schema registry: their versions, what they refer to, differences, and changes.

Everything is asked of the registry as the person; permissions are those of the topic that a subject belongs to.
"""

import asyncio
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError
from headrace.admin.pages import Page, PageQuery
from headrace.admin.routes import Access, AdminReply, AdminRequest, RouteNeed, route
from headrace.admin.schema_diff import DiffLine, line_diff, pretty
from headrace.model.acls import AclOperation, ResourceType
from headrace.model.ids import TopicName
from headrace.model.image import SCHEMAS_TOPIC
from headrace.schemas.operations.summaries import (
    SchemaReferrer,
    SubjectPage,
    SubjectSummary,
    SubjectVersions,
    VersionSummary,
    VersionText,
)
from headrace.schemas.requests import RegistryRequest
from headrace.schemas.stored import SchemaReference
from headrace.schemas.subjects import name_of

T = TypeVar("T")

MAX_SCHEMA_BYTES = 2 * 1024 * 1024


def _need(operation: AclOperation) -> RouteNeed:
    return RouteNeed(operation, ResourceType.TOPIC, "subject", is_of_subject=True)


SHOWN_SUBJECTS = RouteNeed(AclOperation.DESCRIBE, ResourceType.TOPIC, access=Access.SHOWN, is_of_subject=True)
DESCRIBE_SUBJECT = _need(AclOperation.DESCRIBE)
WRITE_SUBJECT = _need(AclOperation.WRITE)
DELETE_SUBJECT = _need(AclOperation.DELETE)
ALTER_SUBJECT = _need(AclOperation.ALTER)

_CODES = {
    422: (400, "invalid_request"),
    40401: (404, "unknown_subject"),
    40402: (404, "unknown_version"),
    40403: (404, "unknown_schema"),
    40404: (409, "deleted_already"),
    40405: (409, "not_deleted_first"),
    40406: (409, "deleted_already"),
    40407: (409, "not_deleted_first"),
    40901: (409, "incompatible_schema"),
    42201: (400, "invalid_schema"),
    42202: (400, "invalid_version"),
    42203: (400, "invalid_level"),
    42205: (409, "not_permitted"),
    42206: (409, "referenced"),
    42208: (400, "invalid_subject"),
    50003: (503, "unavailable"),
}


class _RegistryRefusal(msgspec.Struct, frozen=True):
    error_code: int = 0
    message: str = ""


class SubjectQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    deleted: Annotated[bool, Meta(description="Also those whose versions are all deleted.")] = False


class SubjectUse(msgspec.Struct, frozen=True):
    topic: str
    part: Literal["key", "value"]


class SubjectDetail(msgspec.Struct, frozen=True):
    summary: SubjectSummary
    own_compatibility: str | None
    """The level of the subject itself; null if it has the global one."""
    versions: list[VersionSummary]
    """The newest first, at most 500; with deleted ones."""
    used_by: SubjectUse | None
    """The topic that is there and whose keys or values have this schema by the name of the subject."""


class SchemaVersion(msgspec.Struct, frozen=True):
    subject: str
    summary: VersionSummary
    schema: str
    """The text as it is registered."""
    pretty: str
    """The text for people: JSON is indented."""
    references: list[SchemaReference]
    referenced_by: list[SchemaReferrer]
    """The first 100 schemas that refer to this one."""
    metadata: dict[str, Any] | None
    rule_set: dict[str, Any] | None


class DiffQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"earlier": "from", "later": "to"}):
    earlier: Annotated[str, Meta(max_length=10, description="A version, or latest.")]
    later: Annotated[str, Meta(max_length=10, description="A version, or latest.")] = "latest"


class SchemaDiff(msgspec.Struct, frozen=True):
    earlier: int
    later: int
    removed: int
    added: int
    lines: list[DiffLine]


class NewSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: Annotated[str, Meta(min_length=1)]
    schema_type: Literal["AVRO", "JSON", "PROTOBUF"] = "AVRO"
    references: Annotated[list[SchemaReference], Meta(max_length=1000)] = []
    normalize: bool = False

    @property
    def body(self) -> dict[str, Any]:
        return {"schema": self.schema, "schemaType": self.schema_type, "references": self.references}


class NewSchemaVersion(msgspec.Struct, frozen=True):
    id: int
    version: int


class SchemaCheck(msgspec.Struct, frozen=True):
    is_compatible: bool
    messages: list[str]
    """What is not compatible, with the place in the schema."""


class CompatibilityBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: Annotated[str, Meta(max_length=32)] | None
    """null for the global level."""


class DeleteSchemaQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    permanent: bool = False
    """For good; only what was deleted before."""


class DeletedVersions(msgspec.Struct, frozen=True):
    versions: list[int]


@route("GET", "/subjects", needs=SHOWN_SUBJECTS, query=SubjectQuery, answer=Page[SubjectSummary])
async def list_subjects(request: AdminRequest) -> AdminReply:
    """The subjects of the schema registry, each with its newest version."""
    query = request.query(SubjectQuery)
    if not _has_registry(request):
        return AdminReply(Page[SubjectSummary]([], 0, query.page, query.per_page))
    asked = {
        "search": query.search,
        "sort": query.sort,
        "order": query.order,
        "offset": str((query.page - 1) * query.per_page),
        "limit": str(query.per_page),
        "deleted": str(query.deleted).lower(),
    }
    found = await _ask(request, SubjectPage, "GET", "headrace", "subjects", query=asked)
    return AdminReply(Page(found.items, found.total, query.page, query.per_page))


_VERSION = "/subjects/{subject:path}/versions/{version}"


@route("GET", _VERSION, needs=DESCRIBE_SUBJECT, answer=SchemaVersion)
async def describe_version(request: AdminRequest) -> AdminReply:
    """A version of a subject with its text, what it refers to and what refers to it."""
    found = await _version(request, request.parameters["version"])
    text = await asyncio.to_thread(pretty, found.summary.schema_type, found.schema)
    fields = msgspec.structs.asdict(found)
    return AdminReply(SchemaVersion(subject=request.parameters["subject"], pretty=text, **fields))


@route("DELETE", _VERSION, needs=DELETE_SUBJECT, query=DeleteSchemaQuery, answer=DeletedVersions)
async def delete_version(request: AdminRequest) -> AdminReply:
    """Delete a version: its messages can still be read. For good, they cannot."""
    subject, version = request.parameters["subject"], request.parameters["version"]
    found = await _ask(request, int, "DELETE", "subjects", subject, "versions", version, query=_permanent(request))
    return AdminReply(DeletedVersions([found]))


@route(
    "POST",
    "/subjects/{subject:path}/versions",
    needs=WRITE_SUBJECT,
    body=NewSchema,
    answer=NewSchemaVersion,
    max_body_bytes=MAX_SCHEMA_BYTES,
)
async def register_schema(request: AdminRequest) -> AdminReply:
    """Register a schema; one that is registered already keeps its version and id."""
    new, subject = request.read(NewSchema), request.parameters["subject"]
    query = {"normalize": "true"} if new.normalize else {}
    return AdminReply(
        await _ask(request, NewSchemaVersion, "POST", "subjects", subject, "versions", query=query, body=new.body), 201
    )


@route(
    "POST",
    "/subjects/{subject:path}/check",
    needs=DESCRIBE_SUBJECT,
    body=NewSchema,
    answer=SchemaCheck,
    max_body_bytes=MAX_SCHEMA_BYTES,
    is_read=True,
)
async def check_schema(request: AdminRequest) -> AdminReply:
    """Whether a schema could be registered, and what is in the way; nothing is changed."""
    new, subject = request.read(NewSchema), request.parameters["subject"]
    parts = ("compatibility", "subjects", subject, "versions")
    return AdminReply(await _ask(request, SchemaCheck, "POST", *parts, query={"verbose": "true"}, body=new.body))


@route("GET", "/subjects/{subject:path}/diff", needs=DESCRIBE_SUBJECT, query=DiffQuery, answer=SchemaDiff)
async def diff_versions(request: AdminRequest) -> AdminReply:
    """The difference of two versions of a subject, line by line."""
    query = request.query(DiffQuery)
    before, after = await _version(request, query.earlier), await _version(request, query.later)
    return AdminReply(await asyncio.to_thread(_diff, before, after))


def _diff(before: VersionText, after: VersionText) -> SchemaDiff:
    texts = (pretty(each.summary.schema_type, each.schema).splitlines() for each in (before, after))
    lines = line_diff(*texts)
    removed, added = (sum(each.change == change for each in lines) for change in ("removed", "added"))
    return SchemaDiff(before.summary.version, after.summary.version, removed, added, lines)


@route("PUT", "/subjects/{subject:path}/compatibility", needs=ALTER_SUBJECT, body=CompatibilityBody)
async def set_compatibility(request: AdminRequest) -> AdminReply:
    """Set the level of compatibility of a subject, or with null let it have the global one."""
    level, subject = request.read(CompatibilityBody).level, request.parameters["subject"]
    await _ask(request, dict[str, Any], "PUT", "config", subject, body={"compatibility": level})
    return AdminReply(None)


@route("GET", "/subjects/{subject:path}", needs=DESCRIBE_SUBJECT, answer=SubjectDetail)
async def describe_subject(request: AdminRequest) -> AdminReply:
    """A subject with its versions, its level of compatibility and the topic that uses it."""
    found = await _ask(request, SubjectVersions, "GET", "headrace", "subjects", request.parameters["subject"])
    use = _use(request, found.summary)
    return AdminReply(SubjectDetail(found.summary, found.own_compatibility, found.versions, use))


def _use(request: AdminRequest, summary: SubjectSummary) -> SubjectUse | None:
    if TopicName(summary.topic) not in request.services.metadata.image.topics:
        return None
    name = name_of(summary.subject)
    if name == summary.topic:
        return None
    return SubjectUse(summary.topic, "key" if name.endswith("-key") else "value")


@route(
    "DELETE",
    "/subjects/{subject:path}",
    needs=DELETE_SUBJECT,
    query=DeleteSchemaQuery,
    answer=DeletedVersions,
)
async def delete_subject(request: AdminRequest) -> AdminReply:
    """Delete all versions of a subject: their messages can still be read. For good, they cannot."""
    subject = request.parameters["subject"]
    found = await _ask(request, list[int], "DELETE", "subjects", subject, query=_permanent(request))
    return AdminReply(DeletedVersions(found))


def _permanent(request: AdminRequest) -> dict[str, str]:
    return {"permanent": "true"} if request.query(DeleteSchemaQuery).permanent else {}


async def _version(request: AdminRequest, version: str) -> VersionText:
    subject = request.parameters["subject"]
    return await _ask(request, VersionText, "GET", "headrace", "subjects", subject, "versions", version)


def _has_registry(request: AdminRequest) -> bool:
    """Whether anything was registered: the first request to the registry creates its topic, and looking should not."""
    return SCHEMAS_TOPIC in request.services.metadata.image.topics


async def _ask(
    request: AdminRequest,
    kind: type[T],
    method: str,
    *parts: str,
    query: dict[str, str] | None = None,
    body: Any = None,
) -> T:
    """The answer of the registry to a request of the person."""
    if method == "GET" and not _has_registry(request):
        raise AdminError(404, "unknown_subject", "there is no subject yet: headrace schema register SUBJECT FILE")
    encoded = b"" if body is None else msgspec.json.encode(body)
    subject = request.subject
    asked = RegistryRequest(method, parts, query or {}, encoded)
    answer = await request.services.registry.answer(asked, subject.principal, subject.host)
    if answer.status < 400:
        return msgspec.json.decode(answer.body, type=kind)
    refused = msgspec.json.decode(answer.body, type=_RegistryRefusal)
    status, code = _CODES.get(refused.error_code, (answer.status, "refused"))
    raise AdminError(status, code, refused.message)
