"""The ASGI application of the registry: authenticates, checks the permission, and passes the request on.

Permissions are those of the topic that a subject belongs to: `orders-key` and `orders-value` belong to `orders`, any
other subject to the topic of its own name. With authorization off, everything is allowed from this machine, and from
elsewhere only if the broker is `insecure`.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from headrace.config.address import is_loopback
from headrace.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from headrace.model.users import ANONYMOUS, principal_of
from headrace.registry.audit import RegistryAudit
from headrace.schemas.errors import SchemaFault
from headrace.schemas.operations.all_operations import FoundOperation, find_operation
from headrace.schemas.operations.settings import begins_import, set_subject_mode
from headrace.schemas.operations.table import ALTER_REGISTRY, RegistryNeed
from headrace.schemas.requests import BETWEEN_VALUES, MalformedRequest, RegistryReply, RegistryRequest, refusal, reply
from headrace.schemas.service import RegistryService
from headrace.schemas.subjects import topic_of
from headrace.security.basic_login import MECHANISM, BasicLogin
from headrace.security.local_requests import client_of, is_local
from headrace.security.login_queue import LoginsBusy
from headrace.security.security import Security
from headrace.security.subject import Subject

AsgiScope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]

REGISTRY_PREFIX = "/registry"
MAX_PARAMETERS = 50
MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_DISCARDED_BYTES = 32 * 1024 * 1024
"""A longer body is read up to here and thrown away: most clients read no answer before they have sent everything."""
_TYPE = b"application/vnd.schemaregistry.v1+json"
_READ_TYPES = ("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json")
_WITH_BODY = frozenset({"POST", "PUT"})
_CHALLENGE = (b"www-authenticate", b'Basic realm="headrace", charset="UTF-8"')


class Unauthorized(SchemaFault):
    status = 401
    code = 40101


class Denied(SchemaFault):
    status = 403
    code = 40301


class UnsupportedType(SchemaFault):
    status = 415
    code = 415


class BodyTooLarge(SchemaFault):
    status = 413
    code = 42209


class Busy(SchemaFault):
    status = 503
    code = 50301


class RegistryDoor:
    def __init__(
        self,
        registry: RegistryService,
        security: Security,
        login: BasicLogin,
        *,
        prefix: str = "",
        is_insecure: Callable[[], bool],
    ) -> None:
        self._registry = registry
        self._security = security
        self._login = login
        self._prefix = prefix
        self._is_insecure = is_insecure
        self._audit = RegistryAudit(security.audit)

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        try:
            answer = await self._answer(scope, receive)
        except SchemaFault as error:
            answer = refusal(error)
        headers = [(b"content-type", _TYPE), (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
        if answer.status == Unauthorized.status:
            headers.append(_CHALLENGE)
        if answer.status in (BodyTooLarge.status, UnsupportedType.status):
            # The body is not read.
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: AsgiScope, receive: AsgiReceive) -> RegistryReply:
        parts = _parts(scope["raw_path"], self._prefix)
        query = _query(scope["query_string"].decode("latin-1"))
        request = RegistryRequest(scope["method"], parts, query)
        subject = await self._authenticated(scope)
        if not parts and request.method == "GET":
            return reply({})
        found = find_operation(request)
        self._check(found, request, subject)
        if request.method in _WITH_BODY:
            request = RegistryRequest(request.method, parts, query, await _body(scope, receive))
            if _needs(found, request) is not found.operation.needs:
                self._check(found, request, subject)
        if request.method == "GET":
            return await self._registry.answer(request, subject.principal, subject.host)
        return await self._audit.recorded(
            found, request, subject, lambda: self._registry.answer(request, subject.principal, subject.host)
        )

    async def _authenticated(self, scope: AsgiScope) -> Subject:
        headers = dict(scope["headers"])
        host = client_of(scope.get("client"))
        subject = Subject(host=host, listener=str(scope["scheme"]))
        header = headers.get(b"authorization")
        if header is not None and (scope["scheme"] == "https" or is_loopback(host)):
            try:
                user = await self._login(subject, header.decode("latin-1"))
            except LoginsBusy:
                raise Busy("too many clients log in at the same time") from None
            if user is None:
                raise Unauthorized("the user name or the password is wrong")
            return subject._replace(principal=principal_of(user.name), mechanism=MECHANISM)
        if self._security.authorizer is not None:
            if scope["scheme"] != "https" and not is_loopback(host):
                raise Denied("from other machines this is served over TLS only: use https")
            raise Unauthorized("this needs the name and password of a user (HTTP Basic)")
        if not self._is_insecure() and not is_local(_texts(headers), scope["scheme"], host):
            raise Denied("without authorization this is allowed from the broker's machine only")
        return subject

    def _check(self, found: FoundOperation, request: RegistryRequest, subject: Subject) -> None:
        authorizer, needs = self._security.authorizer, _needs(found, request)
        if authorizer is None:
            return
        if subject.principal == ANONYMOUS:
            raise Unauthorized("this needs the name and password of a user (HTTP Basic)")
        if needs is None:
            return
        kind, name = _resource(found.names["subject"] if needs.is_of_subject else "")
        if not authorizer.allows(subject.principal, subject.host, needs.operation, kind, name):
            action = f"{request.method} /{'/'.join(found.operation.path)}"
            self._security.denied(subject, "", action, needs.operation, kind, name)
            where = f"the topic {name}" if kind is ResourceType.TOPIC else "the cluster"
            raise Denied(f"{subject.principal} lacks the permission {needs.operation.name.lower()} on {where}")
        self._security.permitted[needs.operation, kind] += 1


def _needs(found: FoundOperation, request: RegistryRequest) -> RegistryNeed | None:
    """The permission that a request needs, as far as it has been read.

    An import chooses ids, and may leave none for others: the permission on one topic is not enough.
    """
    if found.operation.handler is set_subject_mode and request.body and begins_import(request):
        return ALTER_REGISTRY
    return found.operation.needs


def shown_subjects(security: Security) -> Callable[[str, str], Callable[[str], bool]]:
    """Which subjects a principal may see in lists: those of topics that it may describe."""

    def shows(principal: str, host: str) -> Callable[[str], bool]:
        authorizer = security.authorizer
        if authorizer is None:
            return lambda _: True

        def shown(subject: str) -> bool:
            kind, name = _resource(subject)
            return authorizer.allows(principal, host, AclOperation.DESCRIBE, kind, name)

        return shown

    return shows


def _resource(subject: str) -> tuple[ResourceType, str]:
    """The topic of a subject. One without a name stands for its context, which belongs to the cluster."""
    topic = topic_of(subject)
    return (ResourceType.TOPIC, topic) if topic else (ResourceType.CLUSTER, CLUSTER_NAME)


def _parts(raw_path: bytes, prefix: str) -> tuple[str, ...]:
    """The parts of a path below the prefix; a subject may contain an encoded slash."""
    path = raw_path.decode("latin-1").removeprefix(prefix).strip("/")
    return tuple(unquote(part) for part in path.split("/")) if path else ()


def _query(text: str) -> dict[str, str]:
    """The parameters; values of one that is given several times are joined."""
    found: dict[str, str] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise MalformedRequest(f"a request may have {MAX_PARAMETERS} parameters") from None
    for name, value in pairs:
        found[name] = f"{found[name]}{BETWEEN_VALUES}{value}" if name in found else value
    return found


def _texts(headers: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}


async def _body(scope: AsgiScope, receive: AsgiReceive) -> bytes:
    headers = dict(scope["headers"])
    given = headers.get(b"content-type", b"application/json").decode("latin-1").partition(";")[0].strip().lower()
    if given not in _READ_TYPES:
        raise UnsupportedType(f"the body must have one of the content types {', '.join(_READ_TYPES)}")
    pieces: list[bytes] = []
    size, has_more = 0, True
    while has_more:
        event = await receive()
        if event["type"] == "http.disconnect":
            break
        piece = event.get("body", b"")
        size += len(piece)
        if size > MAX_DISCARDED_BYTES:
            break
        if size > MAX_BODY_BYTES:
            pieces.clear()
        else:
            pieces.append(piece)
        has_more = event.get("more_body", False)
    if size > MAX_BODY_BYTES:
        raise BodyTooLarge(f"a body may have {MAX_BODY_BYTES} bytes")
    return b"".join(pieces)
