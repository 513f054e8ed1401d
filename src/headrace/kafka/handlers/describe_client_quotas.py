"""DescribeClientQuotas (48), versions 0-1: the quotas of users, clients and addresses. Always empty: not supported.

An entity type other than user, client-id and ip is UNSUPPORTED_VERSION, an unknown kind of match INVALID_REQUEST, as in
Kafka.

Permissions: DESCRIBE_CONFIGS on the cluster, else CLUSTER_AUTHORIZATION_FAILED.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import DESCRIBE_CLUSTER_CONFIGS, not_authorized
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
    from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse

KEY = 48
_ENTITY_TYPES = frozenset({"user", "client-id", "ip"})
_MATCHES = range(3)
"""The match types: exactly this name, the default, any name."""


@handles(KEY, 0, 1, needs=(DESCRIBE_CLUSTER_CONFIGS,))
def describe_client_quotas(ctx: Context, request: "DescribeClientQuotasRequest") -> "DescribeClientQuotasResponse":
    error, message = ErrorCode.none, None
    if not ctx.allows(DESCRIBE_CLUSTER_CONFIGS):
        error = ErrorCode.cluster_authorization_failed
        message = str(not_authorized(DESCRIBE_CLUSTER_CONFIGS))
    for component in request.components if error is ErrorCode.none else ():
        if component.entity_type not in _ENTITY_TYPES:
            error, message = ErrorCode.unsupported_version, f"there are no entities of type {component.entity_type}"
        elif component.match_type not in _MATCHES:
            error, message = ErrorCode.invalid_request, f"there is no match type {component.match_type}"
    return make(
        ctx.schema.DescribeClientQuotasResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        error_message=message,
        entries=() if error is ErrorCode.none else None,
    )
