"""What a link copies besides topics, between two real brokers: by choice, one way, and only what it has brought."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cluster.quota_changes import QuotaChanges
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.links import Link, LinkSync
from headrace.model.quotas import QuotaEntity
from headrace.testing import Broker
from tests.interop.linked import ask, image, link_to, services
from tests.waiting import until

FAST = {"link.refresh.interval.ms": 100}
SECURED = {"authorization.enable": True, "super.users": "User:ANONYMOUS"}


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker(settings=SECURED) as broker:
        yield broker


@pytest.fixture
def target() -> Iterator[Broker]:
    with Broker(settings={**FAST, **SECURED}) as broker:
        yield broker


def acl(name: str, permission: Permission = Permission.ALLOW, kind: ResourceType = ResourceType.TOPIC) -> Acl:
    return Acl(kind, PatternType.LITERAL, name, "User:alice", "*", AclOperation.READ, permission)


def run(broker: Broker, work: Callable[[], Any]) -> Any:
    async def begun() -> Any:
        return await work()

    assert broker._loop is not None
    return asyncio.run_coroutine_threadsafe(begun(), broker._loop).result(60)


def create_acls(broker: Broker, *acls: Acl) -> None:
    run(broker, lambda: services(broker).access.create_acls(acls))


def delete_acls(broker: Broker, *acls: Acl) -> None:
    run(broker, lambda: services(broker).access.delete_acls(acls))


def acls(broker: Broker) -> frozenset[Acl]:
    return image(broker).security.acls


def choose(target: Broker, **chosen: bool) -> None:
    def edit(link: Link) -> Link:
        return replace(link, sync=replace(link.sync, **chosen))

    ask(target, lambda links: links.alter("eu", edit))


def problems(target: Broker) -> dict[str, str]:
    return ask(target, lambda links: links.describe("eu")).status.sync_problems


def wait_for_mirror(source: Broker, target: Broker, topic: str) -> None:
    """Wait for a topic that is created now: a round of everything else has ended after it."""
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    until(lambda: topic in {mirror.source_topic for mirror in image(target).mirrors.values()})


def test_acls_follow_the_source_by_choice(source: Broker, target: Broker) -> None:
    create_acls(source, acl("orders"), acl("orders", Permission.DENY), acl("g", kind=ResourceType.GROUP), acl("both"))
    create_acls(target, acl("both"), acl("local"))
    ask(target, lambda links: links.create(link_to(source, topics=(".*",))))
    wait_for_mirror(source, target, "first")
    assert acls(target) == {acl("both"), acl("local")}, "off unless it is chosen"

    choose(target, acls=True)
    brought = {acl("orders"), acl("orders", Permission.DENY), acl("g", kind=ResourceType.GROUP)}
    until(lambda: acls(target) == brought | {acl("both"), acl("local")})
    assert len(image(target).copied) == 3

    delete_acls(source, acl("orders"), acl("both"))
    create_acls(source, acl("later"))
    kept = {acl("orders", Permission.DENY), acl("g", kind=ResourceType.GROUP), acl("later")}
    until(lambda: acls(target) == kept | {acl("both"), acl("local")})
    delete_acls(target, acl("later"))
    until(lambda: acl("later") in acls(target), "a rule that is deleted here only comes back")

    create_acls(target, acl("later"))
    delete_acls(source, acl("later"), acl("g", kind=ResourceType.GROUP))
    mine = {acl("orders", Permission.DENY), acl("both"), acl("local"), acl("later")}
    until(lambda: acls(target) == mine, "a rule that is also made here stays")
    assert problems(target) == {}

    target.restart()
    delete_acls(source, acl("orders", Permission.DENY))
    until(lambda: acls(target) == mine - {acl("orders", Permission.DENY)}, "what was brought is known after a restart")
    assert not image(target).copied


def set_quota(broker: Broker, entity: QuotaEntity, **values: float | None) -> None:
    run(broker, lambda: QuotaChanges(services(broker).metadata).alter(entity, list(values.items())))


def test_quotas_follow_the_source_by_choice(source: Broker, target: Broker) -> None:
    alice: QuotaEntity = (("user", "alice"),)
    bob: QuotaEntity = (("user", "bob"),)
    set_quota(source, alice, producer_byte_rate=1000, consumer_byte_rate=2000)
    set_quota(source, bob, producer_byte_rate=1)
    set_quota(target, alice, consumer_byte_rate=7)
    ask(target, lambda links: links.create(link_to(source, topics=("none",), sync=LinkSync(quotas=True))))
    here = {alice: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 7.0}, bob: {"producer_byte_rate": 1.0}}
    until(lambda: image(target).quotas == here)
    until(lambda: "consumer_byte_rate of user alice" in problems(target).get("quotas", ""))

    set_quota(source, alice, producer_byte_rate=3000, consumer_byte_rate=None)
    set_quota(source, bob, producer_byte_rate=None)
    until(lambda: image(target).quotas == {alice: {"producer_byte_rate": 3000.0, "consumer_byte_rate": 7.0}})
    until(lambda: problems(target) == {})
    target.restart()
    set_quota(source, alice, producer_byte_rate=None)
    until(lambda: image(target).quotas == {alice: {"consumer_byte_rate": 7.0}})
    assert not image(target).copied


def test_what_was_copied_stays_without_the_link(source: Broker, target: Broker) -> None:
    create_acls(source, acl("orders"), acl("*"))
    chosen = LinkSync(acls=True)
    ask(target, lambda links: links.create(link_to(source, topics=("none",), prefix="eu.", sync=chosen)))
    all_mirrors = replace(acl("eu."), pattern_type=PatternType.PREFIXED)
    until(lambda: acls(target) == {acl("eu.orders"), all_mirrors})
    choose(target, acls=False)
    delete_acls(source, acl("orders"))
    ask(target, lambda links: links.delete("eu"))
    assert acls(target) == {acl("eu.orders"), all_mirrors}
    assert not image(target).copied


def test_a_source_without_acls_stops_no_topic(target: Broker) -> None:
    with Broker() as source:
        ask(target, lambda links: links.create(link_to(source, topics=(".*",), sync=LinkSync(acls=True))))
        until(lambda: "authorization is off" in problems(target).get("acls", ""))
        assert ask(target, lambda links: links.describe("eu")).status.error == ""
        wait_for_mirror(source, target, "orders")
