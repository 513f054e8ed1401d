"""Users, access keys and ACLs in the metadata store."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.cluster.access import AccessControl
from headrace.cluster.layout_security import acl_key
from headrace.cluster.metadata import Metadata
from headrace.cluster.sqlite import SqliteStore
from headrace.config.broker import broker_settings
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.errors import AccessKeyExists, StartupError, UnknownAccessKey, UnknownUser
from headrace.model.image import ClusterImage, Endpoint, SecurityImage
from headrace.model.users import AccessKey, ScramCredential
from headrace.runtime.clock import SystemClock

ACL = Acl(ResourceType.TOPIC, PatternType.PREFIXED, "orders-", "User:alice", "*", AclOperation.READ, Permission.ALLOW)
CREDENTIAL = ScramCredential("SCRAM-SHA-256", b"salt", 4096, b"stored", b"server")
KEY = AccessKey("HR1", "alice", "planted-secret", 5)


def run(tmp_path: Path, use: Callable[[AccessControl, Metadata], Awaitable[None]]) -> SecurityImage:
    """The image after `use`, as another start of the broker reads it from the store."""

    async def both() -> SecurityImage:
        for step in (use, None):
            store = await SqliteStore.open(tmp_path / "metadata.sqlite", SystemClock())
            metadata = Metadata(store, broker_settings({}), Endpoint("h", 1))
            await metadata.open()
            if step is not None:
                await step(AccessControl(metadata), metadata)
            security = metadata.image.security
            await metadata.close()
            await store.close()
        return security

    return asyncio.run(both())


def test_everything_is_stored_and_deleted_with_its_user(tmp_path: Path) -> None:
    async def fill(access: AccessControl, metadata: Metadata) -> None:
        await access.put_credential("alice", CREDENTIAL)
        await access.create_access_key(KEY)
        await access.create_acls([ACL, ACL])

    stored = run(tmp_path, fill)
    assert dict(stored.users["alice"].credentials) == {"SCRAM-SHA-256": CREDENTIAL}
    assert stored.access_keys == {"HR1": KEY}
    assert stored.acls == {ACL}

    async def empty(access: AccessControl, metadata: Metadata) -> None:
        await access.delete_user("alice")
        await access.delete_acls([ACL])

    assert run(tmp_path, empty) == SecurityImage()


def test_what_does_not_exist_is_an_error(tmp_path: Path) -> None:
    async def use(access: AccessControl, metadata: Metadata) -> None:
        with pytest.raises(UnknownUser):
            await access.delete_user("alice")
        with pytest.raises(UnknownUser):
            await access.create_access_key(KEY)
        with pytest.raises(UnknownAccessKey):
            await access.delete_access_key("HR1")
        await access.put_credential("alice", CREDENTIAL)
        with pytest.raises(UnknownUser):
            await access.delete_credential("alice", "SCRAM-SHA-512")
        await access.create_access_key(KEY)
        with pytest.raises(AccessKeyExists):
            await access.create_access_key(KEY)
        await access.delete_credential("alice", "SCRAM-SHA-256")
        assert not metadata.image.security.users

    run(tmp_path, use)


def test_a_change_is_in_force_when_the_call_returns(tmp_path: Path) -> None:
    async def use(access: AccessControl, metadata: Metadata) -> None:
        seen: list[bool] = []

        def changed(old: ClusterImage, new: ClusterImage) -> None:
            seen.append(old.security is not new.security)

        metadata.subscribe(changed)
        await access.create_acls([ACL])
        assert metadata.image.security.acls == {ACL}
        await metadata.create_topic("orders")
        assert seen == [True, False]

    run(tmp_path, use)


def test_all_brokers_share_one_secret_for_salts(tmp_path: Path) -> None:
    secrets: list[bytes] = []

    async def use(access: AccessControl, metadata: Metadata) -> None:
        secrets.append(await access.scram_secret())

    assert run(tmp_path, use).scram_secret == secrets[0]
    run(tmp_path, use)
    assert secrets[0] == secrets[1]
    assert len(secrets[0]) == 32


def test_a_damaged_record_is_named_without_its_value(tmp_path: Path) -> None:
    async def use(access: AccessControl, metadata: Metadata) -> None:
        await access.put_credential("alice", CREDENTIAL)
        await access.create_access_key(KEY)

    run(tmp_path, use)

    async def damage() -> None:
        from headrace.cluster.store import Put

        store = await SqliteStore.open(tmp_path / "metadata.sqlite", SystemClock())
        await store.commit([], [Put("/access-keys/HR1", b'{"user": 5, "secret": "planted-secret"}')])
        await store.close()

    asyncio.run(damage())
    with pytest.raises(StartupError) as caught:
        run(tmp_path, use)
    assert "/access-keys/HR1" in str(caught.value)
    assert "planted" not in str(caught.value)


def test_equal_acls_have_one_key() -> None:
    assert acl_key(ACL) == acl_key(Acl(*[getattr(ACL, name) for name in ACL.__slots__]))
