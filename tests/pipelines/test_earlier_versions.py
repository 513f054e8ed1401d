"""A pipeline that an earlier version has run goes on where it was, exactly once."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.upgrade.release import OPENING, unpack, versions
from tests.upgrade.write.pipeline import PER_RUN, order, send_orders

from headrace.pipelines.archive.archiver import ArchiveOptions, Archiver
from headrace.pipelines.archive.layout import read_archive
from headrace.pipelines.control.folder import StateFolder
from headrace.pipelines.dead_letters.replay import read_letters
from headrace.pipelines.spec.file import SpecFile
from headrace.testing import Broker
from headrace.wire import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("version", versions())
def test_a_pipeline_goes_on_exactly_once(version: str, spark: "SparkSession", tmp_path: Path) -> None:
    """The last batch is in every sink and not in the checkpoints: Spark runs it again, and it must change nothing."""
    from headrace.pipelines.run.runner import Runner

    expected = unpack(version, "pipeline", tmp_path)
    before: list[dict[str, Any]] = expected["orders"]
    now = before + [order(len(before) + number) for number in range(PER_RUN)]
    with Broker(tmp_path / "broker", settings=OPENING) as broker, Cluster(broker.bootstrap) as cluster:
        assert _paid(cluster) == before
        send_orders(broker.bootstrap, len(before))
        file = SpecFile(tmp_path / "shop.toml", {}, bootstrap=broker.bootstrap)
        Runner(spark, file, StateFolder.of(tmp_path / "state", "shop"), ends=True).run()
        assert _paid(cluster) == now
        assert len(list(read_letters(cluster, "orders.dlq"))) == expected["bad records"] + 1
        assert _in_table(tmp_path / "lake") == now
        assert _totals(tmp_path / "shop.db") == _sums(now)
        with Archiver(cluster, ArchiveOptions(topic="orders", path=str(tmp_path / "archive"))) as archiver:
            archiver.run_once()
        assert _archived(tmp_path / "archive") == {
            (name, number): end.offset
            for (name, number), end in cluster.list_offsets([("orders", 0), ("orders", 1)]).items()
        }


def _paid(cluster: Cluster) -> list[dict[str, Any]]:
    """The rows of the topic, sorted."""
    return sorted(
        (json.loads(each.payload or b"") for each in read_letters(cluster, "paid")), key=lambda row: row["id"]
    )


def _in_table(root: Path) -> list[dict[str, Any]]:
    rows = pq.read_table(root / "data").to_pylist()
    return sorted(({**row, "user": str(row["user"])} for row in rows), key=lambda row: row["id"])


def _totals(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT user, total FROM totals").fetchall())


def _sums(orders: list[dict[str, Any]]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for each in orders:
        sums[each["user"]] += each["amount"]
    return dict(sums)


def _archived(root: Path) -> dict[tuple[str, int], int]:
    """How many records of each partition are in the archive, none of them twice."""
    view = read_archive(root)
    found: dict[tuple[str, int], int] = {}
    for partition in view.offsets:
        offsets = [
            offset
            for file in view.files
            if file.partition == partition
            for offset in pq.ParquetFile(file.path).read(["offset"])["offset"].to_pylist()
        ]
        assert offsets == list(range(view.offsets[partition]))
        found[view.topic, partition] = len(offsets)
    return found
