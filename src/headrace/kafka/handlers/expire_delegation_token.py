"""ExpireDelegationToken (40), versions 1-2: end a delegation token.

Tokens belong to clients that have authenticated, and here none does: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as on a
PLAINTEXT listener of Kafka's.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Answer, Context, handles
from headrace.kafka.unsecured import NO_TIME
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

KEY = 40


@handles(KEY, 1, 2)
def expire_delegation_token(ctx: Context, request: Any) -> Answer:
    return make(
        ctx.schema.ExpireDelegationTokenResponse,
        error_code=ErrorCode.delegation_token_request_not_allowed,
        expiry_timestamp=NO_TIME,
        throttle_time=NO_THROTTLE,
    )
