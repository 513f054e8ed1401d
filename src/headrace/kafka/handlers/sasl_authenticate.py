"""SaslAuthenticate (36), versions 0-2: a token of the mechanism that SaslHandshake has chosen.

- A failure is SASL_AUTHENTICATION_FAILED after `connection.failed.authentication.delay.ms`, with the same text whatever
  its reason, and the connection is closed.
- The session ends when the credential does, and after `connections.max.reauth.ms` if that is set: its lifetime is in
  the answer from v1 on. After that the client must authenticate again (KIP-368).
- If too many clients log in at this moment, the connection is closed without an answer: clients try again, whereas a
  failure would be final.
- Without a handshake, and on a listener without SASL, it is ILLEGAL_SASL_STATE.
- Permissions: none.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.authentication import SASL_AUTHENTICATE_KEY as KEY
from headrace.kafka.authentication import Authentication
from headrace.kafka.dispatch import NO_ANSWER, Context, NoAnswer, Result, handles
from headrace.kafka.login import authenticate
from headrace.kafka.permissions import NOTHING
from headrace.kafka.unsecured import NO_AUTHENTICATION
from headrace.protocol.codec import make
from headrace.security.sasl.mechanism import Rejected, failure_text

if TYPE_CHECKING:
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse

_NO_HANDSHAKE = "SaslAuthenticate needs a SaslHandshake first"


@handles(KEY, 0, 2, needs=NOTHING)
def sasl_authenticate(
    ctx: Context, request: "SaslAuthenticateRequest"
) -> "Result[SaslAuthenticateResponse | NoAnswer]":
    authentication = ctx.peer.authentication
    if authentication is None:
        return _failed(ctx, ErrorCode.illegal_sasl_state, NO_AUTHENTICATION)
    if not authentication.is_in_exchange:
        authentication.fail("sent SaslAuthenticate without a SaslHandshake before it")
        return _failed(ctx, ErrorCode.illegal_sasl_state, _NO_HANDSHAKE)
    return _authenticate(ctx, authentication, bytes(request.auth_bytes))


async def _authenticate(
    ctx: Context, authentication: Authentication, token: bytes
) -> "SaslAuthenticateResponse | NoAnswer":
    answer = await authenticate(ctx.services, ctx.peer, authentication, token, ctx.header.client_id or "")
    if answer is None:
        return NO_ANSWER
    if isinstance(answer, Rejected):
        return _failed(ctx, ErrorCode.sasl_authentication_failed, failure_text(authentication.mechanism), answer.token)
    return make(
        ctx.schema.SaslAuthenticateResponse,
        error_code=ErrorCode.none,
        error_message=None,
        auth_bytes=answer.token,
        session_lifetime=timedelta(milliseconds=authentication.session_lifetime_ms),
    )


def _failed(ctx: Context, error: ErrorCode, message: str, token: bytes = b"") -> "SaslAuthenticateResponse":
    return make(
        ctx.schema.SaslAuthenticateResponse,
        error_code=error,
        error_message=message,
        auth_bytes=token,
        session_lifetime=timedelta(),
    )
