"""SaslHandshake (17), versions 0-1: negotiate the SASL mechanism.

This broker does not authenticate clients: ILLEGAL_SASL_STATE, without mechanisms, as on a PLAINTEXT listener of Kafka.
A client that is configured for SASL can report that, where a closed connection would not say why.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import NOTHING
from headrace.protocol.codec import make

if TYPE_CHECKING:
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
    from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

KEY = 17


@handles(KEY, 0, 1, needs=NOTHING)
def sasl_handshake(ctx: Context, request: "SaslHandshakeRequest") -> "SaslHandshakeResponse":
    return make(ctx.schema.SaslHandshakeResponse, error_code=ErrorCode.illegal_sasl_state, mechanisms=())
