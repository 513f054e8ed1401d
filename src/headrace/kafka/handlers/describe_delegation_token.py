"""DescribeDelegationToken (41), versions 1-3: the tokens that a client may see.

Tokens belong to clients that have authenticated, and here none does: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as on a
PLAINTEXT listener of Kafka's.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Answer, Context, handles
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

KEY = 41


@handles(KEY, 1, 3)
def describe_delegation_token(ctx: Context, request: Any) -> Answer:
    return make(
        ctx.schema.DescribeDelegationTokenResponse,
        error_code=ErrorCode.delegation_token_request_not_allowed,
        tokens=(),
        throttle_time=NO_THROTTLE,
    )
