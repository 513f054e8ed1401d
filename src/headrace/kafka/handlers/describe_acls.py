"""DescribeAcls (29), versions 1-3: list the ACLs that a filter selects, by resource.

- A filter's pattern type MATCH selects all ACLs about a resource of the name: literal, prefixed and wildcard ones.
- An unknown number for a type, an operation or a permission is INVALID_REQUEST.
- While authorization is off: SECURITY_DISABLED, as in Kafka.
- Permissions: DESCRIBE on the cluster, else CLUSTER_AUTHORIZATION_FAILED.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.acl_entries import filter_of
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import DESCRIBE_CLUSTER
from headrace.kafka.unsecured import NO_ACCESS_CONTROL
from headrace.model.acls import Acl, PatternType, ResourceType
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest
    from kio.schema.describe_acls.v3.response import DescribeAclsResource, DescribeAclsResponse

KEY = 29


@handles(KEY, 1, 3, needs=(DESCRIBE_CLUSTER,))
def describe_acls(ctx: Context, request: "DescribeAclsRequest") -> "DescribeAclsResponse":
    if ctx.services.security.authorizer is None:
        return _answer(ctx, (), ErrorCode.security_disabled, NO_ACCESS_CONTROL)
    try:
        ctx.require(DESCRIBE_CLUSTER)
        selected = sorted(filter_of(request).select(ctx.services.metadata.image.security.acls))
    except HeadraceError as failure:
        return _answer(ctx, (), error_code(failure), error_message(failure))
    return _answer(ctx, selected)


def _answer(
    ctx: Context, acls: Iterable[Acl], error: ErrorCode = ErrorCode.none, message: str | None = None
) -> "DescribeAclsResponse":
    return make(
        ctx.schema.DescribeAclsResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        error_message=message,
        resources=tuple(_resource(ctx, *pattern, tuple(some)) for pattern, some in groupby(acls, _pattern)),
    )


def _pattern(acl: Acl) -> tuple[ResourceType, PatternType, str]:
    return acl.resource_type, acl.pattern_type, acl.resource_name


def _resource(
    ctx: Context, kind: ResourceType, pattern_type: PatternType, name: str, acls: tuple[Acl, ...]
) -> "DescribeAclsResource":
    schema = ctx.schema
    return make(
        schema.DescribeAclsResource,
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern_type,
        acls=tuple(
            make(
                schema.AclDescription,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ),
    )
