"""The metadata store's schema of users, access keys and ACLs.

    /users/<name>                a user: SCRAM credentials by mechanism
    /access-keys/<id>            an access key: its user and secret
    /scram-secret                makes up the salts of users that do not exist
    /acls/<digest>               an ACL; the digest of its fields makes creating it again harmless

They need feature level `SECURITY_LEVEL`: older brokers would ignore them, and let everyone in.
"""

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from headrace.cluster.store import Change
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.errors import StartupError
from headrace.model.image import SecurityImage
from headrace.model.users import AccessKey, ScramCredential, User

USERS = "/users/"
ACCESS_KEYS = "/access-keys/"
ACLS = "/acls/"
SCRAM_SECRET = "/scram-secret"
PREFIXES = (USERS, ACCESS_KEYS, ACLS, SCRAM_SECRET)


class ScramRecord(msgspec.Struct, frozen=True):
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class UserRecord(msgspec.Struct, frozen=True):
    scram: dict[str, ScramRecord] = {}


class AccessKeyRecord(msgspec.Struct, frozen=True):
    user: str
    secret: str
    created_ms: int


class AclRecord(msgspec.Struct, frozen=True):
    resource_type: str
    pattern_type: str
    resource_name: str
    principal: str
    host: str
    operation: str
    permission: str


class SecretRecord(msgspec.Struct, frozen=True):
    secret: bytes


_encode = msgspec.json.Encoder(order="deterministic").encode
_user = msgspec.json.Decoder(UserRecord)
_access_key = msgspec.json.Decoder(AccessKeyRecord)
_acl = msgspec.json.Decoder(AclRecord)
_secret = msgspec.json.Decoder(SecretRecord)


def user_key(name: str) -> str:
    return USERS + name


def access_key_key(key_id: str) -> str:
    return ACCESS_KEYS + key_id


def acl_key(acl: Acl) -> str:
    return ACLS + sha256(encode_acl(acl)).hexdigest()[:32]


def encode_user(user: User) -> bytes:
    return _encode(
        UserRecord(
            {
                name: ScramRecord(each.salt, each.iterations, each.stored_key, each.server_key)
                for name, each in user.credentials.items()
            }
        )
    )


def encode_access_key(key: AccessKey) -> bytes:
    return _encode(AccessKeyRecord(key.user, key.secret, key.created_ms))


def encode_acl(acl: Acl) -> bytes:
    return _encode(
        AclRecord(
            acl.resource_type.name.lower(),
            acl.pattern_type.name.lower(),
            acl.resource_name,
            acl.principal,
            acl.host,
            acl.operation.name.lower(),
            acl.permission.name.lower(),
        )
    )


def encode_scram_secret(secret: bytes) -> bytes:
    return _encode(SecretRecord(secret))


def apply_security(security: SecurityImage, changes: Iterable[Change]) -> SecurityImage:
    """The image with these changes, whose keys begin with one of `PREFIXES`; the same object without changes."""
    changes = tuple(changes)
    if not changes:
        return security
    users, keys = dict(security.users), dict(security.access_keys)
    acls = {acl_key(acl): acl for acl in security.acls}
    scram_secret = security.scram_secret
    for change in changes:
        key, value = change.key, change.value
        if key.startswith(USERS):
            name = key[len(USERS) :]
            users.pop(name, None)
            if value is not None:
                users[name] = _decode_user(name, value)
        elif key.startswith(ACCESS_KEYS):
            key_id = key[len(ACCESS_KEYS) :]
            keys.pop(key_id, None)
            if value is not None:
                keys[key_id] = _decode_access_key(key_id, value)
        elif key == SCRAM_SECRET:
            scram_secret = b"" if value is None else _decode_secret(value)
        else:
            acls.pop(key, None)
            if value is not None:
                acls[key] = _decode_acl(key, value)
    return SecurityImage(users, keys, frozenset(acls.values()), scram_secret)


def _decode_user(name: str, value: bytes) -> User:
    try:
        record = _user.decode(value)
    except msgspec.DecodeError as error:
        raise _undecodable(user_key(name), error) from None
    return User(
        name,
        {
            mechanism: ScramCredential(mechanism, each.salt, each.iterations, each.stored_key, each.server_key)
            for mechanism, each in record.scram.items()
        },
    )


def _decode_access_key(key_id: str, value: bytes) -> AccessKey:
    try:
        record = _access_key.decode(value)
    except msgspec.DecodeError as error:
        raise _undecodable(access_key_key(key_id), error) from None
    return AccessKey(key_id, record.user, record.secret, record.created_ms)


def _decode_secret(value: bytes) -> bytes:
    try:
        return _secret.decode(value).secret
    except msgspec.DecodeError as error:
        raise _undecodable(SCRAM_SECRET, error) from None


def _decode_acl(key: str, value: bytes) -> Acl:
    try:
        record = _acl.decode(value)
        return Acl(
            ResourceType[record.resource_type.upper()],
            PatternType[record.pattern_type.upper()],
            record.resource_name,
            record.principal,
            record.host,
            AclOperation[record.operation.upper()],
            Permission[record.permission.upper()],
        )
    except (msgspec.DecodeError, KeyError) as error:
        raise _undecodable(key, error) from None


def _undecodable(key: str, error: Exception) -> StartupError:
    """An error without the value, which may be a secret."""
    return StartupError(f"the metadata under {key} cannot be decoded; was it edited by hand? {error}")
