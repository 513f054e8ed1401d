"""SaslHandshake (17), versions 0-1: the client chooses a SASL mechanism.

- After version 1 tokens come in SaslAuthenticate; after version 0 as frames without a header, as in Kafka 0.10.
- A mechanism that the listener does not offer is UNSUPPORTED_SASL_MECHANISM, with those that it does; the connection is
  closed after that.
- On an authenticated connection it begins another authentication (KIP-368), which must use the same mechanism.
- On a listener without SASL it is ILLEGAL_SASL_STATE, without mechanisms: a client that is configured for SASL can
  report that, where a closed connection would not say why.
- Permissions: none.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.authentication import SASL_HANDSHAKE_KEY as KEY
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import NOTHING
from headrace.protocol.codec import make

if TYPE_CHECKING:
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
    from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse


@handles(KEY, 0, 1, needs=NOTHING)
def sasl_handshake(ctx: Context, request: "SaslHandshakeRequest") -> "SaslHandshakeResponse":
    authentication = ctx.peer.authentication
    if authentication is None:
        return make(ctx.schema.SaslHandshakeResponse, error_code=ErrorCode.illegal_sasl_state, mechanisms=())
    error = ErrorCode.none
    if request.mechanism not in authentication.enabled:
        error = ErrorCode.unsupported_sasl_mechanism
        authentication.fail("asked for a SASL mechanism that its listener does not offer")
    elif not authentication.begin(request.mechanism, with_raw_tokens=ctx.version == 0):
        error = ErrorCode.illegal_sasl_state
    return make(ctx.schema.SaslHandshakeResponse, error_code=error, mechanisms=authentication.enabled)
