"""Begins an exchange by the name of its mechanism."""

from collections.abc import Callable, Collection, Sequence

from headrace.model.users import User
from headrace.security.sasl.mechanism import OAUTHBEARER, PLAIN, Exchange
from headrace.security.sasl.oauthbearer import OAuthBearerExchange, TokenVerifier
from headrace.security.sasl.plain import PasswordVerifier, PlainExchange
from headrace.security.sasl.scram import DEFAULT_ITERATIONS, HASHES, CredentialLookup, ScramExchange
from headrace.security.sasl.shapes import CredentialShape


class Mechanisms:
    """The mechanisms of a broker; a listener enables some of them by name.

    `secret` makes up the salts of users that do not exist. All brokers of a cluster use the same one: a salt that
    differs between two brokers would show that the user does not exist.
    """

    def __init__(
        self,
        users: Callable[[str], User | None],
        secret: bytes,
        *,
        iterations: int = DEFAULT_ITERATIONS,
        shapes: Callable[[str], Collection[CredentialShape]] = lambda mechanism: (),
        tokens: TokenVerifier | None = None,
    ) -> None:
        """`shapes` are those of the users' credentials (`CredentialShapes`)."""
        self._lookup = CredentialLookup(users, secret, iterations, shapes)
        self.passwords = PasswordVerifier(self._lookup)
        """For PLAIN, and for HTTP Basic."""
        self._tokens = tokens

    @property
    def names(self) -> Sequence[str]:
        """The mechanisms that can be begun; OAUTHBEARER only where tokens can be verified."""
        return (*HASHES, PLAIN, *((OAUTHBEARER,) if self._tokens is not None else ()))

    def begin(self, name: str) -> Exchange | None:
        """A new exchange, or None for a mechanism that does not exist here."""
        if name in HASHES:
            return ScramExchange(name, self._lookup)
        if name == PLAIN:
            return PlainExchange(self.passwords)
        if name == OAUTHBEARER and self._tokens is not None:
            return OAuthBearerExchange(self._tokens)
        return None
