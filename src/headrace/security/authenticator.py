"""Authenticates the clients of a broker: passwords and tokens by SASL, certificates by TLS."""

from dataclasses import dataclass

from headrace.model.users import principal_of
from headrace.security.login_queue import LoginQueue
from headrace.security.sasl.mechanisms import Mechanisms
from headrace.security.tls.certificates import details_of_der
from headrace.security.tls.principal_rules import PrincipalRules


@dataclass(frozen=True, slots=True)
class Login:
    """The outcome of one authentication, for the audit log."""

    principal: str
    """The principal, or the one that the client claimed to be; empty if it claimed none."""
    host: str
    mechanism: str
    listener: str
    has_succeeded: bool
    reason: str = ""
    """Why it failed; never shown to the client."""
    client_id: str = ""


class Authenticator:
    def __init__(self, mechanisms: Mechanisms, rules: PrincipalRules) -> None:
        self.mechanisms = mechanisms
        self._rules = rules
        self.slow_steps = LoginQueue()

    def close(self) -> None:
        self.slow_steps.close()

    def principal_of_certificate(self, der: bytes, now_s: float) -> str | None:
        """The principal of a verified certificate; None if it has expired, or no mapping rule matches."""
        try:
            found = details_of_der(der)
        except ValueError:
            return None
        # A resumed TLS 1.2 session does not verify the certificate again.
        if found.expires_at_s < now_s:
            return None
        name = self._rules.user_name(found.subject)
        return None if name is None else principal_of(name)
