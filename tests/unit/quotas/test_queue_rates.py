"""Rates of requests over SQS, by queue and by access key."""

from headrace.model.quotas import ACCESS_KEY, QUEUE, QuotaKind
from headrace.quotas import queue_rates
from headrace.quotas.queue_rates import QueueRates

REQUESTS, MESSAGES = QuotaKind.SQS_REQUESTS.value, QuotaKind.SQS_MESSAGES.value


def _rates(**quotas: float) -> QueueRates:
    rates = QueueRates()
    rates.update({((QUEUE, "orders"),): quotas}, 0)
    return rates


def _counted(rates: QueueRates, times: int, now_ms: int, queue: str = "orders", messages: int = 0) -> int:
    """How many of so many requests are not refused."""
    return sum(rates.count(queue, "key", messages, now_ms) is None for _ in range(times))


def test_without_quotas_nothing_is_counted() -> None:
    rates = QueueRates()
    assert not rates.is_active
    assert _counted(rates, 1000, 0) == 1000
    assert list(rates.all()) == []


def test_the_requests_of_a_second_at_once_and_then_the_rate() -> None:
    rates = _rates(**{REQUESTS: 10})
    assert rates.is_active
    assert _counted(rates, 50, 0) == 10
    assert _counted(rates, 50, 500) == 5
    assert sum(_counted(rates, 1, now_ms) for now_ms in range(500, 10_500, 10)) in (99, 100)
    assert _counted(rates, 50, 0, queue="others") == 50


def test_a_batch_may_overdraw_what_is_left() -> None:
    rates = _rates(**{MESSAGES: 5})
    assert _counted(rates, 1, 0, messages=10) == 1
    refused = rates.count("orders", "key", 1, 0)
    assert refused is not None
    assert str(refused) == "queue orders has used up its quota of 5 messages sent each second: try again in 1.2 seconds"
    assert _counted(rates, 1, 0) == 1, "requests that send nothing have no quota"
    assert _counted(rates, 1, 1_300, messages=1) == 1


def test_a_default_is_for_each_by_itself_and_a_refused_request_counts_nowhere() -> None:
    rates = QueueRates()
    rates.update({((QUEUE, None),): {REQUESTS: 1}, ((ACCESS_KEY, "key"),): {REQUESTS: 3}}, 0)
    assert [_counted(rates, 5, 0, queue=name) for name in ("a", "b", "c", "d")] == [1, 1, 1, 0]
    assert {(entity, name): account.refused_count for entity, name, _, account in rates.all()} == {
        ("queue", "a"): 4, ("queue", "b"): 4, ("queue", "c"): 4, ("queue", "d"): 0, ("access-key", "key"): 5,
    }  # fmt: skip


def test_a_changed_quota_is_in_force_at_once() -> None:
    rates = _rates(**{REQUESTS: 10})
    assert _counted(rates, 50, 0) == 10
    rates.update({((QUEUE, "orders"),): {REQUESTS: 100}}, 0)
    assert _counted(rates, 50, 100) == 10
    rates.update({}, 0)
    assert _counted(rates, 50, 100) == 50


def test_the_number_of_accounts_is_bounded() -> None:
    rates = QueueRates()
    rates.update({((QUEUE, None),): {REQUESTS: 1}}, 0)
    most = queue_rates.MAX_ACCOUNTS
    assert sum(_counted(rates, 1, 0, queue=f"q{number}") for number in range(most + 10)) == most + 1
    assert len(list(rates.all())) == most + 1
    assert _counted(rates, 1, 5_000, queue="new") == 1
    assert len(list(rates.all())) == 1, "those that are as good as new are forgotten"
