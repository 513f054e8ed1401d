"""Changes to users, access keys and ACLs: each is a transaction of the metadata store, in force when it returns."""

from collections.abc import Callable, Collection, Mapping
from secrets import token_bytes

from headrace.cluster import layout_security as layout
from headrace.cluster.layout_links import copied_key
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import DeleteKey, Put, Write
from headrace.model.acls import Acl
from headrace.model.errors import AccessKeyExists, UnknownAccessKey, UnknownUser, UnsupportedFeature
from headrace.model.features import SECURITY_LEVEL, needed
from headrace.model.users import AccessKey, ScramCredential, User

_SECRET_BYTES = 32
_KEYS_PER_COMMIT = 50
"""etcd allows 128 operations in a transaction."""


class AccessControl:
    """Users, access keys and ACLs of the cluster, through this broker's metadata."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def scram_secret(self) -> bytes:
        """The secret that makes up salts of users that do not exist: the same on every broker."""

        async def attempt() -> bytes:
            security = self._metadata.image.security
            if security.scram_secret:
                return security.scram_secret
            secret = token_bytes(_SECRET_BYTES)
            if self._metadata.image.feature_level < SECURITY_LEVEL:
                return secret
            key = layout.SCRAM_SECRET
            await self._metadata.commit([self._metadata.unchanged(key)], [Put(key, layout.encode_scram_secret(secret))])
            return secret

        return await self._metadata.decide(attempt)

    async def put_credential(self, name: str, credential: ScramCredential) -> None:
        """Set a user's credential for one mechanism; creates the user."""
        await self._change_user(name, lambda old: {**old, credential.mechanism: credential}, creates=True)

    def check_credential(self, name: str, mechanism: str) -> None:
        """Raise `UnknownUser` unless the user has a credential for the mechanism, `UnsupportedFeature` if none can."""
        self._check_level()
        user = self._metadata.image.security.users.get(name)
        if user is None or mechanism not in user.credentials:
            raise UnknownUser(f"the user {name} has no credential for {mechanism}")

    async def delete_credential(self, name: str, mechanism: str) -> None:
        """Remove a user's credential for one mechanism, and with the last one the user. Raises `UnknownUser`."""

        def without(old: Mapping[str, ScramCredential]) -> Mapping[str, ScramCredential]:
            if mechanism not in old:
                raise UnknownUser(f"the user {name} has no credential for {mechanism}")
            return {other: each for other, each in old.items() if other != mechanism}

        await self._change_user(name, without, creates=False)

    async def delete_user(self, name: str) -> None:
        """Remove a user with all credentials and access keys. ACLs stay: they may be prepared for a later user."""

        async def attempt() -> None:
            security = self._metadata.image.security
            if name not in security.users:
                raise UnknownUser(f"there is no user {name}")
            await self._delete_with_keys(name)

        await self._metadata.decide(attempt)

    async def create_access_key(self, key: AccessKey) -> None:
        """Store a new access key of an existing user. Raises `UnknownUser` or `AccessKeyExists`."""

        async def attempt() -> None:
            self._check_level()
            security = self._metadata.image.security
            if key.user not in security.users:
                raise UnknownUser(f"there is no user {key.user}")
            if key.key_id in security.access_keys:
                raise AccessKeyExists(f"there is an access key {key.key_id} already")
            unchanged = self._metadata.unchanged
            store_key = layout.access_key_key(key.key_id)
            await self._metadata.commit(
                [unchanged(layout.user_key(key.user)), unchanged(store_key)],
                [Put(store_key, layout.encode_access_key(key))],
            )

        await self._metadata.decide(attempt)

    async def delete_access_key(self, key_id: str) -> None:
        """Remove an access key: requests signed with it are refused from now on. Raises `UnknownAccessKey`."""

        async def attempt() -> None:
            if key_id not in self._metadata.image.security.access_keys:
                raise UnknownAccessKey(f"there is no access key {key_id}")
            store_key = layout.access_key_key(key_id)
            await self._metadata.commit([self._metadata.unchanged(store_key)], [DeleteKey(store_key)])

        await self._metadata.decide(attempt)

    async def create_acls(self, acls: Collection[Acl]) -> None:
        """Store ACLs; those that exist are left as they are. They no longer belong to a link that has brought them."""

        async def attempt() -> None:
            self._check_level()
            known = self._metadata.image.security.acls
            new: list[Write] = [Put(layout.acl_key(acl), layout.encode_acl(acl)) for acl in acls if acl not in known]
            await self._write([*new, *self._without_links(acls)])

        await self._metadata.decide(attempt)

    async def delete_acls(self, acls: Collection[Acl]) -> None:
        """Remove ACLs; those that do not exist are ignored."""

        async def attempt() -> None:
            known = self._metadata.image.security.acls
            removed: list[Write] = [DeleteKey(layout.acl_key(acl)) for acl in acls if acl in known]
            await self._write([*removed, *self._without_links(acls)])

        await self._metadata.decide(attempt)

    def _without_links(self, acls: Collection[Acl]) -> list[DeleteKey]:
        """Deletes the notes of links about ACLs."""
        copied = self._metadata.image.copied
        keys = map(layout.acl_key, acls) if copied else ()
        return [DeleteKey(copied_key(key)) for key in keys if key in copied]

    async def _delete_with_keys(self, name: str) -> None:
        """Remove a user and its access keys: a later user of the same name must not inherit them."""
        access_keys = self._metadata.image.security.access_keys.values()
        writes: list[Write] = [DeleteKey(layout.access_key_key(key.key_id)) for key in access_keys if key.user == name]
        last = len(writes) - len(writes) % _KEYS_PER_COMMIT
        await self._write(writes[:last])
        key = layout.user_key(name)
        ended = [DeleteKey(key), *self._without_link(key)]
        await self._metadata.commit([self._metadata.unchanged(key)], [*writes[last:], *ended])

    def _without_link(self, key: str) -> list[DeleteKey]:
        """Deletes the note of a link about a user: it belongs to this cluster from now on."""
        return [DeleteKey(copied_key(key))] if key in self._metadata.image.copied else []

    async def _write(self, writes: Collection[Write]) -> None:
        ordered = list(writes)
        for first in range(0, len(ordered), _KEYS_PER_COMMIT):
            await self._metadata.commit([], ordered[first : first + _KEYS_PER_COMMIT])

    async def _change_user(
        self,
        name: str,
        edit: Callable[[Mapping[str, ScramCredential]], Mapping[str, ScramCredential]],
        *,
        creates: bool,
    ) -> None:
        async def attempt() -> None:
            self._check_level()
            user = self._metadata.image.security.users.get(name)
            if user is None and not creates:
                raise UnknownUser(f"there is no user {name}")
            credentials = edit({} if user is None else user.credentials)
            if not credentials:
                await self._delete_with_keys(name)
                return
            key = layout.user_key(name)
            user_record = layout.encode_user(User(name, credentials))
            writes: list[Write] = [Put(key, user_record), *self._without_link(key)]
            await self._metadata.commit([self._metadata.unchanged(key)], writes)

        await self._metadata.decide(attempt)

    def _check_level(self) -> None:
        level = self._metadata.image.feature_level
        if level < SECURITY_LEVEL:
            raise UnsupportedFeature(needed("access control", SECURITY_LEVEL, level))
