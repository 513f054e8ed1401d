"""DescribeAcls, CreateAcls and DeleteAcls with authorization on."""

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.cluster.access import AccessControl
from headrace.kafka.permissions import ALTER_CLUSTER, DESCRIBE_CLUSTER
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.errors import UnsupportedFeature

from .secured import Secured, allow, secured_broker

ANY = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
BOB_READS = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:bob",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
VERSIONS = pytest.mark.parametrize("version", range(1, 4))


@pytest.fixture
def scene(tmp_path: Path) -> Any:
    with secured_broker(tmp_path) as scene:
        scene.permit(allow(ALTER_CLUSTER), allow(DESCRIBE_CLUSTER))
        yield scene


def create(scene: Secured, version: int, *changes: dict[str, Any]) -> list[tuple[ErrorCode, str | None]]:
    answer = scene.call(30, version, creations=[{**BOB_READS, **change} for change in changes])
    return [(result.error_code, result.error_message) for result in answer.results]


def stored(scene: Secured) -> list[str]:
    return [str(acl) for acl in sorted(scene.harness.metadata.image.security.acls)]


def described(scene: Secured, version: int, **wanted: Any) -> list[str]:
    answer = scene.call(29, version, **{**ANY, **wanted})
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    return [
        str(
            Acl(
                ResourceType(resource.resource_type),
                PatternType(resource.pattern_type),
                resource.resource_name,
                acl.principal,
                acl.host,
                AclOperation(acl.operation),
                Permission(acl.permission_type),
            )
        )
        for resource in answer.resources
        for acl in resource.acls
    ]


@VERSIONS
def test_acls_are_created_described_and_deleted(scene: Secured, version: int) -> None:
    outcomes = create(
        scene,
        version,
        {},
        {"operation": 4},
        {"resource_pattern_type": 4, "resource_name": "ord"},
        {},
        {"host": "10.0.0.1"},
    )
    assert outcomes == [(ErrorCode.none, None)] * 5
    everything = [
        "allow User:bob read on topic orders",
        "allow User:bob read on topic orders from 10.0.0.1",
        "allow User:bob write on topic orders",
        "allow User:bob read on topic ord*",
    ]
    assert sorted(stored(scene)) == sorted(everything)
    assert sorted(described(scene, version)) == sorted(everything)
    assert described(scene, version, operation=4) == ["allow User:bob write on topic orders"]
    assert len(described(scene, version, resource_name_filter="orders")) == 3
    assert len(described(scene, version, resource_name_filter="orders", pattern_type_filter=2)) == 4
    assert described(scene, version, principal_filter="User:eve") == []

    deleted = scene.call(
        31, version, filters=[{**ANY, "operation": 4}, {**ANY, "host_filter": "10.0.0.1"}, {**ANY, "operation": 7}]
    )
    assert [result.error_code for result in deleted.filter_results] == [ErrorCode.none] * 3
    matching = [
        [(acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.operation) for acl in result.matching_acls]
        for result in deleted.filter_results
    ]
    assert matching == [[("orders", 3, "User:bob", "*", 4)], [("orders", 3, "User:bob", "10.0.0.1", 3)], []]
    assert stored(scene) == ["allow User:bob read on topic orders", "allow User:bob read on topic ord*"]


def test_answers_group_acls_by_resource(scene: Secured) -> None:
    create(scene, 3, {}, {"operation": 4}, {"resource_type": 3})
    resources = scene.call(29, 3, **ANY).resources
    assert [(one.resource_type, one.resource_name, len(one.acls)) for one in resources] == [
        (2, "orders", 2),
        (3, "orders", 1),
    ]


@VERSIONS
def test_an_invalid_acl_is_refused_with_the_reason_and_the_others_are_created(scene: Secured, version: int) -> None:
    invalid: dict[str, dict[str, Any]] = {
        "there is no resource type 9": {"resource_type": 9},
        "there is no resource type 1": {"resource_type": 1},
        "there is no pattern type 2": {"resource_pattern_type": 2},
        "there is no operation 1": {"operation": 1},
        "there is no permission type 0": {"permission_type": 0},
        "must not be empty": {"resource_name": ""},
        "kafka-cluster": {"resource_type": 4, "resource_name": "other", "operation": 7},
        "is no operation on a topic": {"operation": 9},
        "is no principal": {"principal": "bob"},
        "is no host": {"host": "example"},
    }
    outcomes = create(scene, version, *invalid.values(), {"principal": "User:eve"})
    for reason, (error, message) in zip(invalid, outcomes[:-1], strict=True):
        assert error is ErrorCode.invalid_request
        assert message is not None
        assert reason in message
    assert outcomes[-1] == (ErrorCode.none, None)
    assert stored(scene) == ["allow User:eve read on topic orders"]


@VERSIONS
def test_a_filter_with_an_unknown_number_deletes_nothing(scene: Secured, version: int) -> None:
    create(scene, version, {})
    unknown = {"resource_type_filter": 0, "pattern_type_filter": 9, "operation": 0, "permission_type": 7}
    answer = scene.call(31, version, filters=[{**ANY, name: value} for name, value in unknown.items()])
    assert [one.error_code for one in answer.filter_results] == [ErrorCode.invalid_request] * 4
    for name, value in unknown.items():
        assert scene.call(29, version, **{**ANY, name: value}).error_code is ErrorCode.invalid_request
    assert len(stored(scene)) == 1


def test_a_failure_of_the_store_is_answered_for_each_valid_acl(scene: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise UnsupportedFeature("upgrade first")

    create(scene, 3, {})
    monkeypatch.setattr(AccessControl, "create_acls", refuse)
    monkeypatch.setattr(AccessControl, "delete_acls", refuse)
    outcomes = create(scene, 3, {}, {"operation": 1})
    assert [error for error, _ in outcomes] == [ErrorCode.unsupported_version, ErrorCode.invalid_request]
    (result,) = scene.call(31, 3, filters=[ANY]).filter_results
    assert (result.error_code, result.matching_acls) == (ErrorCode.unsupported_version, ())
