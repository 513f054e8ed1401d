"""Gives what verifies the passwords of this cluster's users to a link of another cluster, and to no other client.

With a verifier one can try passwords without being seen, and pose as the server. So all of these are needed:

- authorization is on, and the link's user has logged in;
- that user has CLUSTER_ACTION on the cluster, or is a super user;
- the connection is encrypted, or is one of this machine.

It is in the audit log, as a denial is. A link that has everything already gets nothing.
"""

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from headrace.config.address import is_loopback
from headrace.kafka.dispatch import Context
from headrace.kafka.permissions import CLUSTER_ACTION
from headrace.mirror.reports import AskVerifiers
from headrace.mirror.user_plan import SourceVerifier, SourceVerifiers
from headrace.model.acls import CLUSTER_NAME
from headrace.model.errors import NotAuthorized
from headrace.model.links import MAX_COPIED
from headrace.model.users import ANONYMOUS, User
from headrace.replication.calls import answer_to, unknown_call
from headrace.security.audit.event import AuditClass

_decode = msgspec.msgpack.Decoder(AskVerifiers).decode
_encode = msgspec.msgpack.Encoder().encode


async def answer_link(ctx: Context, call: bytes) -> bytes:
    """The encoded answer to the call of a link; a refusal is one, too, in words."""
    try:
        asked = _decode(call)
    except msgspec.MsgspecError as error:
        return unknown_call(error)

    async def work() -> SourceVerifiers:
        _check(ctx)
        found = _verifiers(ctx.services.metadata.image.security.users.values())
        digest = sha256(_encode(found)).hexdigest()
        if digest == asked.known:
            return SourceVerifiers(digest)
        await _audit(ctx, len(found))
        return SourceVerifiers(digest, found)

    return await answer_to(work)


def _check(ctx: Context) -> None:
    subject = ctx.peer.subject
    if ctx.services.security.authorizer is None:
        raise NotAuthorized("authorization is off at the source, so anyone could have them: set authorization.enable")
    if subject.principal == ANONYMOUS:
        raise NotAuthorized("the link has not logged in at the source: give it a user with --user")
    if not ctx.allows(CLUSTER_ACTION):
        raise NotAuthorized(f"{subject.principal} needs the permission CLUSTER_ACTION on the cluster at the source")
    encrypted = {each.name for each in ctx.services.metadata.settings.kafka_listeners if each.uses_tls}
    if ctx.peer.listener not in encrypted and not is_loopback(subject.host):
        raise NotAuthorized("they are given over TLS only: the link must use a TLS listener of the source")


def _verifiers(users: Iterable[User]) -> list[SourceVerifier]:
    found = [
        SourceVerifier(user.name, each.mechanism, each.salt, each.iterations, each.stored_key, each.server_key)
        for user in sorted(users, key=lambda each: each.name)
        for _, each in sorted(user.credentials.items())
    ]
    if len({each.user for each in found}) > MAX_COPIED:
        raise NotAuthorized(f"the source has more than {MAX_COPIED:,} users: a link copies none of them")
    return found


async def _audit(ctx: Context, count: int) -> None:
    audit, subject = ctx.services.security.audit, ctx.peer.subject
    if audit.wants(AuditClass.ADMIN, subject.principal):
        await audit.room()
        audit.changed(
            subject,
            ctx.header.client_id or "",
            "ReadVerifiers",
            resource_type="CLUSTER",
            resource_name=CLUSTER_NAME,
            operation="CLUSTER_ACTION",
            details={"credentials": count},
        )
