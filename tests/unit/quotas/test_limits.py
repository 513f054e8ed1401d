"""Which quota applies to a client: every pair of levels, and who shares an account."""

from itertools import combinations

import pytest

from headrace.model.quotas import QuotaEntity, QuotaKind
from headrace.quotas.limits import AccountName, QuotaLimit, QuotaTable

PRODUCE = QuotaKind.PRODUCE
LEVELS: dict[QuotaEntity, AccountName] = {
    (("user", "alice"), ("client-id", "app-1")): AccountName("alice", "app-1"),
    (("user", "alice"), ("client-id-prefix", "app-")): AccountName("alice", "app-", is_prefix=True),
    (("user", "alice"), ("client-id", None)): AccountName("alice", "app-1"),
    (("user", "alice"),): AccountName("alice"),
    (("user", None), ("client-id", "app-1")): AccountName("alice", "app-1"),
    (("user", None), ("client-id-prefix", "app-")): AccountName("alice", "app-", is_prefix=True),
    (("user", None), ("client-id", None)): AccountName("alice", "app-1"),
    (("user", None),): AccountName("alice"),
    (("client-id", "app-1"),): AccountName("", "app-1"),
    (("client-id-prefix", "app-"),): AccountName("", "app-", is_prefix=True),
    (("client-id", None),): AccountName("", "app-1"),
}
"""In the order of precedence, each with the account of alice's client app-1."""


@pytest.mark.parametrize(("first", "second"), list(combinations(LEVELS, 2)))
def test_the_more_specific_of_two_quotas_applies(first: QuotaEntity, second: QuotaEntity) -> None:
    for order in ((first, second), (second, first)):
        table = QuotaTable({entity: {PRODUCE: 1.0 if entity is first else 2.0} for entity in order})
        assert table.limit(PRODUCE, "alice", "app-1") == QuotaLimit(1.0, LEVELS[first])


@pytest.mark.parametrize("entity", LEVELS)
def test_each_kind_of_quota_has_its_own_precedence(entity: QuotaEntity) -> None:
    table = QuotaTable({entity: {QuotaKind.FETCH: 1.0}, (("client-id", None),): {PRODUCE: 2.0}})
    assert table.limit(PRODUCE, "alice", "app-1") == QuotaLimit(2.0, AccountName("", "app-1"))
    assert table.limit(QuotaKind.REQUEST, "alice", "app-1") is None


def test_quotas_of_others_do_not_apply() -> None:
    others: list[QuotaEntity] = [
        (("user", "bob"),),
        (("user", "bob"), ("client-id", "app-1")),
        (("user", "alice"), ("client-id", "app-2")),
        (("user", None), ("client-id", "app-2")),
        (("client-id", "app-2"),),
        (("client-id-prefix", "apps"),),
        (("ip", "10.0.0.1"),),
    ]
    table = QuotaTable({entity: {PRODUCE: 1.0} for entity in others})
    assert table.limit(PRODUCE, "alice", "app-1") is None


def test_of_several_prefixes_the_longest_applies() -> None:
    table = QuotaTable({(("client-id-prefix", prefix),): {PRODUCE: len(prefix)} for prefix in ("a", "app", "ap")})
    assert table.limit(PRODUCE, "alice", "app-1") == QuotaLimit(3, AccountName("", "app", is_prefix=True))
    assert table.limit(PRODUCE, "alice", "apx") == QuotaLimit(2, AccountName("", "ap", is_prefix=True))
    assert table.limit(PRODUCE, "alice", "xap") is None


def test_a_client_without_an_id_has_the_default() -> None:
    table = QuotaTable({(("client-id", None),): {PRODUCE: 5.0}})
    assert table.limit(PRODUCE, "alice", "") == QuotaLimit(5.0, AccountName())


def test_addresses() -> None:
    rate = QuotaKind.CONNECTION
    table = QuotaTable({(("ip", "10.0.0.1"),): {rate: 5}, (("ip", "::0001"),): {rate: 7}, (("ip", None),): {rate: 9}})
    assert [table.connections_per_s(each) for each in ("10.0.0.1", "::1", "10.0.0.2")] == [5, 7, 9]
    assert table.limits_addresses
    assert not table.limits_clients
    assert QuotaTable({(("ip", "10.0.0.1"),): {rate: 5}}).connections_per_s("10.0.0.2") is None


def test_an_address_of_ipv4_may_be_written_as_one_of_ipv6() -> None:
    table = QuotaTable({(("ip", "::ffff:10.0.0.1"),): {QuotaKind.CONNECTION: 5}})
    assert table.connections_per_s("10.0.0.1") == 5
