"""Rates of connections: addresses are refused, listeners and the broker make connections wait their turn."""

from headrace.model.quotas import QuotaKind
from headrace.quotas.connection_rate import MAX_WAIT_MS, Admission, ConnectionRates
from headrace.quotas.limits import QuotaTable
from headrace.quotas.rate import RateWindows

NO_QUOTAS = QuotaTable({})


def limited_addresses(per_s: float) -> QuotaTable:
    return QuotaTable({(("ip", "10.0.0.1"),): {QuotaKind.CONNECTION: per_s}})


def test_an_address_beyond_its_quota_is_refused_and_that_does_not_count() -> None:
    rates = ConnectionRates(RateWindows())
    assert not rates.is_limited
    rates.update(limited_addresses(2), None, {})
    assert rates.is_limited
    assert [rates.admit("10.0.0.1", "plain", 0) for _ in range(20)] == [Admission()] * 20
    # 21 in 10 s is 2.1/s: 0.1 / 2 * 10 s.
    assert [rates.admit("10.0.0.1", "plain", 0) for _ in range(3)] == [Admission(500, is_refused=True)] * 3
    assert rates.admit("10.0.0.2", "plain", 0) == Admission()
    assert rates.admit("10.0.0.1", "plain", 500) == Admission()
    assert rates.refused_count == 3


def test_connections_of_a_listener_wait_one_after_the_other() -> None:
    rates = ConnectionRates(RateWindows())
    rates.update(NO_QUOTAS, None, {"public": 10})
    admitted = [rates.admit("10.0.0.1", "public", 0) for _ in range(150)]
    assert [each.delay_ms for each in admitted[:100]] == [0] * 100
    delays = [each.delay_ms for each in admitted[100:]]
    assert delays == sorted(delays)
    # The first hundred have used up ten seconds: then ten each second.
    assert 10_000 <= delays[-1] <= 13_000
    assert not any(each.is_refused for each in admitted)
    assert rates.admit("10.0.0.1", "other", 0) == Admission()


def test_the_listener_of_brokers_ignores_the_limit_of_the_broker() -> None:
    rates = ConnectionRates(RateWindows())
    rates.update(NO_QUOTAS, 1, {})
    assert [rates.admit("10.0.0.1", "plain", 0).delay_ms for _ in range(12)][-1] > 0
    assert rates.admit("10.0.0.1", "inter", 0, is_protected=True) == Admission()
    rates.update(NO_QUOTAS, None, {})
    assert rates.admit("10.0.0.1", "plain", 0) == Admission()


def test_addresses_are_bounded_and_forgotten() -> None:
    rates = ConnectionRates(RateWindows(), max_addresses=2)
    rates.update(QuotaTable({(("ip", None),): {QuotaKind.CONNECTION: 1}}), None, {})
    for number in range(10):
        rates.admit(f"10.0.0.{number}", "plain", number)
    assert rates.address_count == 2
    rates.forget_idle(20_000)
    assert rates.address_count == 0


def test_those_who_only_open_connections_do_not_block_a_listener_for_long() -> None:
    rates = ConnectionRates(RateWindows())
    rates.update(NO_QUOTAS, None, {"public": 10})
    admitted = [rates.admit("10.0.0.1", "public", 0) for _ in range(10_000)]
    assert admitted[-1] == Admission(0, is_refused=True)
    assert max(each.delay_ms for each in admitted) <= MAX_WAIT_MS + 1000
    assert not rates.admit("10.0.0.2", "public", 2000).is_refused
    assert rates.admit("10.0.0.2", "public", MAX_WAIT_MS + 15_000) == Admission()
