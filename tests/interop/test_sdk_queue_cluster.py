"""A worker of the SDK on three brokers, when the one that leads its queue is killed."""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import Client, QueueMessage
from headrace.model.queue_wire import Counts
from headrace.testing.cluster import ClusterProcesses
from headrace.wire import Cluster

_ENOUGH_S = 180.0
_MESSAGES = 1_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed"),
]


def test_work_goes_on_when_the_leader_is_killed(tmp_path: Path) -> None:
    handled: set[str] = set()
    with ClusterProcesses(tmp_path) as cluster, Client(cluster.bootstrap) as client:
        queue = client.queue("work").create(visibility=10)
        queue.send_many(map(str, range(_MESSAGES)))

        @queue.worker(concurrency=4)
        def work(message: QueueMessage) -> None:
            time.sleep(0.004)
            handled.add(message.text)

        runner = threading.Thread(target=client.run)
        runner.start()
        try:
            _wait_until(lambda: len(handled) >= _MESSAGES // 3)
            with Cluster(cluster.bootstrap) as asked:
                leader = asked.metadata(["work"])["work"].partitions[0].leader
            cluster.kill(leader)
            queue.send("after the kill")
            _wait_until(lambda: len(handled) == _MESSAGES + 1)
            cluster.start_broker(leader)
            _wait_until(lambda: queue.counts() == Counts(0, 0, 0))
        finally:
            client.stop()
            runner.join(_ENOUGH_S)
        assert not runner.is_alive()


def _wait_until(condition: Callable[[], bool]) -> None:
    give_up_at_s = time.monotonic() + _ENOUGH_S
    while not condition():
        assert time.monotonic() < give_up_at_s
        time.sleep(0.05)
