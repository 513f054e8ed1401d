"""What a failover says is missing, after the source is lost together with the broker that copied from it."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.mirror.figure_exchange import FILE_NAME
from headrace.testing.etcd import EtcdProcess
from headrace.testing.process import BrokerProcess
from tests.interop.test_link_ring import call
from tests.waiting import until

FAST = {"link.refresh.interval.ms": 100}
COUNT = 50


def send(broker: BrokerProcess, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce("orders", str(number), partition=0)
    assert producer.flush(60) == 0


def lag(broker: BrokerProcess) -> dict[str, Any] | None:
    rows = call(broker, "GET", "/links/eu")["topics"]
    return rows[0] if rows and rows[0]["partitions"][0]["local_end"] else None


def mirrored(source: BrokerProcess, target: BrokerProcess) -> None:
    """The target has a mirror of orders, with everything."""
    send(source, COUNT)
    call(target, "POST", "/links", {"name": "eu", "bootstrap": [source.bootstrap], "topics": ["orders"]})
    until(lambda: (row := lag(target)) is not None and row["lag_messages"] == 0, "the mirror")


def plan(broker: BrokerProcess) -> Any:
    return call(broker, "POST", "/mirrors/orders/failover", {"dry_run": True})


def test_figures_survive_a_restart(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "us", settings=FAST) as target:
        with BrokerProcess(tmp_path / "eu") as source:
            mirrored(source, target)
            stored = tmp_path / "us" / FILE_NAME
            until(lambda: stored.exists() and stored.stat().st_size > len(b"empty"), "the stored figures")
        target.restart(kill=True)
        found: Any = until(lambda: answer if (answer := plan(target))["missing_messages"] is not None else None)
        assert found["missing_messages"] == 0
        assert 0 < found["missing_seconds"] < 120
        taken = call(target, "POST", "/mirrors/orders/failover", {})
        detail = call(target, "GET", "/links/eu")
        assert detail["last_takeover_topic"] == "orders"
        assert 0 < detail["last_takeover_took_ms"] <= taken["took_ms"] + 1
        target.restart(kill=True)
        assert call(target, "GET", "/links/eu")["last_takeover_took_ms"] == detail["last_takeover_took_ms"]


@pytest.mark.slow
def test_figures_survive_the_loss_of_source_and_leader(tmp_path: Path) -> None:
    with contextlib.closing(EtcdProcess(tmp_path / "etcd").start()) as etcd:
        settings = {
            **FAST,
            "etcd.endpoints": etcd.endpoint,
            "broker.session.timeout.ms": 4_000,
            "default.replication.factor": 3,
        }
        with contextlib.ExitStack() as stack:
            brokers = {
                number: stack.enter_context(
                    BrokerProcess(tmp_path / str(number), settings={**settings, "broker.id": number})
                )
                for number in (1, 2, 3)
            }
            with BrokerProcess(tmp_path / "eu") as source:
                mirrored(source, brokers[1])
                until(lambda: len(call(brokers[1], "GET", "/topics/orders")["partitions"][0]["isr"]) == 3)
                leader = lag(brokers[1])["partitions"][0]["leader"]  # type: ignore[index]
                # The source is away first, so that no other leader can hear it.
                source.kill()
                other = brokers[1 if leader != 1 else 2]
                until(lambda: plan(other)["missing_seconds"] > 0.5)
                brokers[leader].kill()
                moved: Any = until(
                    lambda: (
                        row if (row := lag(other)) is not None and row["partitions"][0]["leader"] != leader else None
                    ),
                    "another leader",
                )
                assert moved["lag_messages"] == 0
                found = plan(other)
                assert (found["missing_messages"], found["missing_seconds"] < 120) == (0, True)
                assert call(other, "POST", "/mirrors/orders/failover", {})["missing_messages"] == 0
