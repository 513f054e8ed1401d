"""One Spark session and one broker for all tests of pipelines, in one process of the run."""

import gc
import itertools
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.pipelines.run.session import worker_python
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.testing import Broker
from headrace.wire import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

SPARK_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.driver.extraJavaOptions": "-Xss4m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    if HERE not in item.path.parents:
        return
    # One process of the run has the one session.
    item.add_marker(pytest.mark.xdist_group("spark"))
    # A busy machine takes its time to start the processes of Spark.
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(600))
    # PySpark leaves sockets to the collector, and pandas warns of what PySpark does with it.
    for kind in ("ResourceWarning", "DeprecationWarning", "FutureWarning", "pytest.PytestUnraisableExceptionWarning"):
        item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """`local[2]`, started once. Skips without Java or PySpark."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17: install openjdk-17-jre-headless")
    pytest.importorskip("pyspark")
    from pyspark import SparkContext
    from pyspark.java_gateway import ensure_callback_server_started
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    home = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = worker_python(home)
    builder = SparkSession.builder.master("local[2]").appName("headrace-tests")
    builder = builder.config("spark.sql.warehouse.dir", str(home / "warehouse"))
    builder = builder.config("spark.local.dir", str(home / "local"))
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # The first query with a function for batches would start it; it lasts as long as the session.
    ensure_callback_server_started(SparkContext._gateway)
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()
    # The JVM ends when its standard input does; a test run must not wait for it forever.
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(20)
        except Exception:
            gateway.proc.kill()
            gateway.proc.wait(10)
        SparkContext._gateway = SparkContext._jvm = None
    # The test that happens to be the last one need not have to do with what PySpark leaves to the collector.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture(scope="session")
def spark_broker() -> Iterator[Broker]:
    """One broker for all tests, which use topics of their own. It compacts soon."""
    # Records of tests have times of years ago: without this, retention takes them when it looks, after five minutes.
    with Broker(settings={"num.partitions": 1, "log.cleaner.backoff.ms": 50, "log.retention.ms": -1}) as broker:
        yield broker


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The broker's address, or `HEADRACE_TEST_BOOTSTRAP`: to learn what is the same with Apache Kafka."""
    external = os.environ.get("HEADRACE_TEST_BOOTSTRAP")
    return external or str(request.getfixturevalue("spark_broker").bootstrap)


@pytest.fixture(scope="session")
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap) as cluster:
        yield cluster


_numbers = itertools.count(1)


@pytest.fixture
def new_topic(cluster: Cluster, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Make a topic with a name of its own: `new_topic(2, prefix="orders", **{"cleanup.policy": "compact"})`."""

    def make(partitions: int = 1, prefix: str = "topic", **settings: str) -> str:
        name = f"{prefix}-{next(_numbers)}"
        # The records of tests are old: a slow run would outlast the broker's patience with them.
        cluster.create_topic(name, partitions=partitions, settings={"retention.ms": "-1", **settings})
        return name

    return make


@pytest.fixture
def write(cluster: Cluster) -> Callable[..., int]:
    """Write records to a partition: values, or `(key, value)` pairs; the offset of the first."""

    def write(
        topic: str,
        *values: bytes | tuple[bytes | None, bytes | None],
        partition: int = 0,
        time_ms: int = 1_700_000_000_000,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> int:
        pairs = [value if isinstance(value, tuple) else (None, value) for value in values]
        records = [Record(0, time_ms, key, value, tuple(headers)) for key, value in pairs]
        return cluster.produce({(topic, partition): build_batch(records)})[topic, partition]

    return write
