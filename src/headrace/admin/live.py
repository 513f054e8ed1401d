"""Live views: the answer of a GET as an event every two seconds, for every page that shows it.

A view is computed and encoded once for all watchers that have the same rights: those of one principal, or all while
authorization is off. Permissions are checked again with each event.
"""

import logging
import re

import msgspec

from headrace.admin.errors import AdminError, admin_error
from headrace.admin.live_views import OVER, LiveEvent, LiveView, Watcher
from headrace.admin.permissions import check_permission
from headrace.admin.routes import ROUTES, Access, AdminReply, AdminRequest, AdminRoute, RouteNeed, route
from headrace.admin.streams import HEARTBEAT, SSE, ByteStream, event
from headrace.model.acls import AclOperation
from headrace.model.errors import HeadraceError

log = logging.getLogger(__name__)

_VIEW = re.compile(r"overview|cluster|health|pipelines|(topics|queues|groups|pipelines)/(.+)", re.DOTALL)
_UNKNOWN = "the views are overview, cluster, health, pipelines, topics/NAME, groups/NAME, queues/NAME, pipelines/NAME"
WATCH = RouteNeed(AclOperation.DESCRIBE, access=Access.DELEGATED)


@route("GET", "/live/{view:path}", needs=WATCH, media_type=SSE)
async def watch_view(request: AdminRequest) -> AdminReply:
    """The answer of `GET /api/v1/{view}` as an event every two seconds, with its permission; see below."""
    services, subject, view = request.services, request.subject, request.parameters["view"]
    target, parameters = _target(view)
    check_permission(services, target, subject, parameters)
    services.streams.check(subject.principal)
    asked = AdminRequest(services, subject, parameters, is_live=True)
    first = b""
    if request.headers.get("last-event-id"):
        # The points that were missed are in the whole history.
        whole = await target.handler(AdminRequest(services, subject, parameters))
        first = _event(asked, whole).piece

    def make() -> LiveView:
        return LiveView(
            lambda: _computed(target, asked),
            lambda session: services.sessions.find(session.session_id) is not None,
        )

    is_open = services.security.authorizer is None
    key = (view, "", "") if is_open else (view, subject.principal, subject.host)
    pieces = services.live.watch(key, make, Watcher(request.session), first)
    return AdminReply(ByteStream(SSE, pieces, services.streams, subject.principal))


def _target(view: str) -> tuple[AdminRoute, dict[str, str]]:
    """The route whose answer the view shows, and its parameters."""
    found = _VIEW.fullmatch(view)
    if found is None:
        raise AdminError(404, "unknown_view", _UNKNOWN)
    kind, name = found[1], found[2]
    for each in ROUTES:
        parts = each.plain_path.split("/")[1:]
        if each.method == "GET" and kind is None and parts == [view]:
            return each, {}
        if each.method == "GET" and len(parts) == 2 and parts[0] == kind and parts[1].startswith("{"):
            return each, {parts[1].strip("{}"): name}
    raise AdminError(404, "unknown_view", _UNKNOWN)


async def _computed(target: AdminRoute, request: AdminRequest) -> LiveEvent:
    """The next event. One that is not possible for the moment is left out, and only the connection stays alive."""
    try:
        check_permission(request.services, target, request.subject, request.parameters)
        return _event(request, await target.handler(request))
    except (AdminError, HeadraceError) as error:
        refusal = error if isinstance(error, AdminError) else admin_error(error)
        if refusal.status >= 500:
            return LiveEvent(HEARTBEAT)
        problem = msgspec.json.encode({"error": refusal.code, "message": str(refusal)})
        return LiveEvent(event(problem, name=OVER), True)
    except Exception:
        log.exception("the live view %s cannot be computed", target.plain_path)
        return LiveEvent(HEARTBEAT)


def _event(request: AdminRequest, reply: AdminReply) -> LiveEvent:
    return LiveEvent(event(msgspec.json.encode(reply.value), event_id=str(request.services.clock.wall_ms())))
