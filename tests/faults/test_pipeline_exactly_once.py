"""Topic → Spark → topic while the broker, Spark's Python workers and the driver are killed, at random and at every step
of the two-phase commit: what is written is what a computation outside of Spark gives, each row once."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.records.encoder import encode
from headrace.records.partitioner import rows_by_partition
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster
from tests.faults.pipeline_driver import COPY, SOURCE, TOTALS
from tests.pipelines.committed import read_committed
from tests.pipelines.crashing import DECIDING, STAGING, arm

PARTITIONS = 3
KEYS = 1_000
OPEN_STATES = ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"]
PLANNED = [(step, victim) for step in DECIDING for victim in ("driver", "broker")] + [
    (step, victim) for step in STAGING for victim in ("worker", "driver", "broker")
]


class Driver:
    """The driver process, started again whenever it ends before its work is done."""

    def __init__(self, broker: BrokerProcess, folder: Path, offsets_per_batch: int) -> None:
        module = [sys.executable, "-m", "tests.faults.pipeline_driver"]
        self._command = [*module, broker.bootstrap, str(folder), str(offsets_per_batch)]
        self._log = (folder / "driver.log").open("ab")
        self.starts = 0
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._start()

    def _start(self) -> None:
        self.starts += 1
        self.process = subprocess.Popen(
            self._command, stdout=self._log, stderr=self._log, env=self._environment, start_new_session=True
        )

    def is_done(self) -> bool:
        """Whether it has ended well; one that has not is started again."""
        code = self.process.poll()
        if code is None:
            return False
        self.kill()
        if code != 0:
            self._start()
        return code == 0

    def family(self) -> dict[int, str]:
        """Every process under this one, with its name."""
        parents: dict[int, list[int]] = defaultdict(list)
        names: dict[int, str] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                try:
                    head, _, tail = (folder / "stat").read_text().rpartition(")")
                except OSError:
                    continue
                parents[int(tail.split()[1])].append(int(folder.name))
                names[int(folder.name)] = head.partition("(")[2]
        found, left = {}, [self.process.pid]
        while left:
            for child in parents[left.pop()]:
                found[child] = names[child]
                left.append(child)
        return found

    def kill_worker(self, rng: random.Random) -> bool:
        workers = [number for number, name in self.family().items() if name.startswith("python")]
        return bool(workers) and send_kill(rng.choice(workers))

    def kill(self) -> bool:
        """The Python process and the JVM, at the same moment; their workers notice."""
        victims = [self.process.pid, *(number for number, name in self.family().items() if name == "java")]
        killed = [send_kill(number) for number in victims]
        self.process.wait(60)
        return any(killed)

    def close(self) -> None:
        family = [self.process.pid, *self.family()]
        for number in family:
            send_kill(number)
        self.process.wait(60)
        self._log.close()


def send_kill(process_id: int) -> bool:
    try:
        os.kill(process_id, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def fill(cluster: Cluster, count: int) -> dict[bytes, tuple[int, int]]:
    """Numbers from 0 on, each with a key; how many each key has, and their sum."""
    cluster.create_topic(SOURCE, partitions=PARTITIONS)
    for topic in (COPY, TOTALS):
        cluster.create_topic(topic, partitions=PARTITIONS)
    rng = np.random.default_rng(7)
    answer: dict[bytes, tuple[int, int]] = {}
    for start in range(0, count, 50_000):
        numbers = np.arange(start, min(start + 50_000, count))
        keys = rng.integers(0, KEYS, len(numbers))
        rows = pa.RecordBatch.from_pydict(
            {"key": [b"key-%d" % key for key in keys], "value": [b"%d" % number for number in numbers]}
        )
        for partition, indexes in rows_by_partition(PARTITIONS, len(numbers), keys=rows.column("key")).items():
            for batch in encode(rows.take(pa.array(indexes)), timestamp_ms=round(time.time() * 1000)):
                cluster.produce({(SOURCE, partition): batch})
        for key, number in zip(keys.tolist(), numbers.tolist(), strict=True):
            known, total = answer.get(b"key-%d" % key, (0, 0))
            answer[b"key-%d" % key] = (known + 1, total + number)
    return answer


def read(cluster: Cluster, topic: str) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values in the order of each partition, as a reader of committed records sees them."""
    for batch in read_committed(cluster, topic):
        yield from zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)


def check(cluster: Cluster, count: int, answer: dict[bytes, tuple[int, int]]) -> None:
    copied = sorted(int(value) for _, value in read(cluster, COPY))
    assert len(copied) == count
    assert copied == list(range(count))
    last: dict[bytes, tuple[int, int]] = {}
    for key, value in read(cluster, TOTALS):
        known, total = (int(part) for part in value.split())
        assert known > last.get(key, (0, 0))[0], f"{key!r} was written again, or out of order"
        last[key] = (known, total)
    assert last == answer
    assert cluster.list_transactions(OPEN_STATES) == []


class Nemesis:
    """Kills what is planned, one after the other, and others at random in between."""

    def __init__(self, broker: BrokerProcess, driver: Driver, folder: Path, rng: random.Random) -> None:
        self.broker = broker
        self.driver = driver
        self._folder = folder
        self._rng = rng
        self._planned = list(PLANNED)
        rng.shuffle(self._planned)
        self._waiting: Path | None = None
        self.kills: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self._next_at = rng.randint(2, 5)
        """How many batches are to be done before the next kill at random: so there is progress, however slow."""

    def act(self) -> None:
        (self._folder / "broker").write_text(str(self.broker.pid))
        if self._waiting is not None and not self._waiting.exists():
            _, step, victim = self._waiting.name.split("@")
            self.kills[victim] += 1
            self.steps[f"{step} {victim}"] += 1
            self._waiting = None
        if self._waiting is None and self._planned:
            # The query that has more to do, so that none is done with before the plan is.
            self._waiting = arm(self._folder, min((COPY, TOTALS), key=self._batches_done), *self._planned.pop())
        if self._batches_done(COPY, TOTALS) >= self._next_at:
            self._next_at += self._rng.randint(3, 12)
            victim = self._rng.choice(["broker", "worker", "worker", "worker", "driver"])
            if victim == "broker":
                self.broker.kill()
                self.kills["broker at random"] += 1
            elif victim == "worker":
                self.kills["worker at random"] += self.driver.kill_worker(self._rng)
            else:
                self.kills["driver at random"] += self.driver.kill()
        if not self.broker.is_running:
            self.broker.kill()  # It is dead; this lets go of what belonged to it.
            self.broker.start(60)

    def _batches_done(self, *queries: str) -> int:
        return sum(1 for query in queries for _ in (self._folder.parent / query / "commits").glob("[0-9]*"))


def run(folder: Path, count: int, offsets_per_batch: int, *, limit_s: float) -> Nemesis:
    """Until both queries have caught up, and the answer is checked."""
    began = time.monotonic()
    seed = int(os.environ.get("HEADRACE_TEST_SEED", random.randrange(10**6)))
    (folder / "armed").mkdir()
    with BrokerProcess(folder / "data") as broker, Cluster(broker.bootstrap) as cluster:
        answer = fill(cluster, count)
        driver = Driver(broker, folder, offsets_per_batch)
        nemesis = Nemesis(broker, driver, folder / "armed", random.Random(seed))
        try:
            while not driver.is_done():
                assert time.monotonic() - began < limit_s, "it does not come to an end"
                nemesis.act()
                time.sleep(0.05)
        finally:
            driver.close()
            print((folder / "driver.log").read_text(errors="replace")[-4000:])
            print(f"seed {seed}: {sum(nemesis.kills.values())} kills, {driver.starts} starts: {dict(nemesis.kills)}")
            print(f"{len(nemesis.steps)} of {len(PLANNED)} planned: {dict(nemesis.steps)}")
        check(cluster, count, answer)
        print(f"{count} records, {time.monotonic() - began:.0f} s")
    return nemesis


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17")
def test_half_a_million_records_under_kills(tmp_path: Path) -> None:
    nemesis = run(tmp_path, 500_000, offsets_per_batch=14_000, limit_s=7_000)
    assert sum(nemesis.kills.values()) >= 20
    assert {f"{step} {victim}" for step, victim in PLANNED} <= set(nemesis.steps)
