"""The table of routes: method, path, handler, the permission that each needs, and the types of what goes in and out.

    @route("GET", "/topics/{topic}", needs=DESCRIBE_TOPIC, answer=TopicDetail)
    async def describe_topic(request: AdminRequest) -> AdminReply: ...

A handler without `needs` does not register. The tests generate a matrix of requests from this table, and `openapi.py`
the description of the API.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec

from headrace.admin.errors import AdminError
from headrace.admin.services import AdminServices
from headrace.admin.sessions import Session
from headrace.model.acls import CLUSTER_NAME, AclOperation, Resource, ResourceType
from headrace.schemas.subjects import topic_of
from headrace.security.subject import Subject

PREFIX = "/api/v1"
MAX_BODY_BYTES = 64 * 1024
READS = "GET"

_T = TypeVar("_T")


class Access(Enum):
    """Which requests a route lets pass."""

    CHECKED = auto()
    """Those of users with the permission."""
    SHOWN = auto()
    """Those of every user: the answer has only what the user has the permission for."""
    DELEGATED = auto()
    """Those of every user: the API that does the work checks the permission, and may accept others as well."""
    OPEN = auto()
    """All, without a login."""


class RouteNeed(NamedTuple):
    """An operation on the cluster, or on the resource that a parameter of the path names."""

    operation: AclOperation
    kind: ResourceType = ResourceType.CLUSTER
    parameter: str = ""
    access: Access = Access.CHECKED
    actions: tuple[str, ...] = ()
    """For a queue: the actions of SQS that its policy may allow or deny."""
    prefix: str = ""
    """What the name of the resource has before the parameter."""
    is_of_subject: bool = False
    """The parameter names a subject of the schema registry, and the resource is its topic."""

    def resource(self, parameters: Mapping[str, str]) -> Resource:
        if self.kind is ResourceType.CLUSTER:
            return Resource(self.kind, CLUSTER_NAME)
        name = self.prefix + parameters.get(self.parameter, "")
        if self.is_of_subject and name and not topic_of(name):
            # It stands for a context, which belongs to no topic.
            return Resource(ResourceType.CLUSTER, CLUSTER_NAME)
        return Resource(self.kind, topic_of(name) if self.is_of_subject else name)

    def __str__(self) -> str:
        """As the documentation shows it."""
        if self.access is Access.OPEN:
            return "none"
        kind = "queue" if self.actions else self.kind.name.lower().replace("_", " ")
        is_listed = self.access is Access.SHOWN and self.kind is not ResourceType.CLUSTER
        where = f"each {kind} that is listed" if is_listed else f"the {kind}"
        if self.is_of_subject:
            where = f"the topic of {'each subject that is listed' if is_listed else 'the subject'}"
        if self.prefix and self.parameter:
            where += f" {self.prefix}{{{self.parameter}}}"
        return f"{self.operation.name} on {where}"


ALTER_CLUSTER = RouteNeed(AclOperation.ALTER)
DESCRIBE_CLUSTER = RouteNeed(AclOperation.DESCRIBE)
DESCRIBE_CLUSTER_CONFIGS = RouteNeed(AclOperation.DESCRIBE_CONFIGS)
ALTER_CLUSTER_CONFIGS = RouteNeed(AclOperation.ALTER_CONFIGS)
NO_PERMISSION = RouteNeed(AclOperation.DESCRIBE, access=Access.OPEN)

_TOPIC, _GROUP, _TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID

SHOWN_TOPICS = RouteNeed(AclOperation.DESCRIBE, _TOPIC, access=Access.SHOWN)
CREATE_TOPIC = RouteNeed(AclOperation.CREATE, _TOPIC, access=Access.DELEGATED)
DESCRIBE_TOPIC = RouteNeed(AclOperation.DESCRIBE, _TOPIC, "topic")
READ_TOPIC = RouteNeed(AclOperation.READ, _TOPIC, "topic")
WRITE_TOPIC = RouteNeed(AclOperation.WRITE, _TOPIC, "topic")
ALTER_TOPIC = RouteNeed(AclOperation.ALTER, _TOPIC, "topic")
DELETE_TOPIC = RouteNeed(AclOperation.DELETE, _TOPIC, "topic")
DESCRIBE_TOPIC_CONFIGS = RouteNeed(AclOperation.DESCRIBE_CONFIGS, _TOPIC, "topic")
ALTER_TOPIC_CONFIGS = RouteNeed(AclOperation.ALTER_CONFIGS, _TOPIC, "topic")

SHOWN_QUEUES = RouteNeed(AclOperation.DESCRIBE, _TOPIC, access=Access.SHOWN, actions=("ListQueues",))
CREATE_QUEUE = RouteNeed(AclOperation.CREATE, _TOPIC, access=Access.DELEGATED, actions=("CreateQueue",))


def queue_need(operation: AclOperation, *actions: str) -> RouteNeed:
    """A permission on the queue that the path names: by ACLs, since a queue is a topic, or by its policy."""
    return RouteNeed(operation, _TOPIC, "queue", actions=actions)


SHOWN_GROUPS = RouteNeed(AclOperation.DESCRIBE, _GROUP, access=Access.SHOWN)
DESCRIBE_GROUP = RouteNeed(AclOperation.DESCRIBE, _GROUP, "group")
READ_GROUP = RouteNeed(AclOperation.READ, _GROUP, "group")
DELETE_GROUP = RouteNeed(AclOperation.DELETE, _GROUP, "group")

SHOWN_TRANSACTIONS = RouteNeed(AclOperation.DESCRIBE, _TRANSACTION, access=Access.SHOWN)
DESCRIBE_TRANSACTION = RouteNeed(AclOperation.DESCRIBE, _TRANSACTION, "transactional_id")
WRITE_TRANSACTION = RouteNeed(AclOperation.WRITE, _TRANSACTION, "transactional_id")


class AdminReply(NamedTuple):
    value: Any
    """Encoded as JSON; None for no content. A `Stream` of `streams.py` is sent as it comes."""
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A request that was authenticated and is allowed."""

    services: AdminServices
    subject: Subject
    parameters: Mapping[str, str]
    """The named parts of the path."""
    body: bytes = b""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """The query string."""
    session: Session | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """By their names in lower case."""
    is_live: bool = False
    """For a live view: of a history only the newest point is wanted."""
    own_port: int = 0
    """The port at which the client reached this broker."""

    def read(self, kind: type[_T]) -> _T:
        """Decode the body. The error names a field, and no value: it may be a password."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except msgspec.ValidationError as error:
            raise AdminError(400, "invalid_request", f"the body is not as expected: {error}") from None
        except (msgspec.DecodeError, RecursionError):
            raise AdminError(400, "invalid_request", "the body is not JSON") from None

    def query(self, kind: type[_T]) -> _T:
        """Decode the query string. A parameter that the route does not have is an error."""
        try:
            return msgspec.convert(dict(self.arguments), kind, strict=False)
        except msgspec.ValidationError as error:
            raise AdminError(400, "invalid_request", f"the query string is not as expected: {error}") from None

    def shows(self, kind: ResourceType, name: str) -> bool:
        """Whether a list may show a resource to the person."""
        return self.services.security.allows(self.subject, AclOperation.DESCRIBE, kind, name)

    def allows(self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        return self.services.security.allows(self.subject, operation, kind, name)


AdminHandler = Callable[[AdminRequest], Awaitable[AdminReply]]


@dataclass(frozen=True, slots=True)
class AdminRoute:
    method: str
    path: str
    """Under `PREFIX`, with parameters in braces as starlette writes them."""
    handler: AdminHandler
    needs: RouteNeed
    owner: str = ""
    """The parameter with a user's name: that user needs no permission."""
    query: type | None = None
    body: type | None = None
    answer: Any = None
    """The type of the JSON in the answer; None if there is no content."""
    media_type: str = "application/json"
    """That of the answer."""
    max_body_bytes: int = MAX_BODY_BYTES
    is_audited: bool = True
    """False if the API that does the work records it in the audit log."""
    is_read: bool = False
    """Whether it changes nothing that `dashboard.read.only` protects."""

    @property
    def plain_path(self) -> str:
        """The path with plain braces, as the documentation shows it."""
        return self.path.replace(":path}", "}")

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (self.handler.__doc__ or "").strip().partition("\n")[0]


ROUTES: list[AdminRoute] = []


def route(
    method: str,
    path: str,
    *,
    needs: RouteNeed,
    owner: str = "",
    query: type | None = None,
    body: type | None = None,
    answer: Any = None,
    media_type: str = "application/json",
    max_body_bytes: int = MAX_BODY_BYTES,
    is_audited: bool = True,
    is_read: bool = False,
) -> Callable[[AdminHandler], AdminHandler]:
    """Register a handler."""

    def register(handler: AdminHandler) -> AdminHandler:
        ROUTES.append(
            AdminRoute(
                method,
                path,
                handler,
                needs,
                owner,
                query,
                body,
                answer,
                media_type,
                max_body_bytes,
                is_audited,
                is_read or method == READS,
            )
        )
        return handler

    return register
