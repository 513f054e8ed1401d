"""DeleteAcls (31), versions 1-3: delete the ACLs that filters select.

- The result of each filter has the ACLs that it selected, which are deleted, and no longer decide, when the answer is
  sent. Filters are those of DescribeAcls; one that selects nothing succeeds.
- An unknown number for a type, an operation or a permission is INVALID_REQUEST for that filter.
- While authorization is off: SECURITY_DISABLED for each filter, as in Kafka.
- Permissions: ALTER on the cluster, else CLUSTER_AUTHORIZATION_FAILED for each filter.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.acl_entries import filter_of
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import ALTER_CLUSTER, not_authorized
from headrace.kafka.unsecured import NO_ACCESS_CONTROL
from headrace.model.acls import Acl
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
    from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse

KEY = 31
Selection = tuple[Acl, ...]


@handles(KEY, 1, 3, needs=(ALTER_CLUSTER,))
async def delete_acls(ctx: Context, request: "DeleteAclsRequest") -> "DeleteAclsResponse":
    if ctx.services.security.authorizer is None:
        refused = _result(ctx, (), ErrorCode.security_disabled, NO_ACCESS_CONTROL)
        return _answer(ctx, (refused,) * len(request.filters))
    if not ctx.allows(ALTER_CLUSTER):
        return _answer(ctx, (_failed(ctx, not_authorized(ALTER_CLUSTER)),) * len(request.filters))
    selected = [_selection_or_problem(ctx, wanted) for wanted in request.filters]
    failure: HeadraceError | None = None
    try:
        await ctx.services.access.delete_acls({acl for each in selected if isinstance(each, tuple) for acl in each})
    except HeadraceError as error:
        failure = error
    results = [failure if failure is not None and isinstance(each, tuple) else each for each in selected]
    return _answer(
        ctx, tuple(_result(ctx, each) if isinstance(each, tuple) else _failed(ctx, each) for each in results)
    )


def _selection_or_problem(ctx: Context, wanted: "DeleteAclsFilter") -> Selection | HeadraceError:
    try:
        return tuple(sorted(filter_of(wanted).select(ctx.services.metadata.image.security.acls)))
    except HeadraceError as problem:
        return problem


def _answer(ctx: Context, results: "tuple[DeleteAclsFilterResult, ...]") -> "DeleteAclsResponse":
    return make(ctx.schema.DeleteAclsResponse, throttle_time=NO_THROTTLE, filter_results=results)


def _failed(ctx: Context, failure: HeadraceError) -> "DeleteAclsFilterResult":
    return _result(ctx, (), error_code(failure), error_message(failure))


def _result(
    ctx: Context, deleted: Selection, error: ErrorCode = ErrorCode.none, message: str | None = None
) -> "DeleteAclsFilterResult":
    return make(
        ctx.schema.DeleteAclsFilterResult,
        error_code=error,
        error_message=message,
        matching_acls=tuple(_deleted(ctx, acl) for acl in deleted),
    )


def _deleted(ctx: Context, acl: Acl) -> "DeleteAclsMatchingAcl":
    return make(
        ctx.schema.DeleteAclsMatchingAcl,
        error_code=ErrorCode.none,
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
