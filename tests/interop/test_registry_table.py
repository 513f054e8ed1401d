"""Every request of the registry's REST API, with its parameters, against a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.schemas.operations.all_operations import OPERATIONS
from headrace.testing import Broker
from tests.interop.registry_client import ORDER, WITH_NOTE, Refusal, RegistryClient

RULE = {"name": "check", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}


@pytest.fixture(scope="module")
def served() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def registry(served: Broker) -> RegistryClient:
    return RegistryClient(f"{served.http_url}/registry")


def test_server(registry: RegistryClient, served: Broker) -> None:
    clusters = registry.call("GET", "/v1/metadata/id")["scope"]["clusters"]
    assert len(clusters["kafka-cluster"]) == 22
    assert registry.call("GET", "/v1/metadata/version")["version"].startswith("headrace ")
    assert set(registry.call("GET", "/schemas/types")) == {"AVRO", "JSON", "PROTOBUF"}
    assert registry.call("GET", "/") == {}


def test_lists_have_pages_and_prefixes(registry: RegistryClient) -> None:
    for name in ("list-a", "list-b", "list-c", ":.lists:a"):
        registry.register(name, ORDER)
    registry.register("list-a", WITH_NOTE)
    registry.call("DELETE", "/subjects/list-c")
    assert registry.call("GET", "/subjects?subjectPrefix=list-") == ["list-a", "list-b"]
    assert registry.call("GET", "/subjects?subjectPrefix=list-&deleted=true") == ["list-a", "list-b", "list-c"]
    assert registry.call("GET", "/subjects?subjectPrefix=list-&deletedOnly=true") == ["list-c"]
    assert registry.call("GET", "/subjects?subjectPrefix=list-&offset=1&limit=1") == ["list-b"]
    shown = registry.call("GET", "/schemas?subjectPrefix=list-")
    assert [(each["subject"], each["version"]) for each in shown] == [("list-a", 1), ("list-a", 2), ("list-b", 1)]
    latest = registry.call("GET", "/schemas?subjectPrefix=list-&latestOnly=true&deleted=false")
    assert [(each["subject"], each["version"]) for each in latest] == [("list-a", 2), ("list-b", 1)]
    assert registry.call("GET", "/contexts?contextPrefix=.lis") == [".lists"]
    assert registry.call("GET", "/contexts?limit=1") == ["."]
    assert registry.call("GET", "/contexts/.lists/subjects") == [":.lists:a"]


def test_versions(registry: RegistryClient) -> None:
    first = registry.register("versions-value", ORDER)
    second = registry.register("versions-value", WITH_NOTE)
    path = "/subjects/versions-value/versions"
    assert registry.call("GET", f"{path}/-1")["id"] == second
    assert registry.call("GET", f"{path}/1/schema") == ORDER
    assert registry.call("DELETE", f"{path}/1") == 1
    assert registry.call("GET", path) == [2]
    assert registry.call("GET", f"{path}?deleted=true") == [1, 2]
    assert registry.call("GET", f"{path}?deletedOnly=true") == [1]
    assert registry.call("GET", f"{path}?deleted=true&deletedAsNegative=true") == [-1, 2]
    assert registry.call("GET", f"{path}/1?deleted=true")["deleted"] is True
    deleted = {"subject": "versions-value", "version": 1}
    assert deleted not in registry.call("GET", f"/schemas/ids/{first}/versions")
    assert deleted in registry.call("GET", f"/schemas/ids/{first}/versions?deleted=true")
    lookup = {"schema": json.dumps(ORDER)}
    with pytest.raises(Refusal) as refused:
        registry.call("POST", "/subjects/versions-value", lookup)
    assert refused.value.code == 40403
    assert registry.call("POST", "/subjects/versions-value?deleted=true&normalize=true", lookup)["version"] == 1
    assert registry.call("DELETE", f"{path}/1?permanent=true") == 1
    with pytest.raises(Refusal) as refused:
        registry.call("DELETE", f"{path}/2?permanent=true")
    assert refused.value.code == 40407


def test_ids_and_guids(registry: RegistryClient) -> None:
    number = registry.register("ids-value", ORDER)
    assert registry.call("GET", f"/schemas/ids/{number}/schema") == ORDER
    shown = registry.call("GET", f"/schemas/ids/{number}?subject=ids-value&fetchMaxId=true")
    assert (shown["subject"], shown["version"]) == ("ids-value", 1)
    assert shown["maxId"] >= number
    assert "ids-value" in registry.call("GET", f"/schemas/ids/{number}/subjects?subject=ids-value")
    assert {"context": ".", "id": number} in registry.call("GET", f"/schemas/guids/{shown['guid']}/ids")
    assert json.loads(registry.call("GET", f"/schemas/guids/{shown['guid']}")["schema"]) == ORDER


def test_formats_and_references_of_protobuf(registry: RegistryClient) -> None:
    registry.register(":.proto:item.proto", 'syntax = "proto3"; message Item { string name = 1; }', "PROTOBUF")
    order = 'syntax = "proto3"; import "item.proto"; message Order { Item item = 1; }'
    references = [{"name": "item.proto", "subject": "item.proto", "version": 1}]
    number = registry.register(":.proto:order", order, "PROTOBUF", references=references)
    plain = registry.call("GET", "/subjects/:.proto:order/versions/1")
    assert plain["references"] == references
    shown = registry.call("GET", "/subjects/:.proto:order/versions/1?format=serialized&referenceFormat=qualified")
    assert shown["references"][0]["subject"] == ":.proto:item.proto"
    compiled = registry.call("GET", f"/contexts/.proto/schemas/ids/{number}?format=serialized")["schema"]
    assert compiled == shown["schema"] != plain["schema"]
    again = {"schema": compiled, "schemaType": "PROTOBUF", "references": references}
    assert registry.call("POST", "/subjects/:.proto:order/versions?normalize=true", again)["id"] == number
    assert registry.call("GET", "/subjects/:.proto:item.proto/versions/1/referencedby?deleted=true") == [number]


def test_metadata_rules_and_tags(registry: RegistryClient) -> None:
    registry.register("tags-value", ORDER, metadata={"properties": {"owner": "me", "area": "shop"}})
    found = registry.call("GET", "/subjects/tags-value/metadata?key=owner&value=me&key=area&value=shop")
    assert found["version"] == 1
    with pytest.raises(Refusal) as refused:
        registry.call("GET", "/subjects/tags-value/metadata?key=owner&value=me&key=area&value=sea")
    assert refused.value.code == 40403
    entity = {"entityPath": "Order.id", "entityType": "SR_FIELD"}
    body = {
        "tagsToAdd": [{"schemaEntity": entity, "tags": ["PII", "KEY"]}],
        "rulesToMerge": {"domainRules": [RULE]},
        "newVersion": 2,
    }
    tagged = registry.call("POST", "/subjects/tags-value/versions/latest/tags", body)
    assert tagged["version"] == 2
    assert tagged["metadata"]["tags"] == {"Order.id": ["PII", "KEY"]}
    assert tagged["ruleSet"]["domainRules"] == [RULE]
    assert registry.call("GET", "/subjects/tags-value/versions/2?findTags=OTHER")["schemaTags"] == []
    shown = registry.call("GET", "/subjects/tags-value/versions/2?findTags=PII")
    assert shown["schemaTags"][0]["tags"] == ["PII", "KEY"]
    by_rule = registry.call("GET", "/schemas?subjectPrefix=tags-&ruleType=cel")
    assert [each["version"] for each in by_rule] == [2]
    removal = {"tagsToRemove": [{"schemaEntity": entity, "tags": ["PII"]}], "rulesToRemove": ["check"]}
    again = registry.call("POST", "/subjects/tags-value/versions/2/tags", removal)
    assert again["metadata"]["tags"] == {"Order.id": ["KEY"]}
    assert "ruleSet" not in again
    with pytest.raises(Refusal) as refused:
        registry.call("POST", "/subjects/tags-value/versions/2/tags", {"newVersion": 9})
    assert refused.value.code == 42202


def test_compatibility_settings(registry: RegistryClient) -> None:
    registry.register("config-value", {"type": "object"}, "JSON")
    typed = {"schema": json.dumps({"type": "object", "properties": {"a": {"type": "string"}}}), "schemaType": "JSON"}
    path = "/compatibility/subjects/config-value/versions"
    for compared in (f"{path}/latest", path):
        found = registry.call("POST", f"{compared}?verbose=true&normalize=true", typed)
        assert found["is_compatible"] is False
        assert found["messages"]
    registry.call("PUT", "/config/config-value", {"compatibilityPolicy": "lenient"})
    assert registry.call("POST", path, typed) == {"is_compatible": True}
    with pytest.raises(Refusal) as refused:
        registry.call("PUT", "/config/config-value", {"compatibilityPolicy": "loose"})
    assert refused.value.code == 42203
    assert registry.call("GET", "/config/config-value?defaultToGlobal=true")["compatibilityLevel"] == "BACKWARD"
    assert registry.call("DELETE", "/config/config-value") == {"compatibilityPolicy": "LENIENT"}
    with pytest.raises(Refusal) as refused:
        registry.call("GET", "/config/config-value")
    assert refused.value.code == 40408
    registry.call("PUT", "/config", {"compatibility": "BACKWARD_TRANSITIVE", "normalize": True})
    assert registry.call("GET", "/config") == {"compatibilityLevel": "BACKWARD_TRANSITIVE", "normalize": True}
    registry.call("DELETE", "/config")
    assert registry.call("GET", "/config") == {"compatibilityLevel": "BACKWARD"}


def test_an_alias_shows_another_subject(registry: RegistryClient) -> None:
    number = registry.register("real-value", ORDER)
    registry.call("PUT", "/config/alias-value", {"alias": "real-value"})
    assert registry.call("GET", "/subjects/alias-value/versions/latest")["id"] == number
    assert registry.call("POST", "/subjects/alias-value", {"schema": json.dumps(ORDER)})["subject"] == "real-value"
    assert [each["id"] for each in registry.call("GET", "/schemas?subjectPrefix=alias-&aliases=true")] == [number]
    registry.call("DELETE", "/config/alias-value")


def test_modes(registry: RegistryClient) -> None:
    registry.call("PUT", "/mode/:.modes:a", {"mode": "READONLY"})
    with pytest.raises(Refusal) as refused:
        registry.register(":.modes:a", ORDER)
    assert refused.value.code == 42205
    with pytest.raises(Refusal) as refused:
        registry.call("PUT", "/mode/:.modes:a", {"mode": "FORWARD"})
    assert refused.value.code == 42204
    registry.call("PUT", "/mode/:.modes:", {"mode": "IMPORT"})
    assert registry.call("GET", "/mode/:.modes:b?defaultToGlobal=true") == {"mode": "IMPORT"}
    assert registry.call("DELETE", "/mode/:.modes:?recursive=true") == {"mode": "IMPORT"}
    with pytest.raises(Refusal) as refused:
        registry.call("GET", "/mode/:.modes:a")
    assert refused.value.code == 40409
    registry.register(":.modes:a", ORDER)
    with pytest.raises(Refusal) as refused:
        registry.call("PUT", "/mode/:.modes:a", {"mode": "IMPORT"})
    assert refused.value.code == 42205
    registry.call("PUT", "/mode/:.modes:a?force=true", {"mode": "IMPORT"})
    registry.call("DELETE", "/mode/:.modes:a")
    registry.call("PUT", "/mode?force=true", {"mode": "FORWARD"})
    assert registry.call("GET", "/mode") == {"mode": "FORWARD"}
    registry.call("DELETE", "/mode")
    assert registry.call("GET", "/mode") == {"mode": "READWRITE"}


def test_contexts_are_deleted_when_they_are_empty(registry: RegistryClient) -> None:
    registry.register(":.gone:a", ORDER)
    with pytest.raises(Refusal) as refused:
        registry.call("DELETE", "/contexts/.gone")
    assert refused.value.code == 42211
    registry.call("DELETE", "/subjects/:.gone:a")
    registry.call("DELETE", "/subjects/:.gone:a?permanent=true")
    registry.call("DELETE", "/contexts/.gone")
    assert ".gone" not in registry.call("GET", "/contexts")


def test_what_an_export_has_besides_schemas(registry: RegistryClient) -> None:
    registry.call("PUT", "/config/alone-value", {"normalize": True})
    listed = registry.call("GET", "/headrace/settings?offset=0&limit=1000")
    assert {"key": '{"keytype":"CONFIG","subject":"alone-value","magic":0}'}.items() <= listed[0].items()
    registry.call("PUT", "/headrace/highest-ids", {"highestIds": {".far": 500}})
    assert registry.call("GET", "/headrace/highest-ids")["highestIds"][".far"] == 500
    assert registry.register(":.far:next", '"int"') == 501
    with pytest.raises(Refusal):
        registry.call("PUT", "/headrace/highest-ids", {"highestIds": {".": 2**31}})


def test_null_clears_one_setting_and_leaves_the_others(registry: RegistryClient) -> None:
    registry.call("PUT", "/config/some-value", {"compatibility": "FULL", "alias": "other-value", "normalize": True})
    registry.call("PUT", "/config/some-value", {"compatibility": None})
    assert registry.call("GET", "/config/some-value") == {"alias": "other-value", "normalize": True}
    registry.call("PUT", "/config/some-value", {"alias": None, "normalize": None})
    with pytest.raises(Refusal) as refused:
        registry.call("GET", "/config/some-value")
    assert refused.value.code == 40408


def test_ten_megabytes_are_refused(registry: RegistryClient) -> None:
    with pytest.raises(Refusal, match="a body may have") as refused:
        registry.register("large", {"title": "x" * 10_000_000}, "JSON")
    assert (refused.value.status, refused.value.code) == (413, 42209)
    assert registry.call("GET", "/schemas/types"), "the broker answers others"


def test_no_operation_is_left_out() -> None:
    """This file names each path of the table."""
    source = Path(__file__).read_text()
    for each in OPERATIONS:
        fixed = [part for part in each.path if not part.startswith("{")]
        assert all(part in source for part in fixed), each.path
