"""One step of a client's authentication: a token goes to its mechanism, the outcome to the connection and the audit.

The answer to a failure is delayed, so that passwords cannot be tried quickly, and says nothing about its reason.
"""

import asyncio
import logging

from headrace.kafka.authentication import Authentication
from headrace.kafka.dispatch import Peer
from headrace.kafka.services import Services
from headrace.model.users import principal_of
from headrace.security.authenticator import Login, LoginsBusy
from headrace.security.sasl.mechanism import Answer, Authenticated, Rejected

log = logging.getLogger(__name__)


async def authenticate(services: Services, peer: Peer, authentication: Authentication, token: bytes) -> Answer:
    """Answer a token; on success the peer has its new subject when this returns."""
    answer = authentication.settle(await _step(services, authentication, token))
    security, subject = services.security, peer.subject
    if isinstance(answer, Authenticated):
        peer.subject = subject._replace(principal=answer.principal, mechanism=authentication.mechanism)
        security.logged_in(
            Login(answer.principal, subject.host, authentication.mechanism, subject.listener, has_succeeded=True)
        )
    elif isinstance(answer, Rejected):
        claimed = principal_of(answer.claimed_user) if answer.claimed_user else ""
        log.info("%s failed to authenticate with %s: %s", peer.address, authentication.mechanism, answer.reason_for_log)
        security.logged_in(
            Login(
                claimed,
                subject.host,
                authentication.mechanism,
                subject.listener,
                has_succeeded=False,
                reason=answer.reason_for_log,
            )
        )
        await asyncio.sleep(services.settings.connection_failed_authentication_delay_ms / 1000)
    return answer


async def _step(services: Services, authentication: Authentication, token: bytes) -> Answer:
    authenticator = services.security.authenticator
    if not authentication.is_in_exchange:
        return Rejected("a token came without a handshake")
    if authenticator is None or not authentication.is_slow(token):
        return authentication.step(token)
    try:
        return await authenticator.compute(lambda: authentication.step(token))
    except LoginsBusy:
        return Rejected("too many clients log in at the same time")
