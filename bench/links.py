"""Links beside Kafka's MirrorMaker 2, between the same two Headrace brokers, and the time of a failover.

    links.py throughput [--rounds 3]               bytes that are copied for a second of CPU time
    links.py lag [--rate 1000] [--seconds 30]      from the acknowledgement at the source to a consumer of the copy
    links.py failover [--topics 100] [--brokers 1] from the command to producers of all topics that write

Run it with PYTHONPATH=. from the root of the repository. MirrorMaker needs Java and Maven, and is left out without
them. `--folder` is where brokers store their data.

Throughput: a topic is filled at the source, and then copied. `copying` is the CPU time of the copying side: for a link
that of the target broker, which fetches and writes; for MirrorMaker that of its JVM and of the target broker, which
writes. `source` is that of the source broker, which is read from. The link is created when the topic is full; the JVM,
which has copied another topic of the same size before, so that its code is compiled, is stopped (SIGSTOP) while it is
filled, and CPU time is taken from where it goes on. Each counts until the target has the last record, so the discovery
of the topic is included. MirrorMaker runs with its defaults and two tasks, and `tuned` with larger batches and fetches.
In each round every system has its turn, and the ratio is of the medians.

Lag: one process sends messages of 100 B at a steady rate, and reads the copy. A time begins when the acknowledgement
is seen and ends when the consumer has the message.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from harness.process import cpu_s
from headrace.testing.cluster import ClusterProcesses
from headrace.testing.process import BrokerProcess

sys.path.append(str(Path(__file__).resolve().parents[1] / "interop" / "java"))

from apache import Java, Unavailable, java
from mirror_maker import MirrorMaker

BENCH_DIR = Path(__file__).resolve().parent
PARTITIONS = 4
WITHIN_S = 180.0
LINK, PLAIN, TUNED = "link", "MirrorMaker", "MirrorMaker, tuned"
# What Kafka's start script gives the JVM of a tool that runs for long; the interop checks start quickly instead.
JVM = ("-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC", "-Xmx1g", "-XX:MaxGCPauseMillis=20")
FLOW = {"tasks.max": "2", "topics": "mm-.*", "groups": "none", "emit.heartbeats.enabled": "false"}
LARGE = {
    "target.producer.batch.size": "524288",
    "target.producer.linger.ms": "20",
    "target.producer.max.request.size": "4194304",
    "source.consumer.max.poll.records": "5000",
    "source.consumer.max.partition.fetch.bytes": "4194304",
    "source.consumer.fetch.min.bytes": "65536",
}
SOON = {"link.refresh.interval.ms": 500}


class Load(NamedTuple):
    message_bytes: int
    batch_messages: int
    topic_bytes: int

    def __str__(self) -> str:
        return f"{self.batch_messages} x {self.message_bytes} B"


LOADS = (Load(1000, 64, 240_000_000), Load(100, 100, 100_000_000))


class Copied(NamedTuple):
    size: int
    seconds: float
    copying_s: float
    """CPU time of the copying side."""
    source_s: float
    """CPU time of the source broker."""


class Clusters(NamedTuple):
    source: BrokerProcess
    target: BrokerProcess


@contextmanager
def two_brokers(folder: Path | None) -> Iterator[Clusters]:
    with tempfile.TemporaryDirectory(prefix="headrace-links-", dir=folder) as work:
        source = BrokerProcess(Path(work) / "source", settings={"preload.enable": True})
        target = BrokerProcess(Path(work) / "target", settings={"preload.enable": True, **SOON})
        with source, target:
            yield Clusters(source, target)


def until(look: Callable[[], bool], what: str, every_s: float = 0.1) -> None:
    end = time.monotonic() + WITHIN_S
    while not look():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {WITHIN_S:.0f} s")
        time.sleep(every_s)


def call(url: str, method: str, path: str, value: object = None) -> Any:
    body = None if value is None else json.dumps(value).encode()
    request = Request(f"{url}/api/v1{path}", body, {"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=90) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def create(bootstrap: str, *topics: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, partitions) for topic in topics]).values():
        made.result(60)


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for gone in admin.delete_topics([topic], operation_timeout=60).values():
        gone.result(60)


class Ends:
    """The end offsets of topics of a broker."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})

    def of(self, topic: str) -> list[int]:
        """None while the topic is not there, or not all of it is led."""
        if topic not in self._consumer.list_topics(timeout=30).topics:
            return []
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        try:
            return [self._consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
        except KafkaException:
            return []

    def close(self) -> None:
        self._consumer.close()


def fill(broker: BrokerProcess, topic: str, load: Load) -> int:
    """Write a topic; returns its bytes."""
    create(broker.bootstrap, topic)
    command = [sys.executable, str(BENCH_DIR / "load.py"), "produce", "--port", str(broker.port)]
    command += ["--topic", topic, "--partitions", str(PARTITIONS), "--connections", "2", "--depth", "8"]
    command += ["--warmup", "0", "--seconds", "60", "--max-bytes", str(load.topic_bytes)]
    command += ["--message-bytes", str(load.message_bytes), "--batch-messages", str(load.batch_messages)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)["bytes_total"])


def copied(clusters: Clusters, size: int, topic: str, copy: str, pids: list[int], start: Callable[[], None]) -> Copied:
    """What it costs until the copy has everything of the topic, from `start` on."""
    with closing(Ends(clusters.source.bootstrap)) as source, closing(Ends(clusters.target.bootstrap)) as target:
        wanted = source.of(topic)
        if not wanted:
            raise RuntimeError(f"{topic} is not there at the source")
        os.sync()
        before_s, source_before_s = sum(map(cpu_s, pids)), cpu_s(clusters.source.pid)
        began = time.monotonic()
        start()
        until(lambda: target.of(copy) == wanted, f"{copy} is not copied")
        seconds = time.monotonic() - began
        spent_s = sum(map(cpu_s, pids)) - before_s
        return Copied(size, seconds, spent_s, cpu_s(clusters.source.pid) - source_before_s)


def copy_by_link(clusters: Clusters, load: Load, number: int) -> Copied:
    topic, url = f"link-{number}", clusters.target.http_url
    size = fill(clusters.source, topic, load)

    def start() -> None:
        call(url, "POST", "/links", {"name": topic, "bootstrap": [clusters.source.bootstrap], "topics": [topic]})

    found = copied(clusters, size, topic, topic, [clusters.target.pid], start)
    call(url, "POST", f"/mirrors/{topic}/failover", {})
    call(url, "DELETE", f"/links/{topic}")
    for broker in clusters:
        delete(broker.bootstrap, topic)
    return found


@contextmanager
def mirror_maker(kafka: Java, clusters: Clusters, is_tuned: bool) -> Iterator[MirrorMaker]:
    addresses = {"source": clusters.source.bootstrap, "target": clusters.target.bootstrap}
    with (
        tempfile.TemporaryDirectory(prefix="headrace-mm-") as folder,
        MirrorMaker(
            kafka.with_options(*JVM),
            Path(folder),
            addresses,
            {("source", "target"): FLOW},
            LARGE if is_tuned else {},
        ) as maker,
    ):
        yield maker


def copy_by_mirror_maker(kafka: Java, clusters: Clusters, load: Load, number: int, *, is_tuned: bool) -> Copied:
    warm, topic = f"mm-{number}-warm", f"mm-{number}"
    fill(clusters.source, warm, load)
    with mirror_maker(kafka, clusters, is_tuned) as maker:
        copied(clusters, 0, warm, f"source.{warm}", [], lambda: None)
        os.kill(maker.pid, signal.SIGSTOP)
        try:
            size = fill(clusters.source, topic, load)
        finally:
            os.kill(maker.pid, signal.SIGCONT)
        found = copied(clusters, size, topic, f"source.{topic}", [maker.pid, clusters.target.pid], lambda: None)
    for each in (warm, topic):
        delete(clusters.source.bootstrap, each)
        delete(clusters.target.bootstrap, f"source.{each}")
    return found


def throughput(args: argparse.Namespace) -> None:
    kafka = available()
    names = [LINK] if kafka is None else [LINK, PLAIN, TUNED]
    print("| load | system | MB/s | copying, MB per CPU s | source, MB per CPU s | link : it, copying | both sides |")
    print("|---|---|---:|---:|---:|---:|---:|", flush=True)
    with two_brokers(args.folder) as clusters:
        number = 0
        for load in LOADS:
            found: dict[str, list[Copied]] = {name: [] for name in names}
            for round_number in range(args.rounds):
                for name in names if round_number % 2 else names[::-1]:
                    number += 1
                    if name == LINK or kafka is None:
                        found[name].append(copy_by_link(clusters, load, number))
                    else:
                        is_tuned = name == TUNED
                        found[name].append(copy_by_mirror_maker(kafka, clusters, load, number, is_tuned=is_tuned))
            show_throughput(load, found)


def show_throughput(load: Load, found: dict[str, list[Copied]]) -> None:
    def per_cpu(rows: list[Copied], *, with_copying: bool = True, with_source: bool = False) -> list[float]:
        spent = [row.copying_s * with_copying + row.source_s * with_source for row in rows]
        return [row.size / 1e6 / max(cpu, 0.01) for row, cpu in zip(rows, spent, strict=True)]

    def median(values: list[float]) -> float:
        return statistics.median(values)

    for name, rows in found.items():
        speed = [row.size / row.seconds / 1e6 for row in rows]
        own, source = per_cpu(rows), per_cpu(rows, with_copying=False, with_source=True)
        cells = [f"{median(each):.0f} ({min(each):.0f}-{max(each):.0f})" for each in (speed, own, source)]
        cells.append(f"{median(per_cpu(found[LINK])) / median(own):.1f}")
        both = [median(per_cpu(each, with_source=True)) for each in (found[LINK], rows)]
        cells.append(f"{both[0] / both[1]:.1f}")
        print(f"| {load} | {name} | {' | '.join(cells)} |", flush=True)


class Reader(threading.Thread):
    """Notes when each message of a topic is seen, by its value."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="reader", daemon=True)
        self.seen: dict[bytes, float] = {}
        self._finished = threading.Event()
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "lag", "auto.offset.reset": "earliest"})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])

    def run(self) -> None:
        while not self._finished.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.seen[message.value() or b""] = time.monotonic()

    def finish(self) -> None:
        self._finished.set()
        self.join(60)
        self._consumer.close()


def send_steadily(bootstrap: str, topic: str, rate: int, seconds: float) -> dict[bytes, float]:
    """When each message was acknowledged, by its value."""
    acked: dict[bytes, float] = {}

    def note(error: object, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"a message was not acknowledged: {error}")
        acked[message.value() or b""] = time.monotonic()

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    began = time.monotonic()
    for number in range(int(rate * seconds)):
        while (ahead_s := began + number / rate - time.monotonic()) > 0:
            producer.poll(min(ahead_s, 0.001))
        producer.produce(topic, b"%08d" % number + b"x" * 92, partition=number % PARTITIONS, on_delivery=note)
    if producer.flush(60):
        raise RuntimeError("not all messages were acknowledged within 60 s")
    return acked


def lag(args: argparse.Namespace) -> None:
    print("| system | messages | p50 ms | p99 ms | max ms |")
    print("|---|---:|---:|---:|---:|", flush=True)
    kafka = available()
    with two_brokers(args.folder) as clusters:
        create(clusters.source.bootstrap, "link-lag")
        wanted = {"name": "lag", "bootstrap": [clusters.source.bootstrap], "topics": ["link-lag"]}
        call(clusters.target.http_url, "POST", "/links", wanted)
        measure_lag(LINK, clusters, "link-lag", "link-lag", args)
        for name in () if kafka is None else (PLAIN, TUNED):
            topic = f"mm-lag-{name == TUNED}"
            create(clusters.source.bootstrap, topic)
            with mirror_maker(kafka, clusters, name == TUNED):
                measure_lag(name, clusters, topic, f"source.{topic}", args)


def measure_lag(name: str, clusters: Clusters, topic: str, copy: str, args: argparse.Namespace) -> None:
    with closing(Ends(clusters.target.bootstrap)) as ends:
        until(lambda: len(ends.of(copy)) == PARTITIONS, f"there is no {copy}")
    reader = Reader(clusters.target.bootstrap, copy)
    reader.start()
    try:
        send_steadily(clusters.source.bootstrap, topic, args.rate, 3)  # Until all is warm; the values are sent again.
        until(lambda: len(reader.seen) == args.rate * 3, "the first messages are not copied")
        reader.seen.clear()
        acked = send_steadily(clusters.source.bootstrap, topic, args.rate, args.seconds)
        until(lambda: len(reader.seen) == len(acked), "the last messages are not copied")
    finally:
        reader.finish()
    times = sorted(max(0.0, reader.seen[value] - at) * 1000 for value, at in acked.items())
    p50, p99, most = (times[min(len(times) - 1, len(times) * each // 100)] for each in (50, 99, 100))
    print(f"| {name} | {len(times):,} | {p50:.1f} | {p99:.1f} | {most:.1f} |", flush=True)


def failover(args: argparse.Namespace) -> None:
    """The source is killed; then the command for all topics, and a message to each."""
    topics = [f"topic-{number:03}" for number in range(args.topics)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-links-", dir=args.folder)))
        source = stack.enter_context(BrokerProcess(folder / "source"))
        target: BrokerProcess | ClusterProcesses
        if args.brokers == 1:
            target = stack.enter_context(BrokerProcess(folder / "target", settings=SOON))
        else:
            target = stack.enter_context(ClusterProcesses(folder / "target", brokers=args.brokers, settings=SOON))
        create(source.bootstrap, *topics)
        send_one_each(source.bootstrap, topics)
        call(target.http_url, "POST", "/links", {"name": "eu", "bootstrap": [source.bootstrap], "topics": ["topic-.*"]})
        until(lambda: has_everything(target.http_url, len(topics)), "not all topics are copied", 0.5)
        source.kill()
        began = time.monotonic()
        command = [sys.executable, "-m", "headrace", "link", "failover", *topics, "--bootstrap", target.bootstrap]
        subprocess.run([*command, "--http", target.http_url], stdout=subprocess.DEVNULL, check=True)
        command_s = time.monotonic() - began
        send_one_each(target.bootstrap, topics)
        total_s = time.monotonic() - began
    print(
        f"{args.topics} topics of {PARTITIONS} partitions, {args.brokers} brokers: the command {command_s:.2f} s, ",
        end="",
    )
    print(f"until every partition had acknowledged a message {total_s:.2f} s", flush=True)


def has_everything(url: str, count: int) -> bool:
    rows = call(url, "GET", "/links/eu")["topics"]
    ends = [part["local_end"] for row in rows for part in row["partitions"]]
    return len(rows) == count and all(row["lag_messages"] == 0 for row in rows) and all(ends)


def send_one_each(bootstrap: str, topics: list[str]) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in topics:
        for partition in range(PARTITIONS):
            producer.produce(
                topic, b"x", partition=partition, on_delivery=lambda error, _: error and failed.append(error)
            )
    if producer.flush(120) or failed:
        raise RuntimeError(f"not all partitions could be written to: {failed[:3]}")


def available() -> Java | None:
    try:
        return java()
    except Unavailable as reason:
        print(f"MirrorMaker is left out: {reason}.", flush=True)
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where brokers store their data")
    modes = parser.add_subparsers(dest="mode", required=True)
    mode = modes.add_parser("throughput")
    mode.set_defaults(run=throughput)
    mode.add_argument("--rounds", type=int, default=3)
    mode = modes.add_parser("lag")
    mode.set_defaults(run=lag)
    mode.add_argument("--rate", type=int, default=1000)
    mode.add_argument("--seconds", type=float, default=30.0)
    mode = modes.add_parser("failover")
    mode.set_defaults(run=failover)
    mode.add_argument("--topics", type=int, default=100)
    mode.add_argument("--brokers", type=int, default=1)
    args = parser.parse_args()
    print(f"load average at the beginning: {os.getloadavg()[0]:.1f}", flush=True)
    args.run(args)
    print(f"load average at the end: {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
