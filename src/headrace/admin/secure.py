"""Turns authorization on, after an administrator exists: the last step of `headrace secure`.

Idempotent: an administrator that exists is left as it is, its password too, and authorization that is on stays on.
"""

from collections.abc import Mapping

import msgspec

from headrace.admin.errors import AdminError, unauthorized
from headrace.admin.login import verified_user
from headrace.admin.routes import ALTER_CLUSTER, AdminReply, AdminRequest, route
from headrace.model.acls import CLUSTER
from headrace.model.users import ANONYMOUS, principal_of
from headrace.security.authorizer import Authorizer
from headrace.security.sasl.scram import HASHES

_SETTING = "authorization.enable"


class SecureRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    admin: str
    password: str

    def __repr__(self) -> str:
        return f"SecureRequest(admin={self.admin!r})"


@route("POST", "/secure", needs=ALTER_CLUSTER, is_open_without_users=True)
async def secure(request: AdminRequest) -> AdminReply:
    wanted = request.read(SecureRequest)
    if not wanted.admin or ":" in wanted.admin:
        raise AdminError(400, "invalid_request", "the name of an administrator is not empty and has no colon")
    services, metadata = request.services, request.services.metadata
    was_on = metadata.settings.authorization_enable
    async with services.changing:
        if request.subject.principal == ANONYMOUS and services.has_users:
            raise unauthorized("another request has created an administrator: log in as that one")
        # Before a user is created: brokers that do not authenticate to each other refuse the setting.
        await metadata.alter_broker_settings(None, _turned_on, validate_only=True)
        is_created = await _ensure_admin(request, wanted)
        if not was_on:
            await metadata.alter_broker_settings(None, _turned_on)
    return AdminReply({"admin": wanted.admin, "created": is_created, "authorization": True, "was_secured": was_on})


def _turned_on(before: Mapping[str, str]) -> dict[str, str]:
    return {**before, _SETTING: "true"}


async def _ensure_admin(request: AdminRequest, wanted: SecureRequest) -> bool:
    """Create the administrator if it does not exist, and complete one whose creation was interrupted."""
    services, name = request.services, wanted.admin
    user = services.security.image.users.get(name)
    if user is None:
        await services.create_admin(name, wanted.password)
        return True
    settings = services.metadata.settings
    authorizer = Authorizer(services.security.image.acls, super_users=settings.super_user_principals)
    decision = authorizer.decide(principal_of(name), request.subject.host, ALTER_CLUSTER.operation, CLUSTER)
    if not decision.is_allowed:
        raise AdminError(
            409,
            "not_an_administrator",
            f"the user {name} exists and is no administrator: choose another name, or grant it with "
            f"`headrace acl add {name} --admin`",
        )
    is_complete = HASHES.keys() <= user.credentials.keys()
    if not is_complete and await verified_user(services, request.subject.host, name, wanted.password) is not None:
        await services.create_admin(name, wanted.password)
    return False
