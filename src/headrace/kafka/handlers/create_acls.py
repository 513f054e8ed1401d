"""CreateAcls (30), versions 1-3: create ACLs.

- The ACLs of a request that are valid are created, and decide at once; one that exists already succeeds.
- INVALID_REQUEST with the reason: an unknown number, an empty name, an operation that the resource type does not have,
  a principal without a type, an invalid host.
- While authorization is off: SECURITY_DISABLED for each, as in Kafka.
- Permissions: ALTER on the cluster, else CLUSTER_AUTHORIZATION_FAILED for each.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.acl_entries import acl_of
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import ALTER_CLUSTER, not_authorized
from headrace.kafka.unsecured import NO_ACCESS_CONTROL
from headrace.model.acls import Acl
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
    from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse

KEY = 30


@handles(KEY, 1, 3, needs=(ALTER_CLUSTER,))
async def create_acls(ctx: Context, request: "CreateAclsRequest") -> "CreateAclsResponse":
    if ctx.services.security.authorizer is None:
        refused = _result(ctx, ErrorCode.security_disabled, NO_ACCESS_CONTROL)
        return _answer(ctx, (refused,) * len(request.creations))
    if not ctx.allows(ALTER_CLUSTER):
        return _answer(ctx, (_failed(ctx, not_authorized(ALTER_CLUSTER)),) * len(request.creations))
    wanted = [_acl_or_problem(creation) for creation in request.creations]
    failure: HeadraceError | None = None
    try:
        await ctx.services.access.create_acls({each for each in wanted if isinstance(each, Acl)})
    except HeadraceError as error:
        failure = error
    problems = [failure if isinstance(each, Acl) else each for each in wanted]
    return _answer(ctx, tuple(_failed(ctx, each) if each is not None else _result(ctx) for each in problems))


def _acl_or_problem(creation: "AclCreation") -> Acl | HeadraceError:
    try:
        return acl_of(creation)
    except HeadraceError as problem:
        return problem


def _answer(ctx: Context, results: "tuple[AclCreationResult, ...]") -> "CreateAclsResponse":
    return make(ctx.schema.CreateAclsResponse, throttle_time=NO_THROTTLE, results=results)


def _failed(ctx: Context, failure: HeadraceError) -> "AclCreationResult":
    return _result(ctx, error_code(failure), error_message(failure))


def _result(ctx: Context, error: ErrorCode = ErrorCode.none, message: str | None = None) -> "AclCreationResult":
    return make(ctx.schema.AclCreationResult, error_code=error, error_message=message)
