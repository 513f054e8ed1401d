"""Which clients push what, and when they may: Kafka's rules, and the bounds."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from headrace.model.errors import ProtocolError, SettingsError, TelemetryThrottled, UnknownSubscription
from headrace.monitor.clients import instances
from headrace.monitor.clients.instances import ClientInstance, ClientInstances
from headrace.monitor.clients.otlp import MetricPoint, PushedMetrics
from headrace.monitor.clients.subscriptions import ClientFacts, subscription_of, wanted_metrics

A, B = UUID(int=1), UUID(int=2)
FACTS = ClientFacts(str(A), "shop-1", "librdkafka", "2.16.1", "10.1.2.3", "5555")
EVERYTHING = {"all": {"metrics": "*", "interval.ms": "1000"}}


class Subject:
    def __init__(self, settings: Mapping[str, Mapping[str, str]] = EVERYTHING) -> None:
        self.settings = settings
        self.known = ClientInstances(lambda: self.settings)

    def ask(self, now_ms: float, instance_id: UUID = A) -> ClientInstance:
        return self.known.ask(instance_id, FACTS, now_ms)

    def push(
        self, now_ms: float, *points: MetricPoint, is_last: bool = False, subscription_id: int | None = None
    ) -> ClientInstance:
        wanted = dict(self.known.clients(now_ms))[A].subscription_id if subscription_id is None else subscription_id
        client = self.known.check_push(A, FACTS, now_ms, wanted, is_last=is_last)
        self.known.pushed(client, PushedMetrics(list(points), 0), 100, is_last=is_last)
        return client


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, ((), 300_000)),
        ({"a": {"metrics": "*"}}, (("",), 300_000)),
        ({"a": {"interval.ms": "1000"}}, ((), 300_000)),
        ({"a": {"metrics": "y,x", "interval.ms": "1000"}, "b": {"metrics": "x,z"}}, (("x", "y", "z"), 1000)),
        ({"a": {"metrics": "x", "match": "client_id=shop-.*,client_software_name=librdkafka"}}, (("x",), 300_000)),
        ({"a": {"metrics": "x", "match": "client_id=shop"}}, ((), 300_000)),
        ({"a": {"metrics": "x", "match": "client_id=shop-.*,client_source_port=1"}}, ((), 300_000)),
        ({"a": {"metrics": "x", "match": "client_source_address=10[.].*"}, "b": {"metrics": "*"}}, (("",), 300_000)),
        ({"a": {"metrics": "x", "match": f"client_instance_id={A}"}}, (("x",), 300_000)),
    ],
)
def test_subscriptions_that_match(
    settings: Mapping[str, Mapping[str, str]], wanted: tuple[tuple[str, ...], int]
) -> None:
    assert wanted_metrics(map(subscription_of, settings.values()), FACTS) == wanted


@pytest.mark.parametrize(
    "match", ["client_id", "client_id=", "principal=alice", "client_id=(", "client_id=" + "x" * 2000]
)
def test_patterns_that_are_refused(match: str) -> None:
    with pytest.raises(SettingsError):
        subscription_of({"match": match})


def test_a_client_asks_after_its_interval() -> None:
    subject = Subject()
    first = subject.ask(0)
    assert first.wanted == (("",), 1000)
    with pytest.raises(TelemetryThrottled):
        subject.ask(999)
    assert subject.ask(1000).subscription_id == first.subscription_id
    assert subject.ask(1000, B).subscription_id != first.subscription_id


def test_a_client_pushes_once_in_an_interval_and_a_last_time() -> None:
    subject = Subject()
    subject.ask(0)
    subject.push(100)  # at once, because it has just asked
    with pytest.raises(TelemetryThrottled):
        subject.push(1099)
    subject.push(1100)
    assert subject.push(1200, is_last=True).pushes == 3
    with pytest.raises(ProtocolError):
        subject.push(9999)


def test_a_changed_subscription_is_asked_for_at_once() -> None:
    subject = Subject()
    before = subject.ask(0).subscription_id
    subject.push(100)
    subject.settings = {"all": {"metrics": "x", "interval.ms": "1000"}}
    with pytest.raises(UnknownSubscription):
        subject.push(1100, subscription_id=before)
    client = subject.ask(1101)
    assert client.wanted.prefixes == ("x",)
    assert client.subscription_id != before
    subject.push(2101)


def test_deltas_are_added_up_and_gauges_replaced() -> None:
    subject = Subject()
    subject.ask(0)
    attributes = (("topic", "orders"),)
    for now_ms, value in ((0, 2.0), (1000, 3.0)):
        client = subject.push(
            now_ms,
            MetricPoint("sent", "", attributes, value, is_delta=True),
            MetricPoint("size", "bytes", (), value),
            MetricPoint("broken", "", (), float("nan")),
        )
    assert client.values == {("sent", attributes): 5.0, ("size", ()): 3.0}
    assert client.units == {"sent": "", "size": "bytes"}


def test_clients_and_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "MAX_CLIENTS", 3)
    monkeypatch.setattr(instances, "MAX_SERIES", 2)
    monkeypatch.setattr(instances, "MAX_ALL_SERIES", 3)
    known = ClientInstances(lambda: EVERYTHING)
    points = PushedMetrics([MetricPoint(f"m{each}", "", (), 1.0) for each in range(5)], 1)
    made = [known.ask(UUID(int=each), FACTS, 0) for each in range(1, 5)]
    assert [instance_id.int for instance_id, _ in known.clients(0)] == [2, 3, 4]
    for client in made[1:]:
        known.pushed(client, points, 10, is_last=False)
    assert [len(client.values) for client in made[1:]] == [2, 1, 0]
    assert [client.dropped for client in made[1:]] == [4, 5, 6]
    known.ask(UUID(int=9), FACTS, 0)  # the second is dropped, and its values
    known.pushed(made[3], points, 10, is_last=False)
    assert len(made[3].values) == 2


def test_clients_expire() -> None:
    subject = Subject({"all": {"metrics": "*", "interval.ms": "100000"}})
    subject.ask(0)
    subject.ask(0, B)
    subject.push(0, is_last=True)
    assert {each for each, _ in subject.known.clients(59_999)} == {A, B}
    assert {each for each, _ in subject.known.clients(61_000)} == {B}
    assert not list(subject.known.clients(301_000))
