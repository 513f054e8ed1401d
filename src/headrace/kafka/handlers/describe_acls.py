"""DescribeAcls (29), versions 1-3: list ACLs. There is no access control: SECURITY_DISABLED, as in Kafka."""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import DESCRIBE_CLUSTER
from headrace.kafka.unsecured import NO_ACCESS_CONTROL
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest
    from kio.schema.describe_acls.v3.response import DescribeAclsResponse

KEY = 29


@handles(KEY, 1, 3, needs=(DESCRIBE_CLUSTER,))
def describe_acls(ctx: Context, request: "DescribeAclsRequest") -> "DescribeAclsResponse":
    return make(
        ctx.schema.DescribeAclsResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.security_disabled,
        error_message=NO_ACCESS_CONTROL,
        resources=(),
    )
