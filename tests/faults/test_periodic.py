"""Periodic functions while workers and brokers are killed: each due time has one message, and is run."""

import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.client.schedules import PREFIX
from headrace.testing.cluster import ClusterProcesses
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster
from tests.faults.periodic_worker import NAME
from tests.waiting import until


class _Run(NamedTuple):
    due_ms: int
    offset: int
    attempt: int
    pid: int


class _Workers:
    """Worker processes that write their runs to one file."""

    def __init__(self, bootstrap: str, file: Path, count: int, *, period_ms: int, visibility_s: float) -> None:
        module = [sys.executable, "-m", "tests.faults.periodic_worker"]
        self._command = [*module, bootstrap, str(file), str(period_ms), str(visibility_s)]
        self._file = file
        self._period_ms = period_ms
        file.touch()
        self._processes = [self._spawn() for _ in range(count)]
        self.killed = 0

    def _spawn(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command)

    def kill_one(self) -> None:
        """Kill the first, and start another one."""
        first = self._processes.pop(0)
        first.kill()
        first.wait()
        self.killed += 1
        self._processes.append(self._spawn())

    def runs(self) -> list[_Run]:
        lines = self._file.read_bytes().splitlines()
        return [_Run(*map(int, line.split())) for line in lines]

    def dues(self) -> int:
        return len({each.due_ms for each in self.runs()})

    def check(self, broker_kills: int) -> None:
        """Every due time from the first to the last was run, and was one message; a run is repeated after a kill at
        the most."""
        offsets: dict[int, set[int]] = defaultdict(set)
        for each in (runs := self.runs()):
            offsets[each.due_ms].add(each.offset)
        assert {due_ms: found for due_ms, found in offsets.items() if len(found) > 1} == {}
        assert sorted(offsets) == list(range(min(offsets), max(offsets) + 1, self._period_ms))
        assert len(runs) - len(offsets) <= self.killed + broker_kills

    def close(self) -> None:
        for each in self._processes:
            each.kill()
            each.wait()


def test_each_due_time_is_run_once_over_kills(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        # A lease that ends on a busy machine would be a repetition without a kill.
        workers = _Workers(broker.bootstrap, tmp_path / "runs", 2, period_ms=100, visibility_s=10)
        try:
            until(lambda: workers.dues() >= 10)
            workers.kill_one()
            broker.kill()
            broker.start()
            enough = workers.dues() + 15
            until(lambda: workers.dues() >= enough)
        finally:
            workers.close()
    workers.check(broker_kills=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed")
def test_a_thousand_due_times_on_a_cluster_whose_leaders_are_killed(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    kills = 0
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        workers = _Workers(cluster.bootstrap, tmp_path / "runs", 4, period_ms=200, visibility_s=5)
        try:
            until(lambda: workers.dues() >= 10)
            for enough in range(100, 1001, 100):
                until(_has(workers, enough), timeout_s=300)
                workers.kill_one()
                if chance.random() < 0.7:
                    time.sleep(chance.random())
                    leader = _leader(cluster.bootstrap)
                    cluster.kill(leader)
                    kills += 1
                    time.sleep(2 * chance.random())
                    cluster.start_broker(leader)
        finally:
            workers.close()
    print(
        f"{workers.dues()} due times, {len(workers.runs())} runs, {workers.killed} workers and {kills} brokers killed"
    )
    workers.check(kills)


def _has(workers: _Workers, enough: int) -> Callable[[], bool]:
    return lambda: workers.dues() >= enough


def _leader(bootstrap: str) -> int:
    with Cluster(bootstrap) as asked:
        return asked.metadata([PREFIX + NAME])[PREFIX + NAME].partitions[0].leader
