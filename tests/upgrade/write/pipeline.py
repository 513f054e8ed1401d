"""A pipeline that has run twice, with the broker that it worked on, and an archive of its input.

The second batch of each query is in its sink and not in its checkpoint, as if the driver had been killed in between.
So whoever goes on has to read what the sinks have stored of it (the ledger topic, the table's manifest, the table of
batches in the database), or rows are there twice.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster
from tests.interop.batches import Record
from tests.upgrade.release import OPENING, pack
from tests.upgrade.write import topics
from tests.upgrade.write.single import WRITING

TOML = """\
name = "shop"
[source]
topic = "orders"
schema = "id INT, user STRING, amount INT"
[[steps]]
name = "rows"
sql = "SELECT id, user, amount FROM source"
[[steps]]
name = "totals"
sql = "SELECT user, sum(amount) AS total FROM source GROUP BY user"
[sinks.paid]
topic = "paid"
from = "rows"
key = "id"
[sinks.lake]
path = "lake"
format = "parquet"
partition_by = ["user"]
from = "rows"
[sinks.sums]
database = "sqlite:///shop.db"
table = "totals"
key = ["user"]
create = true
from = "totals"
[spark]
master = "local[2]"
[spark.settings]
"spark.driver.memory" = "1g"
"spark.sql.shuffle.partitions" = 2
"""
PER_RUN = 15


def write_pipeline(folder: Path, target: Path) -> None:
    data = folder / "data"
    data.mkdir()
    (data / "shop.toml").write_text(TOML)
    with BrokerProcess(data / "broker", settings={**WRITING, **OPENING}) as broker:
        with Cluster(broker.bootstrap) as cluster:
            cluster.create_topic("orders", partitions=2, settings=topics.KEPT)
            cluster.create_topic("paid", partitions=2, settings=topics.KEPT)
        for run in range(2):
            send_orders(broker.bootstrap, run * PER_RUN)
            _headrace(data, broker, "run", "shop.toml", "--once", "--state-dir", "state")
            _headrace(data, broker, "archive", "orders", "--to", "archive", "--once")
        assert broker.terminate() == 0
    for commit in data.glob("state/shop/checkpoint/*/commits/*1*"):
        commit.unlink()
    shutil.rmtree(data / ".hypothesis", ignore_errors=True)
    for scrap in ("log", "spark.log"):
        (data / "state" / "shop" / scrap).unlink(missing_ok=True)
    expected = {"orders": [order(number) for number in range(2 * PER_RUN)], "bad records": 2}
    pack(data, target / "pipeline.tar.xz")
    (target / "pipeline.json").write_text(json.dumps(expected, indent=1))


def order(number: int) -> dict[str, Any]:
    return {"id": number, "user": f"user-{number % 3}", "amount": number}


def send_orders(bootstrap: str, first: int) -> None:
    """Orders with these numbers, and one record that is none."""
    orders = [json.dumps(order(number)).encode() for number in range(first, first + PER_RUN)]
    for partition in range(2):
        records = [Record(each, None, (), topics.START_MS + first) for each in orders[partition::2]]
        topics.produce(bootstrap, "orders", records, partition=partition)
    topics.produce(bootstrap, "orders", [Record(b"no order", None, (), topics.START_MS + first)])


def _headrace(folder: Path, broker: BrokerProcess, *arguments: str) -> None:
    env = {**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "headrace", "pipeline", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
