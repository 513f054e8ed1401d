"""How a client proves who it is, and how it verifies the broker: SASL and TLS on the client's side.

One type for the SDK (librdkafka), for `headrace.wire` and for HTTPS. Secrets are never part of a `repr`.
"""

import base64
import binascii
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.model.errors import SettingsError

OAUTHBEARER, PLAIN = "OAUTHBEARER", "PLAIN"
DEFAULT_MECHANISM = "SCRAM-SHA-512"
CLIENT_MECHANISMS = (DEFAULT_MECHANISM, "SCRAM-SHA-256", PLAIN, OAUTHBEARER)
_UNKNOWN_LIFETIME_S = 300.0
"""A token without an expiry time that we can read is fetched again after this time."""

Token = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Credentials:
    """The identity of a client and its trust in brokers; `Credentials()` is a connection without either.

    A user with a password, or a token, is sent by SASL; a certificate (`cert_file`) by TLS. `tls` may be None: then it
    is used if a file for it is given. `SettingsError` for a combination that makes no sense.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    mechanism: str = ""
    """By default SCRAM-SHA-512, and OAUTHBEARER with a token."""
    token: Token | None = field(default=None, repr=False)
    """Called for a token whenever a connection needs one."""
    tls: bool | None = None
    ca_file: str = ""
    """The authorities that the broker's certificate is verified with; by default those of the system."""
    cert_file: str = ""
    key_file: str = ""
    """By default the key is in `cert_file`."""
    key_password: str = field(default="", repr=False)
    verify_hostname: bool = True

    def __post_init__(self) -> None:
        mechanism = self.mechanism.upper() or (
            OAUTHBEARER if self.token is not None else DEFAULT_MECHANISM if self.user or self.password else ""
        )
        object.__setattr__(self, "mechanism", mechanism)
        if mechanism and mechanism not in CLIENT_MECHANISMS:
            raise SettingsError(f"there is no mechanism {mechanism}: use one of {', '.join(CLIENT_MECHANISMS)}")
        self._check_identity(mechanism)
        if self.key_file and not self.cert_file:
            raise SettingsError("a key for TLS is given without its certificate: give both")
        if self.tls is False and (self.ca_file or self.cert_file):
            raise SettingsError("a certificate or CA file is given, but TLS is off: turn it on, or leave the files out")
        if self.tls is None and mechanism in (PLAIN, OAUTHBEARER) and not (self.ca_file or self.cert_file):
            secret = "password" if mechanism == PLAIN else "token"
            raise SettingsError(
                f"{mechanism} sends the {secret} itself: use TLS (tls=true or a CA file), or say tls=false to send it "
                "unencrypted"
            )

    def _check_identity(self, mechanism: str) -> None:
        if mechanism == OAUTHBEARER:
            if self.token is None:
                raise SettingsError("OAUTHBEARER needs a token")
            if self.password:
                raise SettingsError("a password and a token are given: choose one")
        elif self.token is not None:
            raise SettingsError(f"a token is for OAUTHBEARER, not for {mechanism}")
        elif mechanism and not self.user:
            raise SettingsError(f"{mechanism} needs a user: a password is given without one")
        elif mechanism and not self.password:
            raise SettingsError(f"the user {self.user} has no password: give one, or leave the user out")

    @property
    def uses_tls(self) -> bool:
        return bool(self.ca_file or self.cert_file) if self.tls is None else self.tls

    @property
    def uses_sasl(self) -> bool:
        return bool(self.mechanism)

    @property
    def is_plain(self) -> bool:
        """True for a connection without TLS and without SASL."""
        return not (self.uses_tls or self.uses_sasl)

    @property
    def security_protocol(self) -> str:
        """Kafka's name for it, such as `SASL_SSL`."""
        transport = "SSL" if self.uses_tls else "PLAINTEXT"
        return f"SASL_{transport}" if self.uses_sasl else transport

    def librdkafka(self) -> dict[str, Any]:
        """The settings of librdkafka; empty for a plain connection."""
        if self.is_plain:
            return {}
        found: dict[str, Any] = {"security.protocol": self.security_protocol}
        if self.mechanism:
            found["sasl.mechanism"] = self.mechanism
        if self.token is not None:
            found["oauth_cb"] = _TokenCallback(self.token)
        elif self.mechanism:
            found |= {"sasl.username": self.user, "sasl.password": self.password}
        if self.uses_tls:
            texts = {
                "ssl.ca.location": self.ca_file,
                "ssl.certificate.location": self.cert_file,
                "ssl.key.location": self.key_file or self.cert_file,
                "ssl.key.password": self.key_password,
            }
            found |= {name: text for name, text in texts.items() if text}
            found["ssl.endpoint.identification.algorithm"] = "https" if self.verify_hostname else "none"
        return found


NO_CREDENTIALS = Credentials()


class _TokenCallback:
    """librdkafka's `oauth_cb`: a token, and when it expires, in seconds since the epoch."""

    def __init__(self, token: Token) -> None:
        self._token = token

    def __call__(self, config: str) -> tuple[str, float]:
        token = self._token()
        return token, token_expiry_s(token)


def token_expiry_s(token: str) -> float:
    """When a JWT expires; for other tokens a few minutes from now."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return time.time() + _UNKNOWN_LIFETIME_S
