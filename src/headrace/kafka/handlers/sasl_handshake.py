"""SaslHandshake (17), versions 0-1: agree on a mechanism of authentication.

This broker authenticates nobody. As on a PLAINTEXT listener of Kafka's the answer is ILLEGAL_SASL_STATE, without
mechanisms: a client that is set to SASL says so instead of meeting a closed connection.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Answer, Context, handles
from headrace.protocol.codec import make

KEY = 17


@handles(KEY, 0, 1)
def sasl_handshake(ctx: Context, request: Any) -> Answer:
    return make(ctx.schema.SaslHandshakeResponse, error_code=ErrorCode.illegal_sasl_state, mechanisms=())
