"""The requests by which a client logs in with SASL, and the check of their answers. Sans-IO.

SaslHandshake names the mechanism; SaslAuthenticate then carries the tokens of `security/sasl/client.py`.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.model.errors import LoginFailed
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import make

_HANDSHAKE, _HANDSHAKE_VERSION = 17, 1
_AUTHENTICATE, _AUTHENTICATE_VERSION = 36, 2


def handshake_request(mechanism: str) -> Any:
    schema = request_schema(_HANDSHAKE, _HANDSHAKE_VERSION)
    return make(schema.SaslHandshakeRequest, mechanism=mechanism)


def check_handshake(mechanism: str, answer: Any) -> None:
    """Raise `LoginFailed` if the broker does not offer the mechanism."""
    if answer.error_code is ErrorCode.unsupported_sasl_mechanism:
        offered = ", ".join(answer.mechanisms) or "none"
        raise LoginFailed(f"the SASL mechanism {mechanism} is not enabled there; enabled: {offered}")
    if answer.error_code is ErrorCode.illegal_sasl_state:
        raise LoginFailed("that listener does not use SASL: connect without a user, or to another port")
    if answer.error_code is not ErrorCode.none:
        raise LoginFailed(f"SaslHandshake failed: {answer.error_code.name}")


def authenticate_request(token: bytes) -> Any:
    schema = request_schema(_AUTHENTICATE, _AUTHENTICATE_VERSION)
    return make(schema.SaslAuthenticateRequest, auth_bytes=token)


def check_authenticate(answer: Any) -> bytes:
    """The token of the answer; `LoginFailed` if the broker has refused the login."""
    if answer.error_code is not ErrorCode.none:
        raise LoginFailed(answer.error_message or f"SaslAuthenticate failed: {answer.error_code.name}")
    return bytes(answer.auth_bytes)


def session_lifetime_s(answer: Any) -> float | None:
    """How long the login is valid; None for as long as the connection."""
    lifetime_s: float = answer.session_lifetime.total_seconds()
    return lifetime_s if lifetime_s > 0 else None
