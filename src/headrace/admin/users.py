"""Users and their access keys. A key's secret is part of the answer that creates it, and of no other."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError
from headrace.admin.routes import ALTER_CLUSTER, DESCRIBE_CLUSTER, AdminReply, AdminRequest, route
from headrace.admin.services import AdminServices
from headrace.model.errors import UnknownAccessKey, UnknownUser
from headrace.model.users import AccessKey
from headrace.security.new_access_key import new_access_key
from headrace.security.sasl.scram import HASHES, new_credential

MAX_KEYS = 20
"""For each user, so that two are there while clients change from one to the next, and stores stay small."""


class UserEntry(msgspec.Struct, frozen=True):
    name: str
    mechanisms: list[str]
    keys: int


class KeyEntry(msgspec.Struct, frozen=True):
    id: str
    user: str
    created: str
    """ISO 8601 in UTC."""


class UserList(msgspec.Struct, frozen=True):
    users: list[UserEntry]


class KeyList(msgspec.Struct, frozen=True):
    keys: list[KeyEntry]


class NewKey(KeyEntry, frozen=True):
    secret: str


@route("GET", "/users", needs=DESCRIBE_CLUSTER, answer=UserList)
async def list_users(request: AdminRequest) -> AdminReply:
    """The users of the cluster."""
    image = request.services.security.image
    entries = [
        UserEntry(name, sorted(user.credentials), len(_keys(request.services, name)))
        for name, user in sorted(image.users.items())
    ]
    return AdminReply(UserList(entries))


@route("GET", "/users/{name:path}/keys", needs=DESCRIBE_CLUSTER, owner="name", answer=KeyList)
async def list_keys(request: AdminRequest) -> AdminReply:
    """The access keys of a user, without secrets."""
    return AdminReply(KeyList([_entry(key) for key in _keys(request.services, _user(request))]))


@route("POST", "/users/{name:path}/keys", needs=ALTER_CLUSTER, owner="name", answer=NewKey)
async def create_key(request: AdminRequest) -> AdminReply:
    """Create an access key; only this answer has its secret."""
    services, user = request.services, _user(request)
    async with services.changing:
        if len(_keys(services, user)) >= MAX_KEYS:
            raise AdminError(409, "too_many_keys", f"{user} has {MAX_KEYS} access keys: delete one first")
        key = new_access_key(user, services.clock.wall_ms())
        await services.access.create_access_key(key)
    return AdminReply(NewKey(key.key_id, user, _time(key), key.secret), 201)


@route("DELETE", "/users/{name:path}/keys/{id}", needs=ALTER_CLUSTER, owner="name")
async def delete_key(request: AdminRequest) -> AdminReply:
    """Delete an access key."""
    user, key_id = _user(request), request.parameters["id"]
    key = request.services.security.image.access_keys.get(key_id)
    if key is None or key.user != user:
        raise UnknownAccessKey(f"{user} has no access key {key_id}")
    await request.services.access.delete_access_key(key_id)
    return AdminReply(None, 204)


class NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=255)]
    password: Annotated[str, Meta(min_length=1, max_length=1024)]

    def __repr__(self) -> str:
        return f"NewUser(name={self.name!r})"


@route("POST", "/users", needs=ALTER_CLUSTER, body=NewUser, answer=UserEntry)
async def create_user(request: AdminRequest) -> AdminReply:
    """Create a user with a password, who may do nothing until rules are added."""
    wanted, services = request.read(NewUser), request.services
    async with services.changing:
        if wanted.name in services.security.image.users:
            raise AdminError(409, "user_exists", f"there is a user {wanted.name}: change the password instead")
        await _put_password(services, wanted.name, wanted.password)
    return AdminReply(UserEntry(wanted.name, sorted(HASHES), 0), 201)


class NewPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    password: Annotated[str, Meta(min_length=1, max_length=1024)]

    def __repr__(self) -> str:
        return "NewPassword()"


@route("PUT", "/users/{name:path}/password", needs=ALTER_CLUSTER, owner="name", body=NewPassword)
async def change_password(request: AdminRequest) -> AdminReply:
    """Give a user another password; its sessions and connections end."""
    await _put_password(request.services, _user(request), request.read(NewPassword).password)
    return AdminReply(None, 204)


async def _put_password(services: AdminServices, name: str, password: str) -> None:
    for mechanism in HASHES:
        try:
            credential = await asyncio.to_thread(new_credential, password, mechanism)
        except ValueError as error:
            raise AdminError(400, "invalid_password", f"the password of {name} cannot be used: {error}") from None
        await services.access.put_credential(name, credential)


@route("DELETE", "/users/{name:path}", needs=ALTER_CLUSTER)
async def delete_user(request: AdminRequest) -> AdminReply:
    """Delete a user with its access keys; its sessions and connections end. Its rules stay."""
    name = _user(request)
    if name == request.services.metadata.settings.inter_broker_user:
        raise AdminError(409, "user_of_brokers", f"brokers log in to each other as {name}")
    await request.services.access.delete_user(name)
    return AdminReply(None, 204)


def _user(request: AdminRequest) -> str:
    name = request.parameters["name"]
    if name not in request.services.security.image.users:
        raise UnknownUser(f"there is no user {name}")
    return name


def _keys(services: AdminServices, user: str) -> list[AccessKey]:
    found = [key for key in services.security.image.access_keys.values() if key.user == user]
    return sorted(found, key=lambda key: (key.created_ms, key.key_id))


def _entry(key: AccessKey) -> KeyEntry:
    return KeyEntry(key.key_id, key.user, _time(key))


def _time(key: AccessKey) -> str:
    return datetime.fromtimestamp(key.created_ms / 1000, UTC).isoformat(timespec="seconds")
