"""DeleteAcls (31), versions 1-3: delete ACLs. There is no access control: SECURITY_DISABLED for each filter, as in
Kafka."""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import ALTER_CLUSTER
from headrace.kafka.unsecured import NO_ACCESS_CONTROL
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.delete_acls.v3.request import DeleteAclsRequest
    from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult, DeleteAclsResponse

KEY = 31


@handles(KEY, 1, 3, needs=(ALTER_CLUSTER,))
def delete_acls(ctx: Context, request: "DeleteAclsRequest") -> "DeleteAclsResponse":
    schema = ctx.schema
    refused: DeleteAclsFilterResult = make(
        schema.DeleteAclsFilterResult,
        error_code=ErrorCode.security_disabled,
        error_message=NO_ACCESS_CONTROL,
        matching_acls=(),
    )
    return make(schema.DeleteAclsResponse, throttle_time=NO_THROTTLE, filter_results=(refused,) * len(request.filters))
