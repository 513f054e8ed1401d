"""Changes of quotas and questions about them are refused where Kafka refuses them."""

import pytest

from headrace.model.errors import InvalidQuota, UnsupportedFeature
from headrace.model.quotas import ClusterQuotas, QuotaEntity
from headrace.quotas.alteration import EntityFilter, altered, checked_entity, matching

ALICE: QuotaEntity = (("user", "alice"),)
QUOTAS: ClusterQuotas = {
    ALICE: {"producer_byte_rate": 1.0},
    (("user", None),): {"producer_byte_rate": 2.0},
    (("user", "alice"), ("client-id", "app")): {"producer_byte_rate": 3.0},
    (("user", None), ("client-id", None)): {"producer_byte_rate": 4.0},
    (("client-id", "app"),): {"producer_byte_rate": 5.0},
    (("ip", "10.0.0.1"),): {"connection_creation_rate": 6.0},
}


def test_the_order_of_types_does_not_matter() -> None:
    assert checked_entity([("client-id", "c"), ("user", None)]) == (("user", None), ("client-id", "c"))


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ([], "needs an entity"),
        ([("dog", "rex")], "type 'dog'"),
        ([("user", "")], "must not be empty"),
        ([("user", "x" * 1025)], "more than 1024"),
        ([("ip", "10.0.0.1"), ("user", "alice")], "cannot be combined"),
        ([("ip", "not-an-address")], "not an IP address"),
        ([("client-id", "a"), ("client-id-prefix", "a")], "not for both"),
        ([("client-id-prefix", None)], "has no default"),
    ],
)
def test_entities_that_are_refused(pairs: list[tuple[str, str | None]], why: str) -> None:
    with pytest.raises(InvalidQuota, match=why):
        checked_entity(pairs)


@pytest.mark.parametrize(
    ("entity", "name", "value", "why"),
    [
        (ALICE, "connection_creation_rate", 1.0, "has no quota"),
        ((("ip", None),), "producer_byte_rate", 1.0, "has no quota"),
        (ALICE, "bogus", 1.0, "has no quota"),
        (ALICE, "producer_byte_rate", 0.0, "greater than 0"),
        (ALICE, "producer_byte_rate", -1.0, "greater than 0"),
        (ALICE, "request_percentage", float("nan"), "greater than 0"),
        (ALICE, "request_percentage", float("inf"), "finite"),
        (ALICE, "consumer_byte_rate", 1.5, "whole number"),
        (ALICE, "producer_byte_rate", 1e19, "not be greater than 9223372036854775807"),
        ((("ip", None),), "connection_creation_rate", 2.0**31, "not be greater than 2147483647"),
    ],
)
def test_values_that_are_refused(entity: QuotaEntity, name: str, value: float, why: str) -> None:
    with pytest.raises(InvalidQuota, match=why):
        altered(entity, {}, [(name, value)])


def test_changes_are_made_together_or_not_at_all() -> None:
    old = {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}
    changes = [("producer_byte_rate", None), ("request_percentage", 0.5), ("bogus", None)]
    assert altered(ALICE, old, changes) == {"consumer_byte_rate": 2.0, "request_percentage": 0.5}
    with pytest.raises(InvalidQuota, match="more than once"):
        altered(ALICE, old, [("producer_byte_rate", 1.0), ("producer_byte_rate", None)])


@pytest.mark.parametrize(
    ("filters", "strict", "found"),
    [
        ([], False, [1, 2, 3, 4, 5, 6]),
        ([], True, []),
        ([EntityFilter("user", 0, "alice")], False, [1, 3]),
        ([EntityFilter("user", 0, "alice")], True, [1]),
        ([EntityFilter("user", 1, None)], False, [2, 4]),
        ([EntityFilter("user", 2, None)], True, [1, 2]),
        ([EntityFilter("user", 2, None), EntityFilter("client-id", 2, None)], True, [3, 4]),
        ([EntityFilter("client-id", 0, "app")], False, [3, 5]),
        ([EntityFilter("ip", 2, None)], True, [6]),
        ([EntityFilter("user", 0, "bob")], False, []),
    ],
)
def test_filters(filters: list[EntityFilter], strict: bool, found: list[float]) -> None:
    assert [next(iter(each.values())) for each in matching(QUOTAS, filters, strict=strict).values()] == found


@pytest.mark.parametrize(
    ("filters", "error"),
    [
        ([EntityFilter("", 2, None)], InvalidQuota),
        ([EntityFilter("dog", 2, None)], UnsupportedFeature),
        ([EntityFilter("user", 2, None)] * 2, InvalidQuota),
        ([EntityFilter("user", 0, None)], InvalidQuota),
        ([EntityFilter("user", 1, "x")], InvalidQuota),
        ([EntityFilter("user", 2, "x")], InvalidQuota),
        ([EntityFilter("user", 7, None)], InvalidQuota),
        ([EntityFilter("user", 2, None), EntityFilter("ip", 2, None)], InvalidQuota),
    ],
)
def test_questions_that_are_refused(filters: list[EntityFilter], error: type[Exception]) -> None:
    with pytest.raises(error):
        matching(QUOTAS, filters, strict=False)


def test_many_changes_at_once_take_no_time() -> None:
    with pytest.raises(InvalidQuota, match="has no quota"):
        altered(ALICE, {}, [(f"quota-{number}", 1.0) for number in range(100_000)])
