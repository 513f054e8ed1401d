"""Which requests the audit log records, and what it shows of them."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args, get_origin, get_type_hints

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka import audited
from headrace.kafka.audit_changes import ADMINISTRATIVE, METADATA, AdminChange, changes
from headrace.kafka.dispatch import APIS, Context, Peer
from headrace.kafka.permissions import WRITE_TOPIC
from headrace.model.acls import AclOperation
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import RequestHeader, api_name, response_schema
from headrace.runtime.deferred import Deferred
from headrace.security.audit.event import AuditClass, AuditEvent, AuditOutcome
from headrace.security.audit.log import AuditRules
from headrace.security.subject import Subject
from tests.entities import build

from .harness import CLIENT_SEES, Harness, broker

SECRET = b"planted-secret-7731"
CHANGING = {AclOperation.CREATE, AclOperation.ALTER, AclOperation.DELETE, AclOperation.ALTER_CONFIGS}
NOT_CHANGES = {27: "WriteTxnMarkers, by coordinators", 88: "StreamsGroupHeartbeat, which may create internal topics"}
BOB = Subject("User:bob", "10.1.2.3")


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Harness]:
    with broker(tmp_path, authorization_enable="true") as harness:
        harness.services.security.update(harness.metadata.image.security, harness.metadata.settings)
        yield harness


def context(harness: Harness, key: int, version: int = 0) -> Context:
    header = RequestHeader(key, version, 7, "app", 0)
    return Context(header, Peer("10.1.2.3:5555", CLIENT_SEES, subject=BOB), harness.services)


def recorded(harness: Harness) -> list[AuditEvent]:
    return [each for each in harness.services.security.audit.peek(100) if isinstance(each, AuditEvent)]


def test_every_api_that_needs_a_permission_to_change_something_is_administrative():
    needing = {key for key, api in APIS.items() if any(need.operation in CHANGING for need in api.needs)}
    assert needing - ADMINISTRATIVE == {METADATA, *NOT_CHANGES}
    assert APIS.keys() >= ADMINISTRATIVE


@pytest.mark.parametrize("key", sorted(ADMINISTRATIVE), ids=api_name)
@pytest.mark.parametrize("failed", [False, True])
def test_requests_of_every_version_can_be_described(key: int, failed: bool):
    """Requests about one resource and their answers, and requests whose handler failed."""
    api = APIS[key]
    for version in range(api.min_version, api.max_version + 1):
        request = build(_request(key, version), one_of_each(_request(key, version)))
        answer = None if failed else build(_response(key, version), one_of_each(_response(key, version)))
        found = list(changes(key, request, answer))
        assert found or () in (getattr(request, "topic_names", None), getattr(request, "groups_names", None))
        assert {bool(each.error) for each in found} <= {failed}


def _request(key: int, version: int) -> type:
    found = getattr(request_schema(key, version), f"{api_name(key)}Request")
    assert isinstance(found, type)
    return found


def _response(key: int, version: int) -> type:
    found = getattr(response_schema(key, version), f"{api_name(key)}Response")
    assert isinstance(found, type)
    return found


def one_of_each(entity: type) -> dict[str, Any]:
    """Values for an entity with one element in each of its lists of entities."""
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(entity).items():
        for part in (hint, *get_args(hint)):
            element = next(iter(get_args(part)), None) if get_origin(part) is tuple else None
            if is_dataclass(element):
                values[name] = [one_of_each(cast(type, element))]
    return values


def described(key: int, version: int, request: dict[str, Any], answer: dict[str, Any]) -> list[AdminChange]:
    asked = build(_request(key, version), request)
    return list(changes(key, asked, build(_response(key, version), answer)))


def test_a_users_password_is_not_shown():
    upsertion = {"name": "carol", "mechanism": 1, "iterations": 4096, "salt": SECRET, "salted_password": SECRET}
    request = {"upsertions": [upsertion], "deletions": [{"name": "dave", "mechanism": 2}]}
    answer = {"results": [{"user": "carol"}, {"user": "dave", "error_code": ErrorCode.resource_not_found}]}
    found = described(51, 0, request, answer)
    assert found == [
        AdminChange("USER", "carol", "ALTER", "", {"set": ["SCRAM-SHA-256"]}),
        AdminChange("USER", "dave", "ALTER", "RESOURCE_NOT_FOUND", {"deleted": ["SCRAM-SHA-512"]}),
    ]
    assert SECRET.decode() not in repr(found)


def test_only_values_that_cannot_be_secret_are_shown():
    configs = [
        {"name": "retention.ms", "value": "1000"},
        {"name": "cleanup.policy", "value": "compact"},
        {"name": "queue.attributes", "value": SECRET.decode()},
        {"name": "unknown", "value": SECRET.decode()},
        {"name": "segment.bytes", "value": SECRET.decode()},
    ]
    request = {"resources": [{"resource_type": 2, "resource_name": "orders", "configs": configs}]}
    answer = {"responses": [{"resource_type": 2, "resource_name": "orders", "error_code": ErrorCode.invalid_config}]}
    (change,) = described(44, 1, request, answer)
    assert change == AdminChange(
        "TOPIC",
        "orders",
        "ALTER_CONFIGS",
        "INVALID_CONFIG",
        {
            "settings": {
                "retention.ms": "1000",
                "cleanup.policy": "compact",
                "queue.attributes": None,
                "unknown": None,
                "segment.bytes": None,
            }
        },
    )


def test_acls_are_shown_in_full():
    acl = {
        "resource_type": 2,
        "resource_name": "pay.",
        "principal": "User:bob",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    shown = {"principal": "User:bob", "host": "*", "operation": "READ", "permission": "ALLOW"}
    created = described(30, 3, {"creations": [{**acl, "resource_pattern_type": 4}]}, {"results": [{}]})
    assert created == [AdminChange("TOPIC", "pay.", "ALTER", "", {"acl": {**shown, "patternType": "PREFIXED"}})]
    wanted = {"resource_type_filter": 2, "resource_name_filter": None, "principal_filter": "User:bob"}
    deleted = described(
        31, 3, {"filters": [wanted, wanted]}, {"filter_results": [{"matching_acls": [{**acl, "pattern_type": 3}]}, {}]}
    )
    assert deleted == [
        AdminChange("TOPIC", "pay.", "ALTER", "", {"acl": {**shown, "patternType": "LITERAL"}}),
        AdminChange("TOPIC", "*", "ALTER", "", {"matched": 0, "principal": "User:bob"}),
    ]


def test_an_error_of_the_whole_request_is_that_of_each_resource():
    request = {"feature_updates": [{"feature": "headrace.version", "max_version_level": 2}]}
    answer = {"error_code": ErrorCode.feature_update_failed}
    assert described(57, 1, request, answer) == [
        AdminChange("FEATURE", "headrace.version", "ALTER", "FEATURE_UPDATE_FAILED", {"level": 2})
    ]


def test_the_worst_partition_is_the_error_of_its_topic():
    request = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": (1, 2)}]}]}
    parts = [{"partition_index": 0}, {"partition_index": 1, "error_code": ErrorCode.invalid_replica_assignment}]
    found = described(45, 0, request, {"responses": [{"name": "orders", "partitions": parts}]})
    assert found == [AdminChange("TOPIC", "orders", "ALTER", "INVALID_REPLICA_ASSIGNMENT", {"replicas": {"0": [1, 2]}})]


def test_a_validation_is_no_change():
    request = {"topics": [{"name": "orders", "num_partitions": 1}], "validate_only": True}
    assert described(19, 7, request, {"topics": [{"name": "orders"}]}) == []


def test_a_denial_is_recorded_with_the_rule_that_is_missing(secured):
    assert not context(secured, 0).allows(WRITE_TOPIC, "orders")
    (denial,) = recorded(secured)
    assert (denial.kind, denial.outcome) == (AuditClass.AUTHORIZATION, AuditOutcome.DENIED)
    assert (denial.action, denial.resource_type, denial.resource_name, denial.operation) == (
        "Produce",
        "TOPIC",
        "orders",
        "WRITE",
    )
    assert denial.reason == "no rule allows User:bob from 10.1.2.3 to write on topic orders"
    assert (denial.subject.principal, denial.client_id) == ("User:bob", "app")


def delete_groups_answer(code: ErrorCode) -> Any:
    return build(_response(42, 2), {"results": [{"group_id": "g", "error_code": code}]})


@pytest.mark.parametrize("kind", ["value", "deferred", "coroutine", "coroutine of deferred"])
def test_a_change_is_recorded_when_it_is_answered(secured, monkeypatch, kind):
    answer = delete_groups_answer(ErrorCode.non_empty_group)
    later: Deferred[Any] = Deferred()

    async def work() -> Any:
        return later if "deferred" in kind else answer

    def handler(*_: Any) -> Any:
        if kind.startswith("coroutine"):
            return work()
        return later if kind == "deferred" else answer

    request = build(_request(42, 2), {"groups_names": ("g",)})
    result = audited._change(handler)(context(secured, 42, 2), request)
    if kind.startswith("coroutine"):
        assert recorded(secured) == []
        result = secured.run(result)
    if "deferred" in kind:
        assert recorded(secured) == []
        sent: list[Any] = []
        result.then(sent.append)
        later.resolve(answer)
        assert sent == [answer]
    else:
        assert result is answer
    (event,) = recorded(secured)
    assert (event.action, event.resource_name, event.error) == ("DeleteGroups", "g", "NON_EMPTY_GROUP")
    assert event.outcome is AuditOutcome.FAILURE


def test_a_handler_that_fails_is_recorded_as_a_failure(secured):
    async def handler(*_: Any) -> Any:
        raise RuntimeError("a defect")

    request = build(_request(42, 2), {"groups_names": ("g",)})
    with pytest.raises(RuntimeError):
        secured.run(audited._change(handler)(context(secured, 42, 2), request))
    assert [each.error for each in recorded(secured)] == ["UNKNOWN_SERVER_ERROR"]


def test_a_denied_change_is_recorded_once_as_a_denial(secured):
    request = build(_request(42, 2), {"groups_names": ("g",)})
    answer = delete_groups_answer(ErrorCode.group_authorization_failed)
    audited._change(lambda *_: answer)(context(secured, 42, 2), request)
    assert recorded(secured) == []


def test_fetches_of_replicas_are_not_recorded(secured):
    audit = secured.services.security.audit
    audit.configure(AuditRules(classes=frozenset({AuditClass.CONSUME})))
    secured.services.security.authorizer = None
    fetch = audited._use(lambda *_: "answer", *audited._DATA[1])
    topics = (SimpleNamespace(topic="orders"),)
    for replica in (1, -1):
        request = SimpleNamespace(topics=topics, replica_state=SimpleNamespace(replica_id=replica))
        assert fetch(context(secured, 1, 15), request) == "answer"
    assert [each.resource_name for each in recorded(secured)] == ["orders"]
