"""The table of routes: method, path, handler, and the permission that each needs.

    @route("GET", "/users", needs=DESCRIBE_CLUSTER)
    async def list_users(request: AdminRequest) -> AdminReply: ...

A handler without `needs` does not register. The tests generate a matrix of requests from this table.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec

from headrace.admin.errors import AdminError
from headrace.admin.services import AdminServices
from headrace.model.acls import CLUSTER, AclOperation, Resource
from headrace.security.subject import Subject

PREFIX = "/api/v1"

_T = TypeVar("_T")


class RouteNeed(NamedTuple):
    """An operation on the cluster."""

    operation: AclOperation
    resource: Resource = CLUSTER


ALTER_CLUSTER = RouteNeed(AclOperation.ALTER)
DESCRIBE_CLUSTER = RouteNeed(AclOperation.DESCRIBE)


class AdminReply(NamedTuple):
    value: Any
    """Encoded as JSON; None for no content."""
    status: int = 200


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A request that was authenticated and is allowed."""

    services: AdminServices
    subject: Subject
    parameters: Mapping[str, str]
    """The named parts of the path."""
    body: bytes

    def read(self, kind: type[_T]) -> _T:
        """Decode the body. The error names a field, and no value: it may be a password."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except msgspec.ValidationError as error:
            raise AdminError(400, "invalid_request", f"the body is not as expected: {error}") from None
        except msgspec.DecodeError:
            raise AdminError(400, "invalid_request", "the body is not JSON") from None


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
    is_open_without_users: bool = False
    """Whether it is allowed from this machine without credentials while the cluster has no users."""


ROUTES: list[AdminRoute] = []


def route(
    method: str, path: str, *, needs: RouteNeed, owner: str = "", is_open_without_users: bool = False
) -> Callable[[AdminHandler], AdminHandler]:
    """Register a handler."""

    def register(handler: AdminHandler) -> AdminHandler:
        ROUTES.append(AdminRoute(method, path, handler, needs, owner, is_open_without_users))
        return handler

    return register
