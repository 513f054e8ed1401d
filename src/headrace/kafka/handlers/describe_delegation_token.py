"""DescribeDelegationToken (41), versions 1-3: the delegation tokens that a client may see.

Tokens need an authenticated client, and this broker does not authenticate: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as on
a PLAINTEXT listener of Kafka.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import NOTHING
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.describe_delegation_token.v3.request import DescribeDelegationTokenRequest
    from kio.schema.describe_delegation_token.v3.response import DescribeDelegationTokenResponse

KEY = 41


@handles(KEY, 1, 3, needs=NOTHING)
def describe_delegation_token(
    ctx: Context, request: "DescribeDelegationTokenRequest"
) -> "DescribeDelegationTokenResponse":
    return make(
        ctx.schema.DescribeDelegationTokenResponse,
        error_code=ErrorCode.delegation_token_request_not_allowed,
        tokens=(),
        throttle_time=NO_THROTTLE,
    )
