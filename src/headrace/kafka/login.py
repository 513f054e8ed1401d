"""One step of a client's authentication: a token goes to its mechanism, the outcome to the connection and the audit.

The answer to a failure is delayed, so that passwords cannot be tried quickly, and says nothing about its reason.
"""

import asyncio

from headrace.kafka.authentication import Authentication
from headrace.kafka.dispatch import NO_ANSWER, Context, NoAnswer, Peer, Raw
from headrace.kafka.services import Services
from headrace.model.users import USER_TYPE, principal_of
from headrace.security.authenticator import Login
from headrace.security.login_queue import LoginsBusy
from headrace.security.sasl.mechanism import Answer, Authenticated, Rejected

_CHANGED = "the credential was changed during the exchange"


async def authenticate(
    services: Services, peer: Peer, authentication: Authentication, token: bytes, client_id: str = ""
) -> Answer | None:
    """Answer a token; on success the peer has its new subject when this returns. None if there is to be no answer."""
    security, subject = services.security, peer.subject
    try:
        step = await _step(services, subject.host, authentication, token)
    except LoginsBusy:
        authentication.fail("could not log in: too many clients do at the same time")
        return None
    answer = authentication.settle(step)
    if isinstance(answer, Authenticated):
        peer.set_subject(subject._replace(principal=answer.principal, mechanism=authentication.mechanism))
        security.logged_in(
            Login(
                answer.principal,
                subject.host,
                authentication.mechanism,
                subject.listener,
                has_succeeded=True,
                client_id=client_id,
            )
        )
    elif isinstance(answer, Rejected):
        claimed = principal_of(answer.claimed_user) if answer.claimed_user else ""
        security.logged_in(
            Login(
                claimed,
                subject.host,
                authentication.mechanism,
                subject.listener,
                has_succeeded=False,
                reason=answer.reason_for_log,
                client_id=client_id,
            )
        )
        await asyncio.sleep(services.settings.connection_failed_authentication_delay_ms / 1000)
    return answer


async def answer_raw_token(ctx: Context, authentication: Authentication, token: bytes) -> Raw | NoAnswer:
    """Answer a token after SaslHandshake v0, which has no header; a failure gets no answer."""
    answer = await authenticate(ctx.services, ctx.peer, authentication, token)
    return NO_ANSWER if answer is None or isinstance(answer, Rejected) else Raw((answer.token,))


async def _step(services: Services, host: str, authentication: Authentication, token: bytes) -> Answer:
    security = services.security
    authenticator = security.authenticator
    if not authentication.is_in_exchange:
        return Rejected("a token came without a handshake")
    if authenticator is None or not authentication.is_slow(token):
        return authentication.step(token)
    users = security.image.users
    answer = await authenticator.slow_steps.run(host, lambda: authentication.step(token))
    if isinstance(answer, Authenticated):
        name = answer.principal.removeprefix(f"{USER_TYPE}:")
        # Connections of a user are closed when it changes; this one is not known as the user's yet.
        if security.user(name) != users.get(name):
            return Rejected(_CHANGED, claimed_user=name)
    return answer
