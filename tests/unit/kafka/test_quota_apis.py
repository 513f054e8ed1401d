"""AlterClientQuotas and DescribeClientQuotas without a connection: entries, errors, and changes in force at once."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.model.quotas import QuotaKind
from tests.entities import build

from .harness import Harness

RATE = {"key": "producer_byte_rate", "value": 1000.0, "remove": False}


def alter(harness: Harness, version: int, *entries: tuple[dict[str, str | None], list[dict[str, Any]]]) -> list[Any]:
    body = [
        {"entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()], "ops": ops}
        for entity, ops in entries
    ]
    fields = {"entries": body, "validate_only": False}
    answer = harness.call(49, version, lambda schema: build(schema.AlterClientQuotasRequest, fields))
    return list(answer.entries)


def describe(harness: Harness, version: int, *components: dict[str, Any]) -> Any:
    fields = {"components": components, "strict": False}
    return harness.call(48, version, lambda schema: build(schema.DescribeClientQuotasRequest, fields))


@pytest.mark.parametrize("version", range(2))
def test_each_entry_has_its_own_result(harness: Harness, version: int) -> None:
    answers = alter(
        harness,
        version,
        ({"user": "alice"}, [RATE]),
        ({"user": "bob"}, [{**RATE, "value": 0.0}]),
        ({"user": "carol"}, [RATE, RATE]),
        ({"user": "dave"}, [RATE]),
        ({"user": "dave"}, [RATE]),
    )
    assert [each.error_code for each in answers] == [ErrorCode.none] + [ErrorCode.invalid_request] * 4
    assert [each.entity[0].entity_name for each in answers] == ["alice", "bob", "carol", "dave", "dave"]
    assert answers[1].error_message == "producer_byte_rate must be greater than 0; remove the quota to allow any rate"
    assert harness.metadata.image.quotas == {(("user", "alice"),): {QuotaKind.PRODUCE: 1000.0}}
    described = describe(harness, version)
    assert [(each.entity[0].entity_name, each.values[0].value) for each in described.entries] == [("alice", 1000.0)]
    assert alter(harness, version, ({"user": "alice"}, [{**RATE, "remove": True}]))[0].error_code is ErrorCode.none
    assert describe(harness, version).entries == ()
    assert harness.metadata.image.quotas == {}


@pytest.mark.parametrize("version", range(2))
def test_questions_that_make_no_sense(harness: Harness, version: int) -> None:
    alice = {"entity_type": "user", "match_type": 0, "match": "alice"}
    assert describe(harness, version, alice).error_code is ErrorCode.none
    for wrong, code in (
        ({"entity_type": "dog"}, ErrorCode.unsupported_version),
        ({"match_type": 7}, ErrorCode.invalid_request),
        ({"match": None}, ErrorCode.invalid_request),
    ):
        answer = describe(harness, version, {**alice, **wrong})
        assert (answer.error_code, answer.entries) == (code, None)
        assert answer.error_message
