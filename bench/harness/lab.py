"""The room in which everything is measured: systems, started when first needed, their topics, the load processes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from harness import wire
from harness.clusters import HeadraceCluster, KafkaCluster
from harness.memory import PageCacheFiller
from harness.peers import DurableRedis, ElasticMQ, Nats, RabbitMQ, Redis
from harness.process import Process, ProcessFailed
from harness.secure_systems import TLS, SecureHeadrace, SecureKafka
from harness.systems import BENCH_DIR, Bare, Headrace, Kafka, System, Unavailable

KAFKA_SEND_BUFFER_BYTES = 102_400
"""Kafka's default of `socket.send.buffer.bytes`."""
PEERS = ("kafka", "nats", "rabbitmq", "redis", "elasticmq")


class MeasurementFailed(Exception):
    """A load process failed; the message is the last line it said."""


@dataclass(frozen=True)
class Variant:
    """A system with the topic settings it is measured under."""

    label: str
    system: str
    settings: Mapping[str, str] = field(default_factory=dict)
    replicas: int = 1
    listener: str = ""
    """The listener that the load connects to, if not the plain one; see `secure_systems.py`."""

    @property
    def speaks_kafka(self) -> bool:
        return self.system.startswith(("headrace", "kafka"))

    @property
    def is_bare(self) -> bool:
        return self.system.startswith("bare")


HEADRACE_OS = Variant("headrace os", "headrace", {"flush.policy": "os"})
HEADRACE_ACK = Variant("headrace ack", "headrace", {"flush.policy": "ack"})
KAFKA = Variant("kafka", "kafka")
KAFKA_SYNC = Variant("kafka flush.messages=1", "kafka", {"flush.messages": "1"})
BARE = Variant("bare", "bare-sink")
BARE_SYNC = Variant("bare fdatasync", "bare-sink-sync")
BARE_SENDFILE = Variant("bare sendfile", "bare-source-sendfile")
BARE_SENDFILE_100K = Variant("bare sendfile 100k", "bare-source-sendfile-100k")
BARE_READ = Variant("bare read+write", "bare-source-read")
BARE_READ_100K = Variant("bare read+write 100k", "bare-source-read-100k")
BARE_SOURCES = (BARE_SENDFILE, BARE_SENDFILE_100K, BARE_READ, BARE_READ_100K)
NATS = Variant("nats", "nats")
RABBITMQ = Variant("rabbitmq", "rabbitmq")
REDIS = Variant("redis", "redis")
HEADRACE = Variant("headrace", "headrace")
ELASTICMQ = Variant("elasticmq", "elasticmq")
ELASTICMQ_H2 = Variant("elasticmq h2", "elasticmq-h2")
RABBITMQ_QUORUM = Variant("rabbitmq quorum", "rabbitmq")
REDIS_ALWAYS = Variant("redis appendfsync=always", "redis-always")


@dataclass(frozen=True)
class Sizes:
    """How much of everything: the quick run shows that all is well, the full run gives the figures."""

    rounds: int
    seconds: float
    warmup_s: float
    latency_s: float
    preload_bytes: int
    max_bytes: int
    memory_bytes: int
    large_bytes: int
    cold_bytes: int
    """What is written and dropped from the page cache before it is read."""
    idle_connections: int = 5000
    secure_connections: int = 1000
    open_partitions: int = 1000
    groups: int = 10_000
    idle_partitions: int = 3000
    group_members: int = 100
    queue_messages: int = 1_000_000
    """How many messages a queue has whose memory is measured; the targets are for ten million."""
    queue_backlogs: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    queue_warm_ups: int = 3
    """At most so many times three seconds of load before it counts."""
    tls_warm_ups: int = 2
    """So many times six seconds of load over TLS before it counts."""


QUICK = Sizes(2, 1.5, 0.4, 4.0, 200_000_000, 2_000_000_000, 1_000_000_000, 1_000_000_000, 600_000_000)
FULL = Sizes(
    5,
    8.0,
    2.0,
    30.0,
    1_000_000_000,
    8_000_000_000,
    10_000_000_000,
    10_000_000_000,
    2_000_000_000,
    queue_messages=10_000_000,
    queue_backlogs=(1_000, 100_000, 10_000_000),
    queue_warm_ups=20,
)


class Lab:
    def __init__(
        self, work_dir: Path, sizes: Sizes, peers: tuple[str, ...], headrace_command: list[str] | None = None
    ) -> None:
        self.work_dir = work_dir
        self.sizes = sizes
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {name: "not asked for (--peers)" for name in PEERS if name not in peers}
        for peer, same in (
            ("kafka", "kafka-3"),
            ("kafka", "kafka-secure"),
            ("redis", "redis-always"),
            ("elasticmq", "elasticmq-h2"),
        ):
            if peer in self.missing:
                self.missing[same] = self.missing[peer]
        self._page_cache = PageCacheFiller(work_dir / "zeros")
        self._systems: dict[str, System] = {}
        self._numbers = count(1)
        self._makers: dict[str, Callable[[], System]] = {
            "headrace": lambda: Headrace(work_dir, headrace_command),
            "kafka": lambda: Kafka(work_dir),
            "headrace-secure": lambda: SecureHeadrace(work_dir, headrace_command),
            "kafka-secure": lambda: SecureKafka(work_dir),
            "headrace-3": lambda: HeadraceCluster(work_dir, headrace_command),
            "kafka-3": lambda: KafkaCluster(work_dir),
            "nats": lambda: Nats(work_dir),
            "rabbitmq": lambda: RabbitMQ(work_dir),
            "redis": lambda: Redis(work_dir),
            "redis-always": lambda: DurableRedis(work_dir),
            "elasticmq": lambda: ElasticMQ(work_dir, "elasticmq", stores_messages=False),
            "elasticmq-h2": lambda: ElasticMQ(work_dir, "elasticmq-h2", stores_messages=True),
            "bare-sink": lambda: Bare(work_dir, "bare-sink", "sink", "none"),
            "bare-sink-sync": lambda: Bare(work_dir, "bare-sink-sync", "sink", "fdatasync"),
        }
        for name, how in (("bare-source-sendfile", "sendfile"), ("bare-source-read", "write")):
            for suffix, size in (("", -1), ("-100k", KAFKA_SEND_BUFFER_BYTES)):
                self._makers[name + suffix] = partial(
                    Bare, work_dir, name + suffix, "source", how, send_buffer_bytes=size
                )

    def made(self, name: str) -> System:
        """The system, running or not; `Unavailable` if it cannot be had."""
        if name in self.missing:
            raise Unavailable(self.missing[name])
        if name not in self._systems:
            try:
                self._systems[name] = self._makers[name]()
            except Unavailable as reason:
                self.missing[name] = str(reason)
                raise
            self.versions[name] = self._systems[name].version()
        return self._systems[name]

    def system(self, name: str) -> System:
        """The system, running and warm; started now if it is not."""
        system = self.made(name)
        if not system.is_running():
            try:
                system.start()
            except ProcessFailed as reason:
                system.stop()
                self.missing[name] = f"it does not start: {reason}"
                raise Unavailable(self.missing[name]) from None
            if system.is_kafka_protocol:
                self._warm_up(system)
        return system

    def fresh(self, name: str) -> System:
        """The system, just started on an empty data dir and untouched since."""
        system = self.made(name)
        system.stop()
        system.clear()
        system.start()
        return system

    def stop_all(self) -> None:
        for system in self._systems.values():
            system.stop()
        Process.stop_all()

    def _warm_up(self, system: System) -> None:
        """Some requests of each kind, so that no system is measured cold; a JIT compiler needs this most."""
        if system.name.endswith("-3"):
            with self.topic(Variant(system.name, system.name, replicas=3), 1) as topic:
                self.run("client_kafka.py", "produce", port=system.port, topic=topic, warmup=0, seconds=3.0)
            return
        with self.topic(Variant(system.name, system.name), 4) as topic:
            if system.name.endswith("-secure"):
                # Encryption in Java is slow until it is compiled.
                where = {**system.address(TLS), "topic": topic, "partitions": 4, "connections": 2}
                for _ in range(self.sizes.tls_warm_ups):
                    self.run("load.py", "produce", batch_messages=900, depth=5, seconds=3.0, **where)
                    self.run("load.py", "consume", seconds=3.0, **where)
            for messages in (1, 64):
                where = {"port": system.port, "topic": topic, "partitions": 4, "connections": 2, "seconds": 1.0}
                self.run("load.py", "produce", batch_messages=messages, depth=8, max_bytes=100_000_000, **where)
                self.run("load.py", "consume", fetch_bytes=65536, **where)

    @contextmanager
    def topic(self, variant: Variant, partitions: int) -> Iterator[str]:
        """A topic of the variant's settings, or a mere name where there is nothing to create."""
        name = f"bench-{next(self._numbers):06d}"
        if not variant.speaks_kafka:
            yield name
            return
        port = self.system(variant.system).port
        _create(port, NewTopic(name, partitions, variant.replicas, config=dict(variant.settings)))
        if variant.replicas > 1:
            await_in_sync(port, name, variant.replicas)
        else:
            await_served(port, name, partitions)
        try:
            yield name
        finally:
            self._delete(variant, name)

    def _delete(self, variant: Variant, topic: str) -> None:
        system = self.made(variant.system)
        if not system.is_running():
            return
        try:
            admin = _admin(system.port)
            admin.delete_topics([topic], operation_timeout=60, request_timeout=60)[topic].result()
        except KafkaException as reason:
            print(f"{variant.label}: topic {topic} could not be deleted: {reason}", flush=True)

    @staticmethod
    def command(script: str, *words: str, **options: Any) -> list[str]:
        flags: list[str] = []
        for name, value in options.items():
            flag = f"--{name.replace('_', '-')}"
            flags += [flag] if value is True else [] if value is False else [flag, str(value)]
        return [sys.executable, str(BENCH_DIR / script), *words, *flags]

    def run(self, script: str, *words: str, **options: Any) -> dict[str, float]:
        """Run a load process to its end and return what it printed."""
        done = subprocess.run(
            self.command(script, *words, **options), capture_output=True, text=True, check=False, timeout=1800
        )
        if done.returncode or not done.stdout.strip():
            last = done.stderr.strip().splitlines() or ["it said nothing"]
            raise MeasurementFailed(f"{script} {words[0]}: {last[-1]}")
        result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return result

    def measure(
        self, variant: Variant, script: str, *words: str, over_http: bool = False, **options: Any
    ) -> dict[str, float]:
        """Run a load process against a system and add what the system itself spent on it."""
        system = self.system(variant.system)
        os.sync()  # What others left to be written back is not to be paid for by this one.
        self._page_cache.fill()
        where = {"port": system.http_port} if over_http else system.address(variant.listener)
        cpu = system.cpu_s()
        result = self.run(script, *words, **where, **options)
        result["server_cpu_s"] = system.cpu_s() - cpu
        return derive(result)

    @contextmanager
    def background(self, script: str, *words: str, **options: Any) -> Iterator["subprocess.Popen[str]"]:
        process = subprocess.Popen(
            self.command(script, *words, **options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


def _admin(port: int) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})


def _create(port: int, wanted: NewTopic) -> None:
    """The client lives no longer than this: one that outlives its broker would try to reach it all the time."""
    admin = _admin(port)
    try:
        admin.create_topics([wanted], operation_timeout=60, request_timeout=60)[wanted.topic].result()
    except KafkaException as reason:
        raise MeasurementFailed(f"topic {wanted.topic} could not be created: {reason}") from None


def await_served(port: int, topic: str, partitions: int) -> None:
    """Wait until every partition of a topic can be read from: leaders may be named before they serve."""
    request = wire.FetchRequest(topic, list(range(partitions)), partition_max_bytes=1, max_wait_ms=0)
    deadline = time.monotonic() + 120
    with wire.connect(port) as sock:
        while True:
            sock.sendall(request.frame)
            answers = list(wire.fetch_answer(memoryview(wire.receive_frame(sock))[4:]))
            errors = {answer.error for answer in answers if answer.error}
            if len(answers) == partitions and not errors:
                return
            if time.monotonic() > deadline:
                raise MeasurementFailed(f"some partitions of {topic} are not served after 120 s: errors {errors}")
            time.sleep(0.01)


def await_in_sync(port: int, topic: str, replicas: int) -> None:
    """Wait until every partition of a topic has a leader and all of its replicas in sync."""
    deadline = time.monotonic() + 120
    admin = _admin(port)
    while True:
        partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
        if partitions and all(one.leader >= 0 and len(one.isrs) == replicas for one in partitions):
            return
        if time.monotonic() > deadline:
            raise MeasurementFailed(f"not all replicas of {topic} are in sync after 120 s")
        time.sleep(0.1)


def derive(result: dict[str, float]) -> dict[str, float]:
    """The figures people compare, from the counts."""
    seconds = result.get("seconds", 0)
    if seconds:
        result["mb_s"] = result["bytes"] / seconds / 1e6
        result["messages_s"] = result["messages"] / seconds
        result["requests_s"] = result.get("requests", 0) / seconds
    if result.get("messages_total"):
        result["messages_cpu_s"] = result["messages_total"] / max(result["server_cpu_s"], 0.01)
        result["server_cpu_us_per_message"] = result["server_cpu_s"] * 1e6 / result["messages_total"]
    if result.get("bytes_total"):
        result["server_cpu_ms_per_gb"] = result["server_cpu_s"] * 1e3 / (result["bytes_total"] / 1e9)
    if result.get("requests_total"):
        result["server_cpu_us_per_request"] = result["server_cpu_s"] * 1e6 / result["requests_total"]
    return result
