"""DescribeUserScramCredentials (50), version 0: the mechanisms and iterations of users' SCRAM credentials.

- No users in the request mean all. A named user without credentials is RESOURCE_NOT_FOUND, one that is named twice
  DUPLICATE_RESOURCE.
- Nothing that verifies a password is shown.
- Permissions: DESCRIBE on the cluster, else CLUSTER_AUTHORIZATION_FAILED.
"""

from collections import Counter
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import DESCRIBE_CLUSTER, not_authorized
from headrace.kafka.scram_mechanisms import NUMBERS
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
    from kio.schema.describe_user_scram_credentials.v0.response import (
        DescribeUserScramCredentialsResponse,
        DescribeUserScramCredentialsResult,
    )

KEY = 50


@handles(KEY, 0, 0, needs=(DESCRIBE_CLUSTER,))
def describe_user_scram_credentials(
    ctx: Context, request: "DescribeUserScramCredentialsRequest"
) -> "DescribeUserScramCredentialsResponse":
    schema = ctx.schema
    if not ctx.allows(DESCRIBE_CLUSTER):
        return make(
            schema.DescribeUserScramCredentialsResponse,
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.cluster_authorization_failed,
            error_message=str(not_authorized(DESCRIBE_CLUSTER)),
            results=(),
        )
    users = ctx.services.metadata.image.security.users
    counts = Counter(user.name for user in request.users or ()) or Counter(
        name for name in sorted(users) if users[name].credentials
    )
    return make(
        schema.DescribeUserScramCredentialsResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        results=tuple(_described(ctx, name, count) for name, count in counts.items()),
    )


def _described(ctx: Context, name: str, count: int) -> "DescribeUserScramCredentialsResult":
    schema = ctx.schema
    user = ctx.services.metadata.image.security.users.get(name)
    error, message = ErrorCode.none, None
    if count > 1:
        error, message = ErrorCode.duplicate_resource, "a user must appear only once in a request"
    elif user is None or not user.credentials:
        error, message = ErrorCode.resource_not_found, f"the user {name} has no SCRAM credentials"
    return make(
        schema.DescribeUserScramCredentialsResult,
        user=name,
        error_code=error,
        error_message=message,
        credential_infos=tuple(
            make(schema.CredentialInfo, mechanism=NUMBERS[mechanism], iterations=credential.iterations)
            for mechanism, credential in sorted(user.credentials.items())
        )
        if user is not None and error is ErrorCode.none
        else (),
    )
