"""Events of the audit log, read from the topic `__audit` as any consumer reads it: it needs READ on that topic."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError
from headrace.admin.message_scan import Scan, in_time_order
from headrace.admin.messages import parse_time, partition_bounds, start_positions
from headrace.admin.routes import Access, AdminReply, AdminRequest, RouteNeed, route
from headrace.model.acls import AclOperation, ResourceType
from headrace.model.image import AUDIT_TOPIC
from headrace.records.reader import Record
from headrace.security.audit.event import TYPE_PREFIX

MAX_EVENTS = 500
READ_AUDIT = RouteNeed(AclOperation.READ, ResourceType.TOPIC, access=Access.DELEGATED)


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    search: Annotated[str, Meta(max_length=256, description="Text anywhere in an event.")] = ""
    since: Annotated[str, Meta(max_length=64, description="ISO 8601; without it the latest events.")] = ""
    principal: Annotated[str, Meta(max_length=255)] = ""
    event: Literal["", "authentication", "authorization", "admin", "produce", "consume"] = ""
    outcome: Literal["", "success", "failure", "denied", "allowed"] = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_EVENTS)] = 100


class AuditEntry(msgspec.Struct, frozen=True):
    time: str
    event: str
    outcome: str
    principal: str
    host: str
    action: str
    resource_type: str
    resource_name: str
    operation: str
    reason: str
    error: str
    count: int
    request: dict[str, Any]


class AuditEvents(msgspec.Struct, frozen=True):
    items: list[AuditEntry]
    """The latest first."""
    is_complete: bool
    """False if the search has stopped at its bounds."""


def _matcher(query: AuditQuery) -> Callable[[Record], bool]:
    wanted = query.search.casefold()

    def matches(record: Record) -> bool:
        if wanted and wanted not in (record.value or b"").decode(errors="replace").casefold():
            return False
        found = _entry(record)
        return (
            found is not None
            and query.event in ("", found.event)
            and query.outcome in ("", found.outcome)
            and query.principal in ("", found.principal, found.principal.partition(":")[2])
        )

    return matches


@route("GET", "/audit", needs=READ_AUDIT, query=AuditQuery, answer=AuditEvents)
async def list_events(request: AdminRequest) -> AdminReply:
    """Events of the audit log, the latest first; needs READ on the topic `__audit`."""
    query = request.query(AuditQuery)
    if not request.allows(AclOperation.READ, ResourceType.TOPIC, AUDIT_TOPIC):
        raise AdminError(403, "forbidden", f"{request.subject.principal} lacks the permission read on {AUDIT_TOPIC}")
    if AUDIT_TOPIC not in request.services.metadata.image.topics:
        return AdminReply(AuditEvents([], True))
    since_ms = parse_time(query.since) if query.since else None
    if query.since and since_ms is None:
        raise AdminError(400, "invalid_request", "since is a time such as 2026-11-17T20:00:00Z")
    async with request.services.scanning:
        bounds = await partition_bounds(request, AUDIT_TOPIC, None)
        if since_ms is not None:
            starts = await start_positions(request, AUDIT_TOPIC, f"time:{since_ms}", bounds)
            bounds = {index: replace(each, start=starts[index]) for index, each in bounds.items()}
        ends = {index: each.end for index, each in bounds.items()}
        scan = Scan(request, AUDIT_TOPIC, bounds, ends, _matcher(query), True)
        found = await scan.backward(query.limit)
    entries = [_entry(record) for _, record in in_time_order(found, newest_first=True)]
    is_complete = len(entries) >= query.limit or all(at <= bounds[index].start for index, at in scan.positions.items())
    return AdminReply(AuditEvents([each for each in entries if each is not None], is_complete))


def _entry(record: Record) -> AuditEntry | None:
    try:
        event = msgspec.json.decode(record.value or b"")
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(event, dict):
        return None
    data = event.get("data")
    data = data if isinstance(data, dict) else {}
    request = data.get("request")
    count = data.get("count", 1)
    return AuditEntry(
        time=str(event.get("time", "")),
        event=str(event.get("type", "")).removeprefix(TYPE_PREFIX),
        outcome=str(data.get("outcome", "")),
        principal=str(data.get("principal", "")),
        host=str(data.get("host", "")),
        action=str(data.get("action", "")),
        resource_type=str(data.get("resourceType", "")),
        resource_name=str(data.get("resourceName", "")),
        operation=str(data.get("operation", "")),
        reason=str(data.get("rule") or data.get("reason") or data.get("message") or ""),
        error=str(data.get("errorCode") or ""),
        count=count if isinstance(count, int) else 1,
        request=request if isinstance(request, dict) else {},
    )
