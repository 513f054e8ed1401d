"""Apache Flink 1.20 with its Kafka connector against a real `headrace serve` process: a topic copied exactly once.

    python interop/flink/run.py

Its connector bundles Java clients 3.x. Maven fetches Flink the first time. One line for each check, and an exit code of
1 if one failed. Without Java or Maven, or where Flink cannot be fetched, it says so and ends well.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))
sys.path.insert(2, str(Path(__file__).resolve().parents[1] / "java"))

from apache import CACHE_DIR, Unavailable, check_compiler, fetch
from confluent_kafka import Consumer, Producer, TopicPartition
from report import Report, expect

from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster

_HERE = Path(__file__).resolve().parent
_SOURCE = _HERE / "Copy.java"
_FROM, _TO, _PARTITIONS, _COUNT = "flink-in", "flink-out", 3, 20_000
_DONE_WITHIN_S = 300.0
_OPENS = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "time", "io", "net", "nio")]


def libraries() -> Path:
    """Flink's jars, which Maven fetches into the cache the first time."""
    libs, done, pom = CACHE_DIR.parent / "flink" / "libs", CACHE_DIR.parent / "flink" / "pom.xml", _HERE / "pom.xml"
    if not done.exists() or done.read_text() != pom.read_text():
        fetch(pom, libs, "Apache Flink")
        done.write_text(pom.read_text())
    return libs


def compiled(libs: Path, folder: Path) -> Path:
    folder.mkdir()
    command = ["javac", "-nowarn", "-d", str(folder), "-cp", f"{libs}/*", str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    expect(done.returncode == 0, done.stderr)
    return folder


def write(bootstrap: str) -> list[str]:
    with Cluster(bootstrap) as cluster:
        for topic in (_FROM, _TO):
            cluster.create_topic(topic, partitions=_PARTITIONS, replication_factor=1)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    values = [f"message {number}" for number in range(_COUNT)]
    for number, value in enumerate(values):
        producer.produce(_FROM, value, partition=number % _PARTITIONS)
        producer.poll(0)
    expect(producer.flush(60) == 0, "not everything was written")
    return values


def read(bootstrap: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    values, ended = [], 0
    consumer.assign([TopicPartition(_TO, index, 0) for index in range(_PARTITIONS)])
    while ended < _PARTITIONS:
        message = consumer.poll(60)
        expect(message is not None, "nothing came for a minute")
        if message.error() is not None:
            ended += 1
        else:
            values.append(message.value().decode())
    consumer.close()
    return values


def main() -> int:
    try:
        check_compiler()
        libs = libraries()
    except Unavailable as reason:
        print(f"Flink is not checked: {reason}.")
        return 0
    report = Report()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-flink-") as scratch,
        BrokerProcess(Path(scratch) / "data") as broker,
        report.check(f"Flink copies {_COUNT:,} messages exactly once"),
    ):
        values = write(broker.bootstrap)
        classes = compiled(libs, Path(scratch) / "classes")
        command = ["java", "-Xmx1g", *_OPENS, "-cp", f"{classes}:{libs}/*", "Copy", broker.bootstrap, _FROM, _TO]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_DONE_WITHIN_S, check=False)
        expect(ran.returncode == 0, f"{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        expect(sorted(read(broker.bootstrap)) == sorted(value.upper() for value in values), "not the same")
    print(report.summary(), flush=True)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
