"""CreateDelegationToken (38), versions 1-3: create a delegation token.

Tokens need an authenticated client, and this broker does not authenticate: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as on
a PLAINTEXT listener of Kafka.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import NOTHING
from headrace.kafka.unsecured import ANONYMOUS, NO_TIME, USER
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.create_delegation_token.v3.request import CreateDelegationTokenRequest
    from kio.schema.create_delegation_token.v3.response import CreateDelegationTokenResponse

KEY = 38


@handles(KEY, 1, 3, needs=NOTHING)
def create_delegation_token(ctx: Context, request: "CreateDelegationTokenRequest") -> "CreateDelegationTokenResponse":
    return make(
        ctx.schema.CreateDelegationTokenResponse,
        error_code=ErrorCode.delegation_token_request_not_allowed,
        principal_type=USER,
        principal_name=ANONYMOUS,
        token_requester_principal_type=USER,
        token_requester_principal_name=ANONYMOUS,
        issue_timestamp=NO_TIME,
        expiry_timestamp=NO_TIME,
        max_timestamp=NO_TIME,
        token_id="",
        hmac=b"",
        throttle_time=NO_THROTTLE,
    )
