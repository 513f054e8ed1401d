"""What metrics cost, and how long a scrape takes.

    metrics.py live [--blocks 60] [--slice 0.03]     one broker's CPU time per request, switched on and off as it runs
    metrics.py cost [--sets 4] [--rounds 15] [--seconds 0.15]     the broker's CPU time per request, on and off
    metrics.py path [--turns 3000]     the same on the event loop's thread alone, in one process
    metrics.py scrape [--partitions 10000] [--groups 10000]     a scrape of a large broker, and how the loop is held

live: see `harness/live_comparison.py` for the method, and `cost` for the requests. With `--clock` the time by the clock
is compared, which is what a client notices: its inverse is throughput.

cost: sets of three brokers, `metrics.enable` off, on and off again. Two processes of the same code differ by some
percent, by the order in which dictionaries and memory happen to be laid out: so there are several sets, each with its
own seed, and `off again : off` shows what is left of that. Each round measures each broker of a set for a short time,
in changing order; of the rounds the lower quartile counts, which other work on the machine disturbs least. The table
has the mean over the sets, of the times and of the ratios. Requests are encoded once: `alone` is one message of 100 B
in each request, one request at a time; `single` the same with 32 in flight; `produce` batches of 64 messages of 1 KiB;
`fetch` the first batch of each of four partitions, 32 in flight; `consume` up to 1 MiB of a partition, from the page
cache.

path: one broker in this process with two connections, one of which is counted and timed; they take turns after each
request, or after 32. CPU time of the event loop's thread from the received bytes to the sent answer, without the part
of the network. A busy machine changes little in the ratio, since both see the same.

scrape: topics and groups with a committed offset each, then scrapes. A second connection sends a request each
millisecond meanwhile: its longest wait is what a client notices. `--data FOLDER` keeps them for the next run.
"""

import argparse
import asyncio
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from harness import wire
from harness.client_connection import ClientConnection, cpu_ns
from harness.group_wire import commit_request
from harness.live_comparison import HEADER, compared
from harness.switched_broker import SwitchedBroker
from headrace.app.broker import BrokerApp
from headrace.config.broker import broker_settings
from headrace.kafka.connection import Connection
from headrace.kafka.server import KafkaServer
from headrace.model.ids import TopicName
from headrace.testing.process import BrokerProcess

TOPIC = "bench-metrics"
PARTITIONS = 4
DEPTH = 32
_NOW_MS = 1_700_000_000_000


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(TOPIC, PARTITIONS, 1, config={"flush.policy": "os"})
    admin.create_topics([new])[TOPIC].result(30)


def request_blocks() -> dict[str, tuple[bytes, int]]:
    """Requests that are sent in one piece, and how many they are."""
    one, many = wire.record_batch(100, 1, _NOW_MS), wire.record_batch(1024, 64, _NOW_MS)
    singles = [_produce(one, number % PARTITIONS) for number in range(DEPTH)]
    fetch = wire.FetchRequest(TOPIC, list(range(PARTITIONS)), partition_max_bytes=1, max_wait_ms=0)
    consume = wire.FetchRequest(TOPIC, [0], partition_max_bytes=1 << 20, max_wait_ms=0)
    return {
        "alone": (singles[0], 1),
        "single": (b"".join(singles), DEPTH),
        "produce": (_produce(many, 0), 1),
        "fetch": (bytes(fetch.frame) * DEPTH, DEPTH),
        "consume": (bytes(consume.frame), 1),
    }


def _produce(batch: bytes, partition: int) -> bytes:
    return wire.produce_request(TOPIC, partition, batch, acks=-1, correlation_id=7)


class Load:
    """The requests to one broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.pid = broker.pid
        create_topic(broker.bootstrap)
        self._connection = ClientConnection(int(broker.bootstrap.rpartition(":")[2]))
        self.kinds = request_blocks()

    def measure(self, kind: str, seconds: float) -> float:
        """Microseconds of the broker's CPU time per request."""
        block, count = self.kinds[kind]
        for _ in range(3):
            self._connection.ask(block, count)
        before, requests, end = cpu_ns(self.pid), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            self._connection.ask(block, count)
            requests += count
        return (cpu_ns(self.pid) - before) / 1e3 / requests


def live(options: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
    broker = SwitchedBroker(folder / "data")
    stack.callback(broker.close)
    create_topic(f"127.0.0.1:{broker.port}")
    connection = ClientConnection(broker.port)

    def ask(block: bytes, count: int) -> int:
        connection.ask(block, count)
        return count

    print(HEADER.replace("µs of CPU", "µs") if options.clock else HEADER, flush=True)
    for kind, (block, count) in request_blocks().items():
        if options.only and kind not in options.only:
            continue
        found = compared(
            broker.pid,
            partial(ask, block, count),
            broker.switch,
            blocks=options.blocks,
            slice_s=options.slice,
            spent_ns=(lambda _: time.monotonic_ns()) if options.clock else cpu_ns,
        )
        print(f"| {kind} | {' | '.join(found.cells())} |", flush=True)


def cost(options: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
    sets = [start_set(folder, seed, stack) for seed in range(options.sets)]
    print("| µs of CPU per request | off | on | on : off | by set | off again : off | by set |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for kind in options.only or sets[0]["on"].kinds:
        found = [measure_set(kind, loads, options) for loads in sets]
        cells = [f"{statistics.fmean(each[name] for each in found):.2f}" for name in ("off", "on")]
        for name in ("on", "off again"):
            ratios = [each[name] / each["off"] for each in found]
            cells += [f"{statistics.fmean(ratios):.3f}", ", ".join(f"{ratio:.3f}" for ratio in sorted(ratios))]
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def start_set(folder: Path, seed: int, stack: ExitStack) -> dict[str, Load]:
    """Three brokers of the same layout in memory, as far as the seed of hashes and the system decide on it."""
    loads = {}
    for name in ("off", "on", "off again"):
        broker = BrokerProcess(
            folder / f"{seed} {name}",
            settings={"metrics.enable": name == "on"},
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            prefix=["setarch", "-R"],
        )
        stack.callback(broker.close)
        loads[name] = Load(broker.start())
    return loads


def measure_set(kind: str, loads: dict[str, Load], options: argparse.Namespace) -> dict[str, float]:
    """The CPU time per request of each broker, in turns; of its rounds the lower quartile."""
    found: dict[str, list[float]] = {name: [] for name in loads}
    names = list(loads)
    for round_number in range(options.rounds):
        shift = round_number % len(names)
        for name in names[shift:] + names[:shift]:
            found[name].append(loads[name].measure(kind, options.seconds))
    return {name: quartile(values) for name, values in found.items()}


def quartile(values: list[float]) -> float:
    """A quarter of the values is below: other work on the machine disturbs those least."""
    return statistics.quantiles(values, n=4)[0]


class DirectConnection:
    """A connection of a broker in this process, which gets its requests without a network."""

    def __init__(self, server: KafkaServer, *, is_counted: bool) -> None:
        self._sock, self._other_end = socket.socketpair()
        self._sock.setblocking(False)
        self._is_counted = is_counted
        self._server = server
        meter = server.meter
        server.meter = meter if is_counted else None
        self._connection = Connection(server, 1 << 27, server.services.settings.broker_listener)
        server.meter = meter
        self._connection.connection_made(self)  # type: ignore[arg-type]

    def get_extra_info(self, name: str) -> object:
        return {"socket": self._sock, "peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name)

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self._connection.connection_lost(None)
        self._sock.close()
        self._other_end.close()

    async def turn(self, block: bytes) -> float:
        """Handle the requests, and return the CPU time of that."""
        table = self._server.services.partitions
        for partition in table.of_topic(TopicName(TOPIC)):
            partition.traffic = table.traffic.of(TOPIC) if self._is_counted and table.traffic is not None else None
        began = time.thread_time_ns()
        self._connection.get_buffer(-1)[: len(block)] = block
        self._connection.buffer_updated(len(block))
        await asyncio.sleep(0)
        took = time.thread_time_ns() - began
        with suppress(BlockingIOError):
            while len(self._other_end.recv(1 << 20, socket.MSG_DONTWAIT)) == 1 << 20:
                pass
        return took / 1e3


def path(options: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
    asyncio.run(_path(options, folder))


async def _path(options: argparse.Namespace, folder: Path) -> None:
    settings = {"data.dir": str(folder / "data"), "kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0"}
    app = BrokerApp(broker_settings(settings))
    await app.start()
    try:
        server = app._metrics.kafka_server
        assert server is not None
        await asyncio.to_thread(create_topic, str(app.kafka_endpoint))
        await asyncio.sleep(2)
        counted, plain = (DirectConnection(server, is_counted=each) for each in (True, False))
        print("| µs of CPU per request | off | on | on : off |")
        print("|---|---|---|---|", flush=True)
        for kind, (block, count) in request_blocks().items():
            if kind not in ("alone", "single"):
                continue  # Larger ones do not fit into one read, or into the socket.
            found: dict[bool, list[float]] = {True: [], False: []}
            for number in range(options.turns):
                for each in (True, False) if number % 2 else (False, True):
                    found[each].append(await (counted if each else plain).turn(block) / count)
            off, on = (statistics.median(found[each][options.turns // 5 :]) for each in (False, True))
            print(f"| {kind} | {off:.2f} | {on:.2f} | {on / off:.3f} |", flush=True)
        counted.close()
        plain.close()
    finally:
        await app.stop()


class Pinger:
    """Sends a small request each millisecond, and measures the longest wait for an answer."""

    def __init__(self, port: int) -> None:
        self._connection = ClientConnection(port)
        self._request = wire.request(wire.API_VERSIONS, 0, 1, b"")
        self._is_stopping = threading.Event()
        self.waits_ms: list[float] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopping.wait(0.001):
            began = time.perf_counter()
            self._connection.ask(self._request, 1)
            self.waits_ms.append((time.perf_counter() - began) * 1000)

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join()


def scrape(options: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
    settings = {
        "max.partitions.per.broker": options.partitions + 1000,
        "offsets.topic.num.partitions": 10,
        "group.initial.rebalance.delay.ms": 0,
    }
    folder = options.data or folder
    broker = BrokerProcess(folder / "data", settings=settings)
    stack.callback(broker.close)
    is_filled = (folder / "data").exists()
    broker.start()
    if not is_filled:
        fill(broker, options.partitions, options.groups)
    url, port = f"{broker.http_url}/metrics", int(broker.bootstrap.rpartition(":")[2])
    print(f"{options.partitions} partitions, {options.groups} groups", flush=True)
    idle = during(port, lambda: time.sleep(2))
    print(f"idle: longest wait of a client {idle[-1]:.1f} ms, 99 % below {idle[int(len(idle) * 0.99)]:.1f} ms")
    for number in range(options.scrapes):
        size, took, cpu = [0], [0.0], cpu_ns(broker.pid)

        def once(size: list[int] = size, took: list[float] = took) -> None:
            began = time.perf_counter()
            with urlopen(url, timeout=60) as answer:
                size[0] = len(answer.read())
            took[0] = time.perf_counter() - began

        waits = during(port, once)
        cpu_ms = (cpu_ns(broker.pid) - cpu) / 1e6
        print(
            f"scrape {number}: {took[0]:.3f} s, {size[0] / 1e6:.1f} MB, {cpu_ms:.0f} ms CPU; "
            f"longest wait of a client {waits[-1]:.1f} ms, 99 % below {waits[int(len(waits) * 0.99)]:.1f} ms",
            flush=True,
        )


def during(port: int, work: Callable[[], None]) -> list[float]:
    """The waits of a client while something happens, ascending."""
    pinger = Pinger(port)
    try:
        work()
    finally:
        pinger.stop()
    return sorted(pinger.waits_ms)


def fill(broker: BrokerProcess, partitions: int, groups: int) -> None:
    per_topic = 100
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for first in range(0, partitions // per_topic, 10):
        numbers = range(first, min(first + 10, partitions // per_topic))
        for future in admin.create_topics([NewTopic(f"topic-{number}", per_topic, 1) for number in numbers]).values():
            future.result(120)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(partitions // per_topic):
        for partition in range(per_topic):
            producer.produce(f"topic-{number}", b"x" * 100, partition=partition)
        producer.flush(60)
    # The first one, so that there are coordinators.
    first = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "group-0", "log_level": 0})
    first.commit(offsets=[TopicPartition("topic-0", 0, 1)], asynchronous=False)
    first.close()
    connection = ClientConnection(int(broker.bootstrap.rpartition(":")[2]))
    for start in range(0, groups, DEPTH):
        numbers = range(start, min(start + DEPTH, groups))
        requests = [
            commit_request(
                f"group-{number}",
                -1,
                "",
                f"topic-{number % (partitions // per_topic)}",
                {number % per_topic: number % 2},
            )
            for number in numbers
        ]
        connection.ask(b"".join(requests), len(requests))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("live", "cost", "path", "scrape"))
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--slice", type=float, default=0.03)
    parser.add_argument("--clock", action="store_true", help="compare the time by the clock")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.15)
    parser.add_argument("--sets", type=int, default=4)
    parser.add_argument("--only", nargs="*", help="kinds of requests")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=3000)
    parser.add_argument("--scrapes", type=int, default=5)
    parser.add_argument("--data", type=Path, help="keep the topics and groups here, and use those of an earlier run")
    options = parser.parse_args()
    if options.data:
        options.data.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        {"live": live, "cost": cost, "path": path, "scrape": scrape}[options.what](options, folder, stack)


if __name__ == "__main__":
    main()
