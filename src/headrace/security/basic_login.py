"""Login over HTTP with a user's password: HTTP Basic (RFC 7617), as the administration API and the SDK's queues use it.

The password is verified like one of SASL PLAIN, in the threads of the authenticator.
"""

import asyncio
import binascii
from base64 import b64decode
from collections.abc import Awaitable, Callable

from headrace.model.users import User, principal_of
from headrace.security.authenticator import Authenticator, Login
from headrace.security.security import Security
from headrace.security.subject import Subject

MECHANISM = "BASIC"
MAX_CREDENTIALS_BYTES = 4096


def parse_basic(header: str) -> tuple[str, str] | None:
    """The name and the password in an `Authorization` header; None if it is another one, or malformed."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != MECHANISM.lower() or len(encoded) > MAX_CREDENTIALS_BYTES:
        return None
    try:
        name, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if colon and name and password else None


async def verify_password(
    authenticator: Authenticator, security: Security, host: str, name: str, password: str
) -> User | None:
    """The user, if this is its password now. `LoginsBusy` if too many clients log in at the same time."""
    passwords = authenticator.mechanisms.passwords
    if passwords.is_cached(name, password):
        return passwords.verify(name, password)
    user = await authenticator.slow_steps.run(host, lambda: passwords.verify(name, password))
    # The password may have been changed meanwhile.
    return user if user is not None and security.user(user.name) == user else None


class BasicLogin:
    """Logs clients in by their `Authorization` header; reports each failure, and delays its answer."""

    def __init__(
        self, security: Security, authenticator: Callable[[], Awaitable[Authenticator]], delay_ms: Callable[[], int]
    ) -> None:
        self._security = security
        self._authenticator = authenticator
        self._delay_ms = delay_ms

    async def __call__(self, client: Subject, header: str) -> User | None:
        """The user of a client that was anonymous; None if it is refused, whatever the reason. Raises `LoginsBusy`."""
        credentials = parse_basic(header)
        user, name, reason = None, "", "malformed credentials"
        if credentials is not None:
            name, reason = credentials[0], "no such user, or a wrong password"
            user = await verify_password(await self._authenticator(), self._security, client.host, *credentials)
        if user is None:
            text = f"{client.host} failed to authenticate over HTTP: {reason}"
            self._security.client_failures.note(client.host, text)
            self._security.logged_in(
                Login(
                    principal_of(name) if name else "",
                    client.host,
                    MECHANISM,
                    client.listener,
                    has_succeeded=False,
                    reason=reason,
                )
            )
            await asyncio.sleep(self._delay_ms() / 1000)
        return user
