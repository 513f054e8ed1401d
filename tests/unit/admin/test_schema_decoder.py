"""Messages that are decoded by their schemas, where the schema is known and the person may see it."""

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer

from headrace.model.users import ANONYMOUS
from headrace.schemas.payload.frames import VALUE_HEADER, header_value, prefix
from headrace.testing import Broker

from .api import ADMIN, BOB, call, secured

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "sku", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "blob", "type": "bytes"},
        ],
    }
)
ORDER_BYTES = b"\x06tea" + b"\x00" + b"\x04\xff\x00"
ORDER_VALUE = {"sku": "tea", "at": "1970-01-01T00:00:00Z", "blob": "/wA="}
PROTO = 'syntax = "proto3"; message A { string a = 1; } message B { message C { int32 n = 1; } }'


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


def register(broker: Broker, subject: str, schema: str, schema_type: str = "AVRO", account: Any = None) -> int:
    body = {"schema": schema, "schema_type": schema_type}
    answer = call(broker.http_url, "POST", f"/subjects/{subject}/versions", account, body)
    assert answer.status == 201, answer
    return int(answer.value["id"])


def produce(broker: Broker, topic: str, *messages: tuple[bytes, bytes | None, Sequence[tuple[str, bytes]]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value, key, headers in messages:
        producer.produce(topic, value, key, headers=list(headers), partition=0)
    assert producer.flush(60) == 0


def browse(broker: Broker, topic: str, account: Any = None) -> list[dict[str, Any]]:
    answer = call(broker.http_url, "GET", f"/topics/{topic}/messages?from=earliest", account)
    assert answer.status == 200, answer
    return list(answer.value["items"])


def create(broker: Broker, topic: str, account: Any = None) -> None:
    assert call(broker.http_url, "POST", "/topics", account, {"name": topic}).status == 201


def test_the_three_types_are_decoded(broker: Broker) -> None:
    create(broker, "shop")
    avro = register(broker, "shop-value", ORDER)
    proto = register(broker, "shop-proto", PROTO, "PROTOBUF")
    limits = register(broker, "shop-json", json.dumps({"type": "object", "required": ["n"]}), "JSON")
    key = register(broker, "shop-key", '"string"')
    produce(
        broker,
        "shop",
        (prefix(avro) + ORDER_BYTES, prefix(key) + b"\x06abc", ()),
        (prefix(proto, (1, 0)) + b"\x08\x07", None, ()),
        (prefix(limits) + b'{"n": 1.50}', None, ()),
    )
    first, second, third = browse(broker, "shop")
    assert json.loads(first["value"]) == ORDER_VALUE
    assert (first["value_encoding"], first["schema_id"]) == ("avro", avro)
    assert (first["subject"], first["version"]) == ("shop-value", 1)
    assert (first["key"], first["key_encoding"], first["key_schema_id"]) == ('"abc"', "avro", key)
    assert (second["value_encoding"], json.loads(second["value"])) == ("protobuf", {"n": 7})
    assert (third["value_encoding"], third["value"]) == ("json-schema", '{\n  "n": 1.50\n}')
    lines = call(broker.http_url, "GET", "/topics/shop/download").value.splitlines()
    assert json.loads(json.loads(lines[0])["value"]) == ORDER_VALUE


def test_the_schema_in_a_header(broker: Broker) -> None:
    create(broker, "heads")
    register(broker, "heads-value", ORDER)
    summary = call(broker.http_url, "GET", "/subjects/heads-value/versions/1").value["summary"]
    produce(broker, "heads", (ORDER_BYTES, None, [(VALUE_HEADER, header_value(UUID(summary["guid"])))]))
    (item,) = browse(broker, "heads")
    assert (json.loads(item["value"]), item["schema_id"]) == (ORDER_VALUE, summary["id"])
    # Two subjects have this schema: the one of the topic is shown.
    assert item["subject"] == "heads-value"


def test_what_does_not_fit_or_is_not_known_is_shown_as_it_is(broker: Broker) -> None:
    create(broker, "unfit")
    avro = register(broker, "unfit-value", ORDER)
    produce(broker, "unfit", (prefix(avro) + b"\xff\xff", None, ()), (prefix(987_654) + ORDER_BYTES, None, ()))
    short, unknown = browse(broker, "unfit")
    assert (short["value_encoding"], short["schema_id"], short["subject"]) == ("base64", avro, None)
    assert (unknown["value_encoding"], unknown["schema_id"]) == ("base64", 987_654)


def test_messages_of_a_queue_are_decoded(broker: Broker) -> None:
    assert call(broker.http_url, "POST", "/queues", value={"name": "typed"}).status == 201
    avro = register(broker, "typed-value", ORDER)
    produce(broker, "typed", (prefix(avro) + ORDER_BYTES, None, ()))
    (item,) = call(broker.http_url, "GET", "/queues/typed/messages").value["items"]
    assert (item["body_encoding"], json.loads(item["body"])) == ("avro", ORDER_VALUE)


def test_a_schema_that_the_person_may_not_see_decodes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with secured(monkeypatch, **{"super.users": ANONYMOUS}) as broker:
        create(broker, "open", ADMIN)
        hidden = register(broker, "secret-value", ORDER, account=ADMIN)
        produce(broker, "open", (prefix(hidden) + ORDER_BYTES, None, ()))
        rule = {"principal": "User:bob", "permission": "allow", "operation": "read", "resource_type": "topic"}
        answer = call(broker.http_url, "POST", "/acls", ADMIN, {"rules": [{**rule, "resource_name": "open"}]})
        assert answer.status < 300
        assert browse(broker, "open", ADMIN)[0]["subject"] == "secret-value"
        (item,) = browse(broker, "open", BOB)
        assert (item["value_encoding"], item["schema_id"], item["subject"]) == ("base64", hidden, None)

        # A permission that is given or revoked holds at once.
        allow = {**rule, "operation": "describe", "resource_name": "secret"}
        for method, subject in (("POST", "secret-value"), ("DELETE", None)):
            assert call(broker.http_url, method, "/acls", ADMIN, {"rules": [allow]}).status < 300
            assert browse(broker, "open", BOB)[0]["subject"] == subject
