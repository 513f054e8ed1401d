"""ExpireDelegationToken (40), versions 1-2: expire a delegation token.

Tokens need an authenticated client, and this broker does not authenticate: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as on
a PLAINTEXT listener of Kafka.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import NOTHING
from headrace.kafka.unsecured import NO_TIME
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest
    from kio.schema.expire_delegation_token.v2.response import ExpireDelegationTokenResponse

KEY = 40


@handles(KEY, 1, 2, needs=NOTHING)
def expire_delegation_token(ctx: Context, request: "ExpireDelegationTokenRequest") -> "ExpireDelegationTokenResponse":
    return make(
        ctx.schema.ExpireDelegationTokenResponse,
        error_code=ErrorCode.delegation_token_request_not_allowed,
        expiry_timestamp=NO_TIME,
        throttle_time=NO_THROTTLE,
    )
