"""The session of a browser: who is logged in, what that user may do, login and logout."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError
from headrace.admin.login import log_in
from headrace.admin.routes import NO_PERMISSION, AdminReply, AdminRequest, route
from headrace.admin.sessions import COOKIE, Session
from headrace.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from headrace.model.users import ANONYMOUS, USER_TYPE
from headrace.security.subject import Subject
from headrace.version import version

_MAX_NAME, _MAX_PASSWORD = 255, 1024


class Rights(msgspec.Struct, frozen=True):
    """What the person may do with the cluster; single topics, groups and queues have permissions of their own."""

    describe_cluster: bool
    alter_cluster: bool
    describe_settings: bool
    alter_settings: bool
    create_topics: bool


class SessionInfo(msgspec.Struct, frozen=True):
    user: str | None
    """Null without a login."""
    authentication: bool
    """Whether a login is needed."""
    read_only: bool
    csrf: str
    """For the header X-CSRF-Token of each change; empty without a session."""
    cluster_id: str
    version: str
    broker_id: int
    feature_level: int
    can: Rights
    features: list[str]


class LoginBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user: Annotated[str, Meta(min_length=1, max_length=_MAX_NAME)]
    password: Annotated[str, Meta(min_length=1, max_length=_MAX_PASSWORD)]

    def __repr__(self) -> str:
        return f"LoginBody(user={self.user!r})"


@route("GET", "/session", needs=NO_PERMISSION, answer=SessionInfo)
async def describe_session(request: AdminRequest) -> AdminReply:
    """Who is logged in, and what that user may do."""
    return AdminReply(_info(request, request.subject, request.session))


@route(
    "POST",
    "/session",
    needs=NO_PERMISSION,
    body=LoginBody,
    answer=SessionInfo,
    max_body_bytes=8 * 1024,
    is_read=True,
)
async def begin_session(request: AdminRequest) -> AdminReply:
    """Log in: the answer sets the cookie of the session."""
    given, services = request.read(LoginBody), request.services
    client = Subject(host=request.subject.host, listener=request.subject.listener)
    try:
        user = await log_in(services, client, given.user, given.password)
    except AdminError as error:
        # Without a challenge: a browser would ask for the password once more, by itself.
        raise AdminError(error.status, error.code, str(error)) from None
    if request.session is not None:
        services.sessions.end(request.session)
    session = services.sessions.begin(user)
    subject = client._replace(principal=f"{USER_TYPE}:{user.name}")
    headers = {"set-cookie": _cookie(request, session.session_id)}
    return AdminReply(_info(request, subject, session), 201, headers)


@route("DELETE", "/session", needs=NO_PERMISSION, is_read=True)
async def end_session(request: AdminRequest) -> AdminReply:
    """Log out."""
    if request.session is not None:
        request.services.sessions.end(request.session)
    return AdminReply(None, 204, {"set-cookie": _cookie(request, "", is_over=True)})


def _cookie(request: AdminRequest, value: str, *, is_over: bool = False) -> str:
    parts = [f"{COOKIE}_{request.own_port}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
    if request.subject.listener == "https":
        parts.append("Secure")
    if is_over:
        parts.append("Max-Age=0")
    return "; ".join(parts)


def _info(request: AdminRequest, subject: Subject, session: Session | None) -> SessionInfo:
    services, metadata = request.services, request.services.metadata
    image = metadata.image
    has_authorization = services.security.authorizer is not None

    def may(operation: AclOperation) -> bool:
        if has_authorization and subject.principal == ANONYMOUS:
            return False
        return services.security.allows(subject, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    is_known = not has_authorization or subject.principal != ANONYMOUS
    return SessionInfo(
        user=None if subject.principal == ANONYMOUS else subject.principal.removeprefix(f"{USER_TYPE}:"),
        authentication=has_authorization,
        read_only=metadata.settings.dashboard_read_only,
        csrf="" if session is None else session.csrf,
        cluster_id=image.cluster_id if is_known else "",
        version=version() if is_known else "",
        broker_id=metadata.broker_id if is_known else -1,
        feature_level=image.feature_level if is_known else 0,
        can=Rights(
            describe_cluster=may(AclOperation.DESCRIBE),
            alter_cluster=may(AclOperation.ALTER),
            describe_settings=may(AclOperation.DESCRIBE_CONFIGS),
            alter_settings=may(AclOperation.ALTER_CONFIGS),
            create_topics=may(AclOperation.CREATE),
        ),
        features=FEATURES if is_known else [],
    )


FEATURES = ["topics", "groups", "queues", "transactions", "share_groups", "schemas", "cluster", "security", "live"]
"""The parts of the dashboard that this broker has data for."""
