"""SaslAuthenticate (36), versions 0-2: authenticate with the mechanism of SaslHandshake.

This broker does not authenticate clients: ILLEGAL_SASL_STATE, as on a PLAINTEXT listener of Kafka.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import NOTHING
from headrace.kafka.unsecured import NO_AUTHENTICATION
from headrace.protocol.codec import make

if TYPE_CHECKING:
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse

KEY = 36


@handles(KEY, 0, 2, needs=NOTHING)
def sasl_authenticate(ctx: Context, request: "SaslAuthenticateRequest") -> "SaslAuthenticateResponse":
    return make(
        ctx.schema.SaslAuthenticateResponse,
        error_code=ErrorCode.illegal_sasl_state,
        error_message=NO_AUTHENTICATION,
        auth_bytes=b"",
        session_lifetime=timedelta(),
    )
