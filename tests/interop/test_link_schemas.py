"""Schemas that a link copies between two real brokers: with ids that consumers of mirrored records decode by."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, Producer

from headrace.model.links import Link, LinkSync
from headrace.security.subject import Subject
from headrace.testing import Broker
from tests.interop.linked import ask, link_to, services
from tests.interop.registry_client import ORDER, WITH_NOTE, Refusal, RegistryClient
from tests.waiting import until

FAST = {"link.refresh.interval.ms": 100}
SCHEMAS = LinkSync(schemas=True)
NEW_FIELD = {"name": "more", "type": "string", "default": ""}


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def target() -> Iterator[Broker]:
    with Broker(settings=FAST) as broker:
        yield broker


def registry(broker: Broker, context: str = "") -> RegistryClient:
    return RegistryClient(f"{broker.http_url}/registry{context}")


def problems(target: Broker) -> dict[str, str]:
    return ask(target, lambda links: links.describe("eu")).status.sync_problems


def choose(target: Broker, **chosen: bool) -> None:
    def edit(link: Link) -> Link:
        return replace(link, sync=replace(link.sync, **chosen))

    ask(target, lambda links: links.alter("eu", edit))


def listed(client: RegistryClient, path: str = "/subjects?deleted=true") -> Any:
    """The answer; None if it is refused."""
    try:
        return client.call("GET", path)
    except Refusal:
        return None


def produce(broker: Broker, topic: str, order: dict[str, Any], number: int) -> None:
    """Write a value as serializers do: a zero byte, the id of the schema, Avro."""
    data = BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(WITH_NOTE), order)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value=b"\0" + number.to_bytes(4, "big") + data.getvalue())
    assert producer.flush(30) == 0


def consume(broker: Broker, topic: str, client: RegistryClient) -> Any:
    """The first value of a topic, decoded by the schema that this registry has under its id."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        # An error until the mirror topic exists.
        value: Any = until(lambda: (message := consumer.poll(5)) and not message.error() and message.value())
    finally:
        consumer.close()
    found = client.call("GET", f"/schemas/ids/{int.from_bytes(value[1:5], 'big')}?subject={topic}-value")
    return fastavro.schemaless_reader(BytesIO(value[5:]), fastavro.parse_schema(json.loads(found["schema"])), None)


@contextmanager
def audited(target: Broker) -> Iterator[set[tuple[str, str, str]]]:
    """Who has done what with which subject, from now on."""
    seen: set[tuple[str, str, str]] = set()
    log = services(target).security.audit

    def changed(subject: Subject, _: str, action: str, *, resource_name: str, **__: Any) -> None:
        seen.add((subject.principal, action, resource_name))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "wants", lambda *_: True)
        patch.setattr(log, "changed", changed)
        yield seen


def test_registered_evolved_and_deleted_schemas_follow(source: Broker, target: Broker) -> None:
    there, here = registry(source), registry(target)
    there.register("padding", '"string"')
    first = there.register("orders-value", ORDER)
    path = "/subjects/orders-value/versions"
    with audited(target) as seen:
        ask(target, lambda links: links.create(link_to(source, topics=("orders",), sync=SCHEMAS)))
        until(lambda: listed(here, path) == [1])
        until(lambda: ("Link:eu", "SyncSchemas", "orders-value") in seen)
    assert here.call("GET", f"{path}/1") == there.call("GET", f"{path}/1")
    second = there.register("orders-value", WITH_NOTE)
    produce(source, "orders", {"id": 7, "note": "x"}, second)
    until(lambda: listed(here, path) == [1, 2])
    assert consume(target, "orders", here) == {"id": 7, "note": "x"}
    assert here.call("GET", f"/schemas/ids/{second}/versions") == [{"subject": "orders-value", "version": 2}]

    there.call("PUT", "/config/orders-value", {"compatibility": "FULL"})
    there.call("DELETE", "/subjects/orders-value/versions/1")
    until(lambda: listed(here, path) == [2])
    assert listed(here, f"{path}?deleted=true") == [1, 2]
    until(lambda: listed(here, "/config/orders-value") == {"compatibilityLevel": "FULL"})
    target.restart()
    there.call("DELETE", "/subjects/orders-value/versions/1?permanent=true")
    there.call("DELETE", "/subjects/padding")
    there.call("DELETE", "/subjects/padding?permanent=true")
    here = registry(target)
    until(lambda: listed(here) == ["orders-value"])
    assert listed(here, f"{path}?deleted=true") == [2]
    assert listed(here, f"/schemas/ids/{first}") is None
    until(lambda: problems(target) == {})

    with pytest.raises(Refusal, match="comes over the link eu") as refused:
        here.register("orders-value", {**WITH_NOTE, "fields": [*WITH_NOTE["fields"], NEW_FIELD]})
    assert refused.value.code == 42205
    with pytest.raises(Refusal, match="register the schema in the source cluster"):
        here.register("mine", '"long"')
    choose(target, schemas=False)
    until(lambda: listed(here, "/headrace/highest-ids")["highestIds"]["."] >= second + 100)
    assert here.register("mine", '"long"') > second + 100, "no id that the source may have given out since"
    assert listed(here, path) == [2], "what was copied stays"


def test_with_a_prefix_ids_are_those_of_a_context(source: Broker, target: Broker) -> None:
    mine = registry(target).register("mine", '"string"')
    theirs = registry(source).register("orders-value", WITH_NOTE)
    assert mine == theirs
    produce(source, "orders", {"id": 7, "note": "x"}, theirs)
    ask(target, lambda links: links.create(link_to(source, topics=("orders",), prefix="eu.", sync=SCHEMAS)))
    until(lambda: listed(registry(target)) == [":.eu:eu.orders-value", "mine"])
    assert consume(target, "eu.orders", registry(target, "/contexts/.eu")) == {"id": 7, "note": "x"}
    assert registry(target).register("mine", '"string"') == mine
    assert registry(target).register("more", '"long"') == mine + 1, "other contexts are not held"


def test_ids_that_clash_are_said_and_others_copied(source: Broker, target: Broker) -> None:
    registry(target).register("mine", '"string"')
    registry(source).register("orders-value", ORDER)
    registry(source).register("orders-value", WITH_NOTE)
    ask(target, lambda links: links.create(link_to(source, topics=("none",), sync=SCHEMAS)))
    until(lambda: "the id 1 of version 1 of orders-value" in problems(target).get("schemas", ""))
    assert listed(registry(target), "/subjects/orders-value/versions") == [2]
    assert registry(target).call("GET", "/schemas/ids/1")["schema"] == '"string"'


def test_a_source_without_a_registry_stops_no_topic(source: Broker, target: Broker) -> None:
    ask(target, lambda links: links.create(link_to(source, topics=("none",), sync=SCHEMAS)))
    until(lambda: "the source has no topic _schemas" in problems(target).get("schemas", ""))
    assert ask(target, lambda links: links.describe("eu")).status.error == ""
    registry(source).register("orders-value", ORDER)
    until(lambda: listed(registry(target)) == ["orders-value"], "it appears later")
    until(lambda: problems(target) == {})
