"""Users and their access keys. A key's secret is part of the answer that creates it, and of no other."""

from datetime import UTC, datetime

import msgspec

from headrace.admin.errors import AdminError
from headrace.admin.routes import ALTER_CLUSTER, DESCRIBE_CLUSTER, AdminReply, AdminRequest, route
from headrace.admin.services import AdminServices
from headrace.model.errors import UnknownAccessKey, UnknownUser
from headrace.model.users import AccessKey
from headrace.security.new_access_key import new_access_key

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
