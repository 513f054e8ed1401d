"""Subjects over the HTTP API: lists, versions, differences, checks, changes, and the permissions of the person."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.testing import Broker
from tests.waiting import until

from .api import ADMIN, BOB, ApiAnswer, call, secured


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


def record(*fields: str) -> str:
    listed = [{"name": name, "type": "string", "default": ""} for name in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": listed})


def ask(broker: Broker, method: str, path: str, value: Any = None) -> Any:
    answer = call(broker.http_url, method, path, None, value)
    assert answer.status < 300, answer
    return answer.value


def register(broker: Broker, subject: str, *schemas: str, schema_type: str = "AVRO") -> None:
    for schema in schemas:
        body = {"schema": schema, "schema_type": schema_type}
        ask(broker, "POST", f"/subjects/{subject}/versions", body)


def test_looking_does_not_create_the_registry() -> None:
    with Broker() as broker:
        assert ask(broker, "GET", "/subjects") == {"items": [], "total": 0, "page": 1, "per_page": 50}
        assert call(broker.http_url, "GET", "/subjects/orders-value").value["error"] == "unknown_subject"
        assert ask(broker, "GET", "/topics?internal=true&search=_schemas")["total"] == 0


def test_a_list_is_searched_sorted_and_paged(broker: Broker) -> None:
    register(broker, "list-a-value", record("sku"))
    register(broker, "list-b-key", '"string"')
    register(broker, "list-c-value", record(), record("sku"), record("sku", "name"))
    register(broker, "list-p-value", 'syntax = "proto3"; message P { string a = 1; }', schema_type="PROTOBUF")
    found = ask(broker, "GET", "/subjects?search=LIST-&sort=versions&order=desc&per_page=2")
    assert (found["total"], found["page"], found["per_page"]) == (4, 1, 2)
    first = found["items"][0]
    assert first | {"id": 0} == {
        "subject": "list-c-value",
        "topic": "list-c",
        "schema_type": "AVRO",
        "id": 0,
        "version": 3,
        "versions": 3,
        "compatibility": "BACKWARD",
        "mode": "READWRITE",
        "is_deleted": False,
    }
    second = ask(broker, "GET", "/subjects?search=list-&sort=subject&page=2&per_page=3")
    assert [each["subject"] for each in second["items"]] == ["list-p-value"]
    assert call(broker.http_url, "GET", "/subjects?sort=colour").status == 400


def test_a_subject_with_its_versions(broker: Broker) -> None:
    ask(broker, "POST", "/topics", {"name": "shop"})
    register(broker, "shop-value", record("sku"), record("sku", "name"))
    found = ask(broker, "GET", "/subjects/shop-value")
    assert found["used_by"] == {"topic": "shop", "part": "value"}
    assert [each["version"] for each in found["versions"]] == [2, 1]
    assert (found["own_compatibility"], found["summary"]["compatibility"]) == (None, "BACKWARD")
    version = ask(broker, "GET", "/subjects/shop-value/versions/latest")
    assert json.loads(version["schema"]) == json.loads(record("sku", "name"))
    assert version["pretty"].startswith('{\n  "type": "record"')


def test_the_difference_of_two_versions(broker: Broker) -> None:
    register(broker, "diff-value", record("sku"), record("sku", "name"))
    found = ask(broker, "GET", "/subjects/diff-value/diff?from=1")
    assert (found["earlier"], found["later"]) == (1, 2)
    assert '"name": "name",' in [line["text"].strip() for line in found["lines"] if line["change"] == "added"]
    assert ask(broker, "GET", "/subjects/diff-value/diff?from=2&to=2")["added"] == 0
    assert call(broker.http_url, "GET", "/subjects/diff-value/diff?from=9").value["error"] == "unknown_version"


def test_references_in_both_directions(broker: Broker) -> None:
    register(broker, "address", '{"type": "record", "name": "Address", "fields": []}')
    fields = [{"name": "to", "type": "Address"}]
    body = {
        "schema": json.dumps({"type": "record", "name": "Parcel", "fields": fields}),
        "references": [{"name": "Address", "subject": "address", "version": 1}],
    }
    ask(broker, "POST", "/subjects/parcel-value/versions", body)
    assert ask(broker, "GET", "/subjects/parcel-value/versions/1")["references"] == body["references"]
    assert ask(broker, "GET", "/subjects/address/versions/1")["referenced_by"] == [
        {"subject": "parcel-value", "version": 1}
    ]
    refused = call(broker.http_url, "DELETE", "/subjects/address")
    assert (refused.status, refused.value["error"]) == (409, "referenced")


def test_what_is_not_compatible_is_refused_with_the_place(broker: Broker) -> None:
    register(broker, "strict-value", record("sku"))
    other = '{"type": "record", "name": "Order", "fields": [{"name": "sku", "type": "int"}]}'
    checked = ask(broker, "POST", "/subjects/strict-value/check", {"schema": other})
    assert (checked["is_compatible"], "sku" in " ".join(checked["messages"])) == (False, True)
    refused = call(broker.http_url, "POST", "/subjects/strict-value/versions", None, {"schema": other})
    assert (refused.status, refused.value["error"]) == (409, "incompatible_schema")
    ask(broker, "PUT", "/subjects/strict-value/compatibility", {"level": "NONE"})
    register(broker, "strict-value", other)
    found = ask(broker, "GET", "/subjects/strict-value")
    assert (found["own_compatibility"], found["summary"]["version"]) == ("NONE", 2)
    ask(broker, "PUT", "/subjects/strict-value/compatibility", {"level": None})
    ask(broker, "PUT", "/subjects/strict-value/compatibility", {"level": None})
    assert ask(broker, "GET", "/subjects/strict-value")["own_compatibility"] is None
    invalid = call(broker.http_url, "POST", "/subjects/strict-value/versions", None, {"schema": "{"})
    assert (invalid.status, invalid.value["error"]) == (400, "invalid_schema")


def test_deleting_softly_and_for_good(broker: Broker) -> None:
    register(broker, "gone-value", record(), record("sku"))
    assert ask(broker, "DELETE", "/subjects/gone-value/versions/1") == {"versions": [1]}
    assert ask(broker, "GET", "/subjects/gone-value")["versions"][1]["is_deleted"]
    assert ask(broker, "DELETE", "/subjects/gone-value") == {"versions": [2]}
    assert ask(broker, "GET", "/subjects?search=gone")["total"] == 0
    (left,) = ask(broker, "GET", "/subjects?search=gone&deleted=true")["items"]
    assert left["is_deleted"]
    assert ask(broker, "DELETE", "/subjects/gone-value?permanent=true") == {"versions": [1, 2]}
    assert call(broker.http_url, "GET", "/subjects/gone-value").value["error"] == "unknown_subject"


def test_a_subject_with_a_slash(broker: Broker) -> None:
    register(broker, "com.shop%2FOrder", '"string"')
    assert ask(broker, "GET", "/subjects/com.shop%2FOrder")["summary"]["subject"] == "com.shop/Order"
    assert ask(broker, "GET", "/subjects/com.shop%2FOrder/versions/1")["schema"] == '"string"'


def test_permissions_are_those_of_the_topic_and_changes_are_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    with secured(monkeypatch) as broker:

        def as_(account: tuple[str, str], method: str, path: str, value: Any = None) -> ApiAnswer:
            return call(broker.http_url, method, path, account, value)

        for subject in ("orders-value", "other-value"):
            assert as_(ADMIN, "POST", f"/subjects/{subject}/versions", {"schema": '"string"'}).status == 201
        rule = {
            "principal": "User:bob",
            "permission": "allow",
            "operation": "describe",
            "resource_type": "topic",
            "resource_name": "orders",
        }
        assert as_(ADMIN, "POST", "/acls", {"rules": [rule]}).status < 300
        until(lambda: as_(BOB, "GET", "/subjects").value["total"] == 1)
        assert as_(BOB, "GET", "/subjects/orders-value").status == 200
        assert as_(BOB, "GET", "/subjects/other-value").status == 403
        refused = as_(BOB, "DELETE", "/subjects/orders-value")
        assert (refused.status, "delete on the topic orders" in refused.value["message"]) == (403, True)

        def audited() -> list[dict[str, Any]]:
            events = as_(ADMIN, "GET", "/audit?limit=200").value["items"]
            return [each for each in events if each.get("resource_type") == "SUBJECT"]

        found = until(audited)
        assert {each["resource_name"] for each in found} >= {"other-value"}


def test_read_only_allows_checks_only() -> None:
    with Broker(settings={"dashboard.read.only": True}) as broker:
        refused = call(broker.http_url, "POST", "/subjects/orders-value/versions", None, {"schema": '"string"'})
        assert (refused.status, refused.value["error"]) == (403, "read_only")
        assert ask(broker, "POST", "/subjects/orders-value/check", {"schema": '"string"'})["is_compatible"]
