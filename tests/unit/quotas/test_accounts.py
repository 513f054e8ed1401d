"""Accounts: who is counted together, what a change of quotas does, and how many there are."""

from headrace.model.quotas import MAX_NAME_CHARS, QuotaKind
from headrace.quotas.accounts import QuotaAccount, QuotaAccounts, QuotaWindows
from headrace.quotas.cluster_demand import ClusterDemand, DemandReport
from headrace.quotas.shares import BrokerDemand

PRODUCE, FETCH, REQUEST, MUTATION = QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST, QuotaKind.MUTATION


def accounts(max_accounts: int = 100) -> QuotaAccounts:
    return QuotaAccounts(QuotaWindows(), max_accounts)


def opened(account: QuotaAccount | None) -> QuotaAccount:
    assert account is not None
    return account


def test_clients_of_a_user_share_its_quota_and_defaults_are_for_each() -> None:
    ours = accounts()
    ours.update({(("user", "alice"),): {PRODUCE: 1000}, (("user", None),): {PRODUCE: 1000}})
    assert opened(ours.client("alice", "a", 0).produce).record(10_000, 0) == 0
    assert opened(ours.client("alice", "b", 0).produce).record(1000, 0) == 1000
    assert opened(ours.client("bob", "a", 0).produce).record(10_000, 0) == 0
    assert opened(ours.client("carol", "a", 0).produce).record(10_000, 0) == 0
    assert ours.client("alice", "a", 0).fetch is None


def test_a_changed_quota_counts_what_was_used_before() -> None:
    ours = accounts()
    ours.update({(("user", "alice"),): {PRODUCE: 1000}})
    assert opened(ours.client("alice", "a", 0).produce).record(8000, 0) == 0
    ours.update({(("user", "alice"),): {PRODUCE: 500}})
    assert opened(ours.client("alice", "a", 0).produce).record(0, 0) == 6000
    ours.update({})
    assert ours.client("alice", "a", 0).produce is None


def test_a_delay_of_request_time_lasts_at_most_one_window() -> None:
    ours = accounts()
    ours.update({(("user", "alice"),): {REQUEST: 1.0, PRODUCE: 1.0}})
    client = ours.client("alice", "a", 0)
    assert opened(client.request).record(50.0, 0) == 1000
    assert opened(client.produce).record(50.0, 0) == 40_000


def test_a_tiny_quota_has_the_longest_delay() -> None:
    ours = accounts()
    ours.update({(("user", "alice"),): {REQUEST: 5e-324, PRODUCE: 5e-324, MUTATION: 5e-324}})
    client = ours.client("alice", "a", 0)
    assert opened(client.request).record(50.0, 0) == 1000
    assert opened(client.produce).record(50.0, 0) == opened(client.mutation).record(50.0, 0) == 2**31 - 1


def test_of_a_long_client_id_only_the_beginning_is_kept() -> None:
    ours = accounts()
    ours.observe(everyone=True)
    for number in range(50):
        ours.client("alice", "x" * 30_000 + str(number), 0)
    assert {len(each.name.client_id) for each in ours.all()} == {MAX_NAME_CHARS}
    assert len(ours) == 4


def test_mutations_that_are_owed() -> None:
    ours = accounts()
    ours.update({(("user", "alice"),): {MUTATION: 2.0}})
    account = opened(ours.client("alice", "a", 0).mutation)
    assert account.owed_ms(0) == 0
    assert account.record(32, 0) == 5000
    assert account.owed_ms(3000) == 2000
    assert account.owed_ms(5000) == 0


def test_observed_clients_have_accounts_without_a_bound() -> None:
    ours = accounts()
    ours.observe(everyone=True)
    account = opened(ours.client("alice", "a", 0).produce)
    assert account.record(10_000_000, 0) == 0
    assert account.used_per_s(0) == 1_000_000
    ours.observe(everyone=False)
    assert ours.client("alice", "a", 0).produce is None


def test_idle_accounts_are_forgotten_and_those_that_owe_tokens_are_not() -> None:
    ours = accounts()
    ours.update({(("user", None),): {PRODUCE: 1000, MUTATION: 1}})
    client = ours.client("alice", "a", 0)
    opened(client.produce).record(1, 0)
    opened(client.mutation).record(1000, 0)
    ours.client("bob", "b", 0)
    assert len(ours) == 4
    ours.forget_idle(11_000)
    assert [(each.kind, each.name.user) for each in ours.all()] == [(MUTATION, "alice")]
    again = ours.client("alice", "a", 11_000)
    assert again.mutation is client.mutation
    assert again.produce is not client.produce
    ours.forget_idle(2_000_000)
    assert len(ours) == 0


def test_clients_beyond_the_bound_share_an_account() -> None:
    ours = accounts(max_accounts=2)
    ours.update({(("client-id", None),): {PRODUCE: 1000}})
    mine = [opened(ours.client("alice", name, 0).produce) for name in "abcd"]
    assert mine[0] is not mine[1]
    assert mine[2] is mine[3]
    assert mine[2].record(11_000, 0) == 1000
    assert len(ours) == 2
    # Once the others were idle there is room again.
    assert opened(ours.client("alice", "e", 20_000).produce).name.client_id == "e"


def shared_by(*others: int) -> ClusterDemand:
    cluster = ClusterDemand()
    cluster.set_others(others)
    return cluster


def test_a_quota_of_the_cluster_is_divided_from_the_first_request_on() -> None:
    ours, cluster = accounts(), shared_by(2, 3)
    ours.update({(("user", "alice"),): {PRODUCE: 3000, MUTATION: 3}})
    ours.share_with(cluster, 0)
    client = ours.client("alice", "a", 0)
    account = opened(client.produce)
    assert (account.limit, account.bound) == (3000, 1000)
    assert account.record(10_000, 0) == 0  # the burst of ten seconds of the third
    assert account.record(1000, 0) == 1000
    assert opened(client.mutation).owed_ms(0) == 0
    opened(client.mutation).record(12, 0)
    assert opened(client.mutation).owed_ms(0) == 1000
    # The others do not use it: this broker has all of it, and what it owes is paid sooner.
    for other in (2, 3):
        cluster.report(other, DemandReport({}, True, 0))
    ours.divide(account, 100)
    assert account.part == 1.0
    assert account.record(0, 100) == 300
    # One of them has clients that are delayed, too.
    busy = {(PRODUCE, account.name): BrokerDemand(100, True)}
    cluster.report(2, DemandReport(busy, True, 1000))
    ours.divide(account, 1000)
    assert account.part == 0.5
    # Nothing is heard any more.
    ours.divide(account, 9000)
    assert round(3 * (account.part or 0), 6) == 1


def test_a_change_of_scope_counts_what_was_used_before() -> None:
    ours, cluster = accounts(), shared_by(2)
    ours.update({(("user", "alice"),): {PRODUCE: 1000}})
    account = opened(ours.client("alice", "a", 0).produce)
    assert account.record(10_000, 0) == 0
    ours.share_with(cluster, 0)
    assert account.record(500, 0) == 1000
    ours.share_with(None, 0)
    assert account.record(0, 0) == 500
    assert ours.client("alice", "a", 0).produce is account


def test_what_is_taken_back_and_the_longest_delay_are_the_same_with_a_share() -> None:
    ours = accounts()
    ours.update({(("user", "alice"),): {FETCH: 2000, REQUEST: 1}})
    ours.share_with(shared_by(2), 0)
    client = ours.client("alice", "a", 0)
    fetch = opened(client.fetch)
    assert fetch.room(0) == 10_000
    assert fetch.record(11_000, 0) == 1000
    fetch.take_back(11_000, 0)
    assert fetch.room(0) == 10_000
    assert opened(client.request).record(1000, 0) == 1000


def test_clients_without_an_account_of_their_own_have_an_equal_part() -> None:
    ours = accounts(max_accounts=1)
    ours.update({(("client-id", None),): {PRODUCE: 900}})
    ours.share_with(shared_by(2, 3), 0)
    assert opened(ours.client("alice", "a", 0).produce).bound == 300
    shared = opened(ours.client("alice", "b", 0).produce)
    assert shared is opened(ours.client("alice", "c", 0).produce)
    ours.divide(shared, 0)
    assert round(shared.bound, 6) == 300
    assert shared.record(4000, 0) > 0
    assert [key for key, _ in ours.demands(0)] == []
