"""CreateAcls (30), versions 1-3: create ACLs. There is no access control: SECURITY_DISABLED for each, as in Kafka."""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import ALTER_CLUSTER
from headrace.kafka.unsecured import NO_ACCESS_CONTROL
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.create_acls.v3.request import CreateAclsRequest
    from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse

KEY = 30


@handles(KEY, 1, 3, needs=(ALTER_CLUSTER,))
def create_acls(ctx: Context, request: "CreateAclsRequest") -> "CreateAclsResponse":
    schema = ctx.schema
    refused: AclCreationResult = make(
        schema.AclCreationResult, error_code=ErrorCode.security_disabled, error_message=NO_ACCESS_CONTROL
    )
    return make(schema.CreateAclsResponse, throttle_time=NO_THROTTLE, results=(refused,) * len(request.creations))
