"""DescribeUserScramCredentials (50), version 0: the users with SCRAM credentials.

There are none: a request for all gets an empty list; a named user is RESOURCE_NOT_FOUND, and one that is named twice
DUPLICATE_RESOURCE, as in Kafka.
"""

from collections import Counter
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import DESCRIBE_CLUSTER
from headrace.kafka.unsecured import NO_USERS
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
    from kio.schema.describe_user_scram_credentials.v0.response import DescribeUserScramCredentialsResponse

KEY = 50


@handles(KEY, 0, 0, needs=(DESCRIBE_CLUSTER,))
def describe_user_scram_credentials(
    ctx: Context, request: "DescribeUserScramCredentialsRequest"
) -> "DescribeUserScramCredentialsResponse":
    schema = ctx.schema
    counts = Counter(user.name for user in request.users or ())
    return make(
        schema.DescribeUserScramCredentialsResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        results=tuple(
            make(
                schema.DescribeUserScramCredentialsResult,
                user=name,
                error_code=ErrorCode.duplicate_resource if count > 1 else ErrorCode.resource_not_found,
                error_message="a user must appear only once in a request" if count > 1 else NO_USERS,
                credential_infos=(),
            )
            for name, count in counts.items()
        ),
    )
