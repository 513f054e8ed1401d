"""Authenticates the clients of a broker: passwords and tokens by SASL, certificates by TLS.

Computing a password's hash takes milliseconds, so it is done in threads of its own, and for a bounded number of clients
at a time: a flood of logins takes neither memory nor the threads that serve other clients.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from headrace.model.users import principal_of
from headrace.security.sasl.mechanisms import Mechanisms
from headrace.security.tls.certificates import details_of_der
from headrace.security.tls.principal_rules import PrincipalRules

_THREADS = 2
_WAITING_MAX = 256

_T = TypeVar("_T")


class LoginsBusy(Exception):
    """More clients log in at this moment than a broker serves at a time."""


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


class Authenticator:
    def __init__(self, mechanisms: Mechanisms, rules: PrincipalRules) -> None:
        self.mechanisms = mechanisms
        self._rules = rules
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="login")
        self._waiting = 0

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def compute(self, step: Callable[[], _T]) -> _T:
        """Run a slow step in a thread; `LoginsBusy` if too many wait."""
        if self._waiting >= _WAITING_MAX:
            raise LoginsBusy
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, step)
        finally:
            self._waiting -= 1

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
