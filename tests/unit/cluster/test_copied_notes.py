"""What links bring, in etcd: the largest transaction of rules with their notes is within etcd's bounds."""

from uuid import uuid4

from headrace.cluster.link_changes import LinkChanges
from headrace.cluster.metadata import Metadata
from headrace.config.broker import broker_settings
from headrace.mirror.acl_plan import AclChange
from headrace.mirror.copies import Copies
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.image import Endpoint
from headrace.model.links import Link, LinkSync
from headrace.testing.etcd import EtcdProcess

from .etcd_stores import NEEDS_ETCD, new_prefix, opened, run

pytestmark = NEEDS_ETCD

EU = Link("eu", uuid4(), ("a:9092",), sync=LinkSync(acls=True))
MANY = 130


def test_rules_and_their_notes_are_written_and_removed_together(shared: EtcdProcess) -> None:
    acls = [
        Acl(ResourceType.TOPIC, PatternType.LITERAL, f"t{n}", "User:a", "*", AclOperation.READ, Permission.ALLOW)
        for n in range(MANY)
    ]

    async def scenario() -> None:
        async with opened(shared.endpoint, prefix=new_prefix()) as store:
            metadata = Metadata(store, broker_settings({}), Endpoint("h", 1))
            await metadata.open()
            await LinkChanges(metadata).create(EU)
            copies = Copies(metadata)
            await copies.change_acls(EU, [AclChange(acl, False) for acl in acls])
            assert metadata.image.security.acls == set(acls)
            assert len(metadata.image.copied) == MANY
            await copies.change_acls(EU, [AclChange(acl, True) for acl in acls[1:]])
            assert metadata.image.security.acls == {acls[0]}
            assert len(metadata.image.copied) == 1
            await copies.release(EU.link_id)
            assert not metadata.image.copied
            await metadata.close()

    run(scenario)
