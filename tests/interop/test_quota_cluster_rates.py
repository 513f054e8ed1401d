"""Real clients are held to a quota of the whole cluster, wherever their partitions are."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.cluster import ClusterProcesses
from headrace.wire import Cluster, ConfigResource
from tests.waiting import until

from .quota_requests import quota
from .test_quota_rates import BURST_S, RATE, Work, produce_aiokafka, produce_confluent

pytestmark = pytest.mark.slow

MEASURED_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    folder: Path = tmp_path_factory.mktemp("shares")
    with ClusterProcesses(folder, brokers=3) as made:
        with Cluster(made.bootstrap) as admin:
            admin.alter_settings(ConfigResource.BROKER, "", {"quota.scope": "cluster"})
            for name, partitions in (("narrow", 1), ("wide", 6)):
                admin.create_topic(name, partitions=partitions, replication_factor=1)
        yield made


class Counted:
    """A client in a thread, and the bytes that it has moved."""

    def __init__(self, work: Work, bootstrap: str, client_id: str, topic: str) -> None:
        self.size = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=work, args=(bootstrap, client_id, topic, self._stop, self._count))
        self._thread.start()

    def _count(self, size: int) -> None:
        self.size += size

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


def measured(clients: list[Counted]) -> float:
    """Bytes each second of all of them."""
    before, began = sum(each.size for each in clients), time.monotonic()
    time.sleep(MEASURED_S)
    return (sum(each.size for each in clients) - before) / (time.monotonic() - began)


def test_the_rate_of_all_brokers_together_stays_within_a_tenth(cluster: ClusterProcesses) -> None:
    """First a client of one broker, then one of all brokers besides."""
    clients: list[Counted] = []
    with quota(cluster.brokers[1].bootstrap, {"client-id": "shared"}, producer_byte_rate=RATE):
        try:
            clients.append(Counted(produce_confluent, cluster.bootstrap, "shared", "narrow"))
            until(lambda: clients[0].size > 0)
            time.sleep(BURST_S)
            alone = measured(clients)
            clients.append(Counted(produce_aiokafka, cluster.bootstrap, "shared", "wide"))
            until(lambda: clients[1].size > 0)
            time.sleep(BURST_S)
            together = measured(clients)
        finally:
            for each in clients:
                each.stop()
    assert 0.9 * RATE <= alone <= 1.1 * RATE, f"{alone:,.0f} bytes/s of one broker with a quota of {RATE:,}"
    assert 0.9 * RATE <= together <= 1.1 * RATE, f"{together:,.0f} bytes/s of all with a quota of {RATE:,}"
