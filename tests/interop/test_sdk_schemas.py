"""Typed messages of the SDK with the registry of a real broker."""

import asyncio
import dataclasses
import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import headrace.aio
from headrace import Client, ClientError, InvalidMessage, Outgoing, SchemaFailed
from headrace.testing import Broker
from headrace.testing.etcd import free_port
from tests.waiting import until


@dataclasses.dataclass
class Order:
    id: int
    item: str
    at: datetime.datetime | None = None


@dataclasses.dataclass
class PlainOrder:
    id: int
    item: str


class OrderStruct(msgspec.Struct):
    id: int
    item: str


class OrderModel(pydantic.BaseModel):
    id: int
    item: str


class OrderDict(TypedDict):
    id: int
    item: str


AT = datetime.datetime(2026, 11, 18, 1, 2, 3, tzinfo=datetime.UTC)
TEA = Order(1, "tea", AT)
PROTO = (
    'syntax = "proto3"; package shop; message Other { bool x = 1; } message Order { int64 id = 1; string item = 2; }'
)


@pytest.fixture(scope="module")
def served() -> Iterator[Broker]:
    with Broker(settings={"num.partitions": 1}) as broker:
        yield broker


@pytest.fixture
def client(served: Broker) -> Iterator[Client]:
    with Client(served.bootstrap) as one:
        yield one


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of its own for each test."""
    return "".join(each if each.isalnum() else "." for each in request.node.name)


@pytest.mark.parametrize("in_header", [False, True], ids=["v0", "v1"])
@pytest.mark.parametrize("form", ["avro", "json-schema", "protobuf"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (PlainOrder, PlainOrder(1, "tea")),
        (OrderStruct, OrderStruct(1, "tea")),
        (OrderModel, OrderModel(id=1, item="tea")),
        (OrderDict, {"id": 1, "item": "tea"}),
        (dict, {"id": 1, "item": "tea"}),
    ],
    ids=["dataclass", "Struct", "pydantic", "TypedDict", "dict"],
)
def test_every_kind_of_value_comes_back(
    client: Client, topic: str, kind: Any, value: Any, form: str, in_header: bool
) -> None:
    schema = PROTO if form == "protobuf" else OrderDict
    client.schemas.register(f"{topic}-value", schema, format=form)
    name = "Order" if form == "protobuf" else None
    serializer = client.schemas.serializer(f"{topic}-value", message=name, in_header=in_header)
    client.publish(topic, value, schema=serializer)
    (message,) = client.replay(topic, type=kind)
    assert message.value == value
    assert (message.header("__value_schema_id") is not None) is in_header
    assert serializer.decode(message.payload, message.headers)["item"] == "tea"


def test_the_first_schema_is_that_of_the_value_and_later_ones_are_registered_by_hand(
    client: Client, topic: str
) -> None:
    subject = f"{topic}-value"
    client.publish(topic, TEA, schema=subject)
    assert client.schemas.latest(subject).version == 1
    wider = dataclasses.make_dataclass("Order", [("id", int), ("item", str), ("city", str, "York")])
    with pytest.raises(InvalidMessage, match=r"does not fit version 1 of .*: city: Order has no such field"):
        client.publish(topic, wider(2, "cake"), schema=subject)
    assert client.schemas.register(subject, wider).version == 2
    client.publish(topic, wider(2, "cake", "Bath"), schema=subject)
    # An old reader with a new writer, and a new one with an old writer.
    assert [each.value for each in client.replay(topic, type=Order)] == [TEA, Order(2, "cake")]
    assert [each.value for each in client.replay(topic, type=wider)] == [wider(1, "tea"), wider(2, "cake", "Bath")]


@pytest.mark.parametrize("in_header", [False, True])
def test_typed_keys(client: Client, topic: str, in_header: bool) -> None:
    keys = client.schemas.serializer(f"{topic}-key", in_header=in_header)
    client.publish(topic, OrderStruct(1, "tea"), schema=f"{topic}-value", key=PlainOrder(7, "cup"), key_schema=keys)
    client.publish(topic, "no key", key_schema=keys)
    client.publish(topic, "a key without a schema", key=b"7")
    typed, none, plain = client.replay(topic, type=OrderStruct)
    assert (typed.value, client.schemas.decode_key(typed, PlainOrder)) == (OrderStruct(1, "tea"), PlainOrder(7, "cup"))
    assert keys.decode(typed.key, typed.headers, is_key=True)["item"] == "cup"
    assert (none.key, client.schemas.decode_key(none), plain.key) == (None, None, b"7")
    assert client.schemas.decode_key(plain, int) == 7, "as JSON"
    assert {name for name, _ in typed.headers} >= ({"__key_schema_id"} if in_header else set())
    with pytest.raises(InvalidMessage):
        client.publish(topic, "x", key={"id": "no number"}, key_schema=keys)
    with pytest.raises(TypeError, match="key_schema= encodes any value"):
        client.publish(topic, "x", key=7)


def test_a_change_that_breaks_readers_is_refused(client: Client, topic: str) -> None:
    client.schemas.register(topic, Order)
    with pytest.raises(SchemaFailed, match="incompatible") as raised:
        client.schemas.register(topic, dataclasses.make_dataclass("Order", [("number", int)]))
    assert raised.value.code == 40901


def test_a_dict_has_no_schema_of_its_own(client: Client, topic: str) -> None:
    with pytest.raises(SchemaFailed, match=f"headrace schema register {topic}-value FILE"):
        client.publish(topic, {"id": 1}, schema=f"{topic}-value")


def test_messages_of_generated_classes(client: Client, topic: str) -> None:
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    made = file.message_type.add(name="Order")
    made.field.add(name="id", number=1, type=3, label=1)
    made.field.add(name="item", number=2, type=9, label=1)
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    client.schemas.register(f"{topic}-value", PROTO, format="protobuf")
    client.publish(topic, kind(id=1, item="tea"), schema=f"{topic}-value")
    (message,) = client.replay(topic, type=kind)
    assert (message.value.id, message.value.item) == (1, "tea")
    assert client.schemas.decode(message) == {"id": 1, "item": "tea"}
    # The second message of the file, so its place is more than a zero byte.
    assert message.payload is not None
    assert message.payload[5:7] == b"\x02\x02"


def test_schemas_that_refer_to_others(client: Client, topic: str) -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "price", "type": "long"}]}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "line", "type": "Line"}]}
    first = client.schemas.register(f"{topic}-line", json.dumps(line))
    references = [("Line", first.subject, first.version)]
    client.schemas.register(f"{topic}-value", json.dumps(outer), references=references)
    client.publish(topic, {"line": {"price": 3}}, schema=f"{topic}-value")
    (message,) = client.replay(topic, type=dict)
    assert message.value == {"line": {"price": 3}}


def test_what_a_handler_cannot_read_is_dead_lettered_with_the_reason(client: Client, topic: str) -> None:
    subject, dead = f"{topic}-value", f"{topic}.dead"
    client.publish(topic, TEA, schema=subject)
    schema_id = client.schemas.latest(subject).id.to_bytes(4, "big")
    for garbage in (b"\x00" + schema_id + b"\x02", b'{"id": "one"}', b"\x05", b"\x00\x00"):
        client.publish(topic, garbage)
    client.publish(topic, {"id": 2, "item": "plain JSON"})
    client.publish(topic, Order(3, "cake"), schema=subject)
    seen: list[Order] = []

    @client.handler(topic, group=topic, type=Order, dead_letter=dead)
    def handle(message: Any) -> Outgoing:
        seen.append(message.value)
        return Outgoing(f"{topic}.bills", {"id": message.value.id, "item": "bill"}, schema=subject)

    with client.running():
        until(lambda: len(seen) == 3, "the messages that can be read")
    assert seen == [TEA, Order(2, "plain JSON"), Order(3, "cake")]
    reasons = [each.header("headrace-reason") or "" for each in client.replay(dead)]
    for reason, words in zip(
        reasons,
        ("item: the bytes end before", "not of the type Order: Expected `int`", "not JSON", "too short for the id"),
        strict=True,
    ):
        assert words in reason
    assert [each.header("headrace-attempts") for each in client.replay(dead)] == ["1"] * 4
    assert [each.value.id for each in client.replay(f"{topic}.bills", type=Order)] == [1, 2, 3]


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_result_that_does_not_fit_its_schema_dead_letters_its_message(
    client: Client, topic: str, delivery: Any
) -> None:
    client.schemas.register(f"{topic}-bill", Order)
    client.publish(topic, {"id": "wrong"})
    client.publish(topic, {"id": 7})

    @client.handler(topic, group=topic, delivery=delivery, type=dict, dead_letter=f"{topic}.dead")
    def handle(message: Any) -> Outgoing:
        return Outgoing(f"{topic}.bills", {"id": message.value["id"], "item": "x"}, schema=f"{topic}-bill")

    with client.running():
        until(lambda: len(list(client.replay(f"{topic}.bills"))) == 1, "the result")
        until(lambda: len(list(client.replay(f"{topic}.dead"))) == 1, "the dead letter")
    (letter,) = client.replay(f"{topic}.dead")
    assert "id: 'wrong' is a value of str, not of long" in (letter.header("headrace-reason") or "")


def test_a_stream_gives_the_value_or_its_error(client: Client, topic: str) -> None:
    client.publish(topic, TEA, schema=f"{topic}-value", key="k")
    client.publish(topic, b"\xff", key="k")
    client.publish(topic, None, schema=f"{topic}-value", key="k")
    with client.consume(topic, group=topic, type=Order) as orders:
        first, second, third = next(orders), next(orders), next(orders)
    assert first.value == TEA
    assert first.value is first.value
    with pytest.raises(InvalidMessage):
        _ = second.value
    assert third.value is None


def test_bodies_of_queues(client: Client, topic: str) -> None:
    queue = client.queue(topic).create(max_receives=3, dead_letter=f"{topic}.dead")
    queue.send(TEA, schema=f"{topic}-value")
    queue.send(TEA)
    queue.send("nonsense")
    queue.send_many([TEA, TEA], schema=f"{topic}-value")
    (first,) = queue.receive(type=Order)
    assert first.value == TEA
    first.ack()
    seen: list[Order] = []

    @queue.worker(type=Order)
    def work(message: Any) -> None:
        seen.append(message.value)

    with client.running():
        until(lambda: len(seen) == 3 and client.queue(f"{topic}.dead").peek(), "the messages")
    assert seen == [TEA] * 3
    (letter,) = client.queue(f"{topic}.dead").peek()
    assert (letter.text, "not JSON" in str(letter.reason)) == ("nonsense", True)


def test_asyncio(served: Broker, topic: str) -> None:
    async def run() -> None:
        async with headrace.aio.Client(served.bootstrap) as client:
            schema = await client.schemas.register(f"{topic}-value", Order)
            assert (await client.schemas.latest(schema.subject)).id == schema.id
            header = client.schemas.serializer(schema.subject, in_header=True)
            await client.publish(topic, TEA, schema=schema.subject)
            await client.publish(topic, TEA, schema=header)
            found = [each async for each in client.replay(topic, type=Order)]
            assert [each.value for each in found] == [TEA, TEA]
            assert (await client.schemas.decode(found[0]))["id"] == 1
            queue = client.queue(topic + ".work")
            await queue.create()
            await queue.send(TEA, schema=schema.subject)
            (message,) = await queue.receive(type=Order)
            assert message.value == TEA
            await message.ack()
            seen = []

            @client.handler(topic, group=topic, type=Order)
            async def handle(message: Any) -> None:
                seen.append(message.value)
                if len(seen) == 2:
                    client.stop()

            await client.run()
            assert seen == [TEA, TEA]

    asyncio.run(run())


def test_keys_with_asyncio(served: Broker, topic: str) -> None:
    async def run() -> Any:
        async with headrace.aio.Client(served.bootstrap) as client:
            await client.publish(topic, "tea", key=PlainOrder(7, "cup"), key_schema=f"{topic}-key")
            return [await client.schemas.decode_key(each, PlainOrder) async for each in client.replay(topic)]

    assert asyncio.run(run()) == [PlainOrder(7, "cup")]


def test_a_broker_that_does_not_answer_is_passed_over(served: Broker, topic: str) -> None:
    addresses = f"http://127.0.0.1:{free_port()},{served.http_url}"
    with Client(served.bootstrap, http=addresses) as client:
        assert client.schemas.register(topic, Order).version == 1
        assert client.schemas.latest(topic).version == 1


def test_a_broker_without_a_registry_is_named(topic: str) -> None:
    with (
        Broker(settings={"http.listen": "off"}) as broker,
        Client(broker.bootstrap) as client,
        pytest.raises(ClientError, match=r"serves schemas: start one with http\.listen"),
    ):
        client.publish(topic, TEA, schema=f"{topic}-value")


def test_a_secured_broker(topic: str) -> None:
    with (
        Broker(tls=True, users={"alice": "correct horse"}) as broker,
        Client(broker.bootstrap, user="alice", password="correct horse", tls=broker.ca_file) as client,
    ):
        client.publish(topic, OrderStruct(1, "tea"), schema=f"{topic}-value")
        (message,) = client.replay(topic, type=OrderStruct)
        assert message.value == OrderStruct(1, "tea")
        with pytest.raises(SchemaFailed, match="not found"):
            client.schemas.latest(f"{topic}-key")


def test_decimals_and_times_come_back(client: Client, topic: str) -> None:
    kind = dataclasses.make_dataclass("Bill", [("total", Decimal), ("due", datetime.date)])
    value = kind(Decimal("12.50"), datetime.date(2026, 12, 1))
    client.publish(topic, value, schema=f"{topic}-value")
    (message,) = client.replay(topic, type=kind)
    assert message.value == value
