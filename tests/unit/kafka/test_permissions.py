"""The matrix of permissions: each API at each version, without permissions, without one of them, and with all."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

import headrace.kafka.handlers  # noqa: F401  registers every API
from headrace.kafka.dispatch import APIS
from headrace.kafka.permissions import NOTHING, Need
from headrace.model.acls import IMPLIED_BY, Acl, ResourceType

from .permission_case import ERRORS, Case
from .permission_requests_groups import APIS_OF_GROUPS
from .secured import allow, secured_broker
from .topic_permission_cases import TOPIC_AND_CLUSTER_CASES

CASES: list[Case] = [*TOPIC_AND_CLUSTER_CASES]

MATRIX = [
    pytest.param(case, version, id=f"{case}-v{version}")
    for case in CASES
    for version in range(max(APIS[case.key].min_served, case.from_version), APIS[case.key].max_version + 1)
]


def test_each_api_with_permissions_has_a_case() -> None:
    """Those of groups and transactions, which need coordinators, are tested in `test_group_permissions.py`."""
    with_needs = {key for key, api in APIS.items() if api.needs != NOTHING}
    assert with_needs - {case.key for case in CASES} == APIS_OF_GROUPS


def test_cases_cover_the_permissions_that_handlers_declare() -> None:
    for key in {case.key for case in CASES}:
        covered: set[Need] = set()
        for case in (case for case in CASES if case.key == key):
            covered.update(case.needs, case.optional, *case.or_else)
        assert covered == set(APIS[key].needs), key


@pytest.mark.parametrize(("case", "version"), MATRIX)
def test_a_request_needs_its_permissions(case: Case, version: int, tmp_path: Path) -> None:
    with secured_broker(tmp_path) as scene:
        before = scene.state()
        for missing, granted in _insufficient(case):
            scene.permit(*_acls(case, granted))
            scene.denials.clear()
            answer = scene.call(case.key, version, **case.fields(scene, version))
            if case.is_denied is not None:
                assert case.is_denied(answer, version)
            else:
                expected = {case.codes.get(need, ERRORS[need.kind]) for need in missing}
                assert _authorization_errors(answer), (granted, answer)
                assert _authorization_errors(answer) <= expected, (granted, answer)
                assert scene.denials, "a denial is reported to the audit log"
            assert scene.state() == before
        for granted in ((*case.needs, *case.optional), *case.or_else, case.needs):
            scene.permit(*_acls(case, granted))
            scene.denials.clear()
            answer = scene.call(case.key, version, **case.fields(scene, version))
            assert not _authorization_errors(answer) - case.others, (granted, answer)
            assert case.is_denied is None or not case.is_denied(answer, version)
            assert not scene.denials
        assert (scene.state() != before) is case.changes


def test_a_denial_is_about_the_resource_of_the_request(tmp_path: Path) -> None:
    """Permissions for another topic, another principal or another host do not help."""
    with secured_broker(tmp_path) as scene:
        for case in (case for case in CASES if case.key in (0, 1, 2, 20, 37)):
            for need in (need for need in case.needs if need.kind is ResourceType.TOPIC):
                elsewhere = (
                    allow(need, "other"),
                    allow(need, principal="User:bob"),
                    dataclasses.replace(allow(need), host="10.9.9.9"),
                )
                others = [allow(other) for other in case.needs if other is not need]
                scene.permit(*elsewhere, *others)
                version = APIS[case.key].max_version
                answer = scene.call(case.key, version, **case.fields(scene, version))
                assert _authorization_errors(answer) == {ErrorCode.topic_authorization_failed}


def _insufficient(case: Case) -> Iterator[tuple[tuple[Need, ...], tuple[Need, ...]]]:
    """Yield permissions that do not suffice, each with those that are missing."""
    yield case.needs, ()
    for need in case.needs:
        rest = tuple(other for other in case.needs if other is not need)
        is_implied = any(
            other.kind is need.kind and other.operation in IMPLIED_BY.get(need.operation, ()) for other in rest
        )
        if rest and not is_implied:
            yield (need,), rest


def _acls(case: Case, needs: tuple[Need, ...]) -> tuple[Acl, ...]:
    return tuple(allow(need, case.topic if need.kind is ResourceType.TOPIC else None) for need in needs)


def _authorization_errors(answer: Any) -> set[ErrorCode]:
    return {code for code in _codes(answer) if code in ERRORS.values()}


def _codes(part: Any) -> Iterator[ErrorCode]:
    if isinstance(part, ErrorCode):
        yield part
    elif isinstance(part, tuple):
        for each in part:
            yield from _codes(each)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from _codes(getattr(part, field.name))
