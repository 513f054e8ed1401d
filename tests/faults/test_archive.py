"""Archivers that are killed with SIGKILL, again and again, while the topic grows and retention follows them."""

import itertools
import random
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.pipelines.archive.layout import ArchiveSnapshot, read_archive
from headrace.pipelines.tables.store import TableError
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.testing import Broker
from headrace.wire import Cluster
from tests.unit.pipelines.tables import table_days

NOON_MS = 1_700_000_000_000
WAIT_S = 120.0


@pytest.mark.parametrize("iceberg", [False, True], ids=["manifest", "iceberg"])
def test_a_few_kills(tmp_path: Path, iceberg: bool) -> None:
    kill_archivers(tmp_path, kills=1 if iceberg else 2, iceberg=iceberg)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("iceberg", [False, True], ids=["manifest", "iceberg"])
def test_many_kills(tmp_path: Path, iceberg: bool) -> None:
    kill_archivers(tmp_path, kills=20, iceberg=iceberg)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_crash_at_each_step_of_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table_days.without_syncs(monkeypatch)
    opened = table_days.opener("iceberg", tmp_path, monkeypatch)
    table_days.crash_at_steps(opened, tmp_path, itertools.count(1), plain=False)


def kill_archivers(folder: Path, *, kills: int, iceberg: bool) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance, path = random.Random(seed), folder / "archive"
    with Broker() as broker, Cluster(broker.bootstrap) as cluster, Growing(cluster) as topic:
        command = [sys.executable, "-m", "headrace", "pipeline", "archive", topic.name, "--to", str(path)]
        command += ["--bootstrap", broker.bootstrap, "--merge-after", "3", *(["--iceberg"] if iceberg else [])]
        for _ in range(kills):
            before = archived(path)
            process = subprocess.Popen([*command, "--every", "0.1"], stderr=subprocess.PIPE, text=True)
            try:
                deadline = time.monotonic() + WAIT_S
                while archived(path) == before:
                    assert process.poll() is None, process.stderr.read() if process.stderr else ""
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                time.sleep(chance.uniform(0, 0.3))
            finally:
                process.kill()
                process.wait(WAIT_S)
                if process.stderr is not None:
                    process.stderr.close()
            view = read_archive(path)
            assert not view.gaps
            assert_whole(view)
            # Retention follows the archive closely: what is archived is the only copy.
            cluster.delete_records({(topic.name, partition): at for partition, at in view.offsets.items()})
        topic.stop()
        subprocess.run([*command, "--once"], check=True, timeout=WAIT_S, capture_output=True)
        view = read_archive(path)
        assert_whole(view)
        assert view.offsets == topic.ends
        assert not view.gaps


class Growing:
    """A topic with two partitions to which a thread writes until it is stopped."""

    name = "orders"

    def __init__(self, cluster: Cluster) -> None:
        self.ends = {0: 0, 1: 0}
        self._cluster = cluster
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "Growing":
        # The records are years old: retention by time would take them before the archiver can.
        self._cluster.create_topic(self.name, partitions=2, settings={"retention.ms": "-1"})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(WAIT_S)

    def _write(self) -> None:
        with Cluster(self._cluster.bootstrap) as cluster:
            for number in itertools.count():
                if self._stopped.wait(0.02):
                    return
                partition = number % 2
                records = [Record(0, NOON_MS + number * 3_600_000, None, b"%d" % each) for each in range(10)]
                cluster.produce({(self.name, partition): build_batch(records)})
                self.ends[partition] += 10


def archived(path: Path) -> dict[int, int]:
    with suppress(TableError):
        return read_archive(path).offsets
    return {}


def assert_whole(view: ArchiveSnapshot) -> None:
    """Every record below the archived offset once, and nothing else."""
    for partition, end in view.offsets.items():
        found = [
            offset
            for file in view.files
            if file.partition == partition
            for offset in pq.ParquetFile(file.path).read(["offset"])["offset"].to_pylist()
        ]
        assert sorted(found) == [*range(end)]
