"""The schema registry of real brokers, as clients of Confluent's registry use it."""

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer

from headrace.testing import Broker
from headrace.testing.cluster import ClusterProcesses
from headrace.testing.process import BrokerProcess
from tests.interop.registry_client import ORDER, RENAMED, WITH_NOTE, Refusal, RegistryClient
from tests.waiting import until


@pytest.fixture(scope="module")
def served() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def registry(served: Broker) -> RegistryClient:
    return RegistryClient(f"{served.http_url}/registry")


def test_register_look_up_and_show(registry: RegistryClient) -> None:
    first = registry.register("orders-value", ORDER)
    second = registry.register("orders-value", WITH_NOTE)
    assert second > first
    assert registry.register("orders-value", json.dumps(ORDER, indent=4)) == first
    assert registry.call("GET", "/subjects/orders-value/versions") == [1, 2]
    latest = registry.call("GET", "/subjects/orders-value/versions/latest")
    assert (latest["id"], latest["version"]) == (second, 2)
    assert json.loads(registry.call("GET", f"/schemas/ids/{first}")["schema"]) == ORDER
    found = registry.call("POST", "/subjects/orders-value", {"schema": json.dumps(ORDER)})
    assert (found["id"], found["version"]) == (first, 1)
    assert registry.call("GET", f"/schemas/guids/{latest['guid']}")["schema"] == latest["schema"]


def test_a_proto_file_is_compiled_on_request_by_id_and_by_guid(registry: RegistryClient) -> None:
    text = 'syntax = "proto3"; message Compiled { int32 a = 1; }'
    registry.call("POST", "/subjects/compiled-value/versions", {"schema": text, "schemaType": "PROTOBUF"})
    latest = registry.call("GET", "/subjects/compiled-value/versions/latest?format=serialized")
    assert b"Compiled" in base64.b64decode(latest["schema"])
    for path in (f"/schemas/ids/{latest['id']}", f"/schemas/guids/{latest['guid']}"):
        assert registry.call("GET", f"{path}?format=serialized")["schema"] == latest["schema"]


def test_an_incompatible_schema_is_refused_with_the_path(registry: RegistryClient) -> None:
    registry.register("bills-value", ORDER)
    with pytest.raises(Refusal, match="number at /fields/0") as refused:
        registry.register("bills-value", RENAMED)
    assert (refused.value.status, refused.value.code) == (409, 40901)
    verdict = registry.call(
        "POST", "/compatibility/subjects/bills-value/versions/latest?verbose=true", {"schema": json.dumps(RENAMED)}
    )
    assert verdict["is_compatible"] is False
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in verdict["messages"][0]
    registry.call("PUT", "/config/bills-value", {"compatibility": "NONE"})
    assert registry.call("GET", "/config/bills-value") == {"compatibilityLevel": "NONE"}
    registry.register("bills-value", RENAMED)


def test_all_types_and_references(registry: RegistryClient) -> None:
    item = 'syntax = "proto3"; package shop; message Item { string name = 1; }'
    order = 'syntax = "proto3"; package shop; import "item.proto"; message Order { repeated Item items = 1; }'
    registry.register("item.proto", item, "PROTOBUF")
    number = registry.register(
        "proto-value", order, "PROTOBUF", references=[{"name": "item.proto", "subject": "item.proto", "version": 1}]
    )
    assert registry.call("GET", f"/schemas/ids/{number}")["schemaType"] == "PROTOBUF"
    assert registry.call("GET", "/subjects/item.proto/versions/1/referencedby") == [number]
    with pytest.raises(Refusal) as refused:
        registry.call("DELETE", "/subjects/item.proto")
    assert refused.value.code == 42206
    registry.register("json-value", {"type": "object", "properties": {"a": {"type": "string"}}}, "JSON")
    with pytest.raises(Refusal, match="is not defined") as refused:
        registry.register("broken-value", '{"type":"record","name":"R","fields":[{"name":"a","type":"Missing"}]}')
    assert refused.value.code == 42201


def test_contexts_have_ids_of_their_own(registry: RegistryClient) -> None:
    assert registry.register(":.tenant:orders-value", ORDER) == 1
    assert ":.tenant:orders-value" in registry.call("GET", "/subjects?subjectPrefix=:.tenant:")
    assert registry.call("GET", "/contexts/.tenant/subjects/orders-value/versions") == [1]
    assert ".tenant" in registry.call("GET", "/contexts")


def test_subjects_may_contain_anything_that_a_url_can_carry(registry: RegistryClient) -> None:
    registry.register("a/b c%ä-value", ORDER)
    assert "a/b c%ä-value" in registry.call("GET", "/subjects")
    assert registry.call("GET", f"/subjects/{quote('a/b c%ä-value', safe='')}/versions") == [1]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/subjects/missing/versions", None, 404, 40401),
        ("GET", "/subjects/orders-value/versions/99", None, 404, 40402),
        ("GET", "/subjects/orders-value/versions/zero", None, 422, 42202),
        ("GET", "/schemas/ids/999999", None, 404, 40403),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 422, 42203),
        ("PUT", "/mode", {"mode": "UPSIDE_DOWN"}, 422, 42204),
        ("POST", "/subjects/x/versions", {"schema": "{"}, 422, 42201),
        ("POST", "/subjects/x/versions", {"schema": 5}, 422, 422),
        ("GET", "/nothing", None, 404, 404),
    ],
)
def test_errors_have_the_codes_of_confluents_registry(
    registry: RegistryClient, method: str, path: str, body: Any, status: int, code: int
) -> None:
    registry.register("orders-value", ORDER)
    with pytest.raises(Refusal) as refused:
        registry.call(method, path, body)
    assert (refused.value.status, refused.value.code) == (status, code)


def test_a_web_page_cannot_register(registry: RegistryClient) -> None:
    with pytest.raises(Refusal) as refused:
        registry.call("POST", "/subjects/x/versions", {"schema": '"int"'}, kind="text/plain")
    assert refused.value.status == 415


def test_everything_is_there_after_kill_9_and_others_can_read_the_topic(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        registry = RegistryClient(f"{broker.http_url}/registry")
        ids = [
            registry.register(f"s{number}", f'{{"type":"fixed","name":"F","size":{number}}}') for number in range(20)
        ]
        registry.call("DELETE", "/subjects/s19")
        registry.call("DELETE", "/subjects/s19?permanent=true")
        broker.kill()
        broker.start()
        registry = RegistryClient(f"{broker.http_url}/registry")
        assert registry.call("GET", "/subjects") == sorted(f"s{number}" for number in range(19))
        assert registry.register("another", '{"type":"fixed","name":"G","size":1}') == max(ids) + 1
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
        )
        try:
            consumer.subscribe(["_schemas"])
            message = until(lambda: consumer.poll(1.0), what="the first record")
            key = json.loads(message.key())
            assert (key["keytype"], key["subject"], key["magic"]) == ("SCHEMA", "s0", 1)
        finally:
            consumer.close()


def test_permissions_are_those_of_the_topic(tmp_path: Path) -> None:
    users = {"admin": "admin-password", "writer": "writer-password", "reader": "reader-password"}
    settings = {"authorization.enable": True, "super.users": "User:admin"}
    with Broker(settings=settings, tls=True, users=users) as broker:
        url, ca = f"{broker.http_url}/registry", broker.ca_file
        admin = RegistryClient(url, "admin", users["admin"], ca)
        admin.register("orders-value", ORDER)
        for client in (RegistryClient(url, ca=ca), RegistryClient(url, "writer", "wrong", ca)):
            with pytest.raises(Refusal) as refused:
                client.call("GET", "/subjects")
            assert refused.value.status == 401
        reader = RegistryClient(url, "reader", users["reader"], ca)
        assert reader.call("GET", "/subjects") == []
        with pytest.raises(Refusal) as refused:
            reader.call("GET", "/subjects/orders-value/versions")
        assert (refused.value.status, refused.value.code) == (403, 40301)
        with pytest.raises(Refusal) as refused:
            reader.call("PUT", "/config", {"compatibility": "NONE"})
        assert refused.value.status == 403
        with pytest.raises(Refusal):
            reader.call("GET", "/schemas/ids/1")


def test_every_broker_of_a_cluster_answers_the_same(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=3) as cluster:
        urls = [f"{broker.http_url}/registry" for broker in cluster.brokers.values()]
        clients = [RegistryClient(url) for url in urls]

        def register(number: int) -> int:
            return clients[number % 3].register(
                f"s{number // 2}", f'{{"type":"fixed","name":"F{number // 2}","size":1}}'
            )

        with ThreadPoolExecutor(6) as pool:
            ids = [*pool.map(register, range(60))]
        # The two brokers that were asked for the same schema at the same time gave it the same id.
        assert ids[::2] == ids[1::2]
        assert sorted(set(ids)) == [*range(1, 31)]
        number = clients[0].register("seen", ORDER)
        for client in clients:
            assert client.call("GET", f"/schemas/ids/{number}/subjects") == ["seen"]
