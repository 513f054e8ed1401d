"""What encryption at rest costs: produce and consume of an encrypted topic beside a plain one of the same broker.

    encryption.py [--rounds 5] [--seconds 3] [--before FOLDER]     throughput
    encryption.py --cpu [--rounds 30]     the broker's CPU time of fetches

`--cpu`: one connection fetches, 1 MiB at a time, what is in the page cache, from the plain and the encrypted topic in
turns. `history` is read from the start of a partition on, which decrypts it; `tail` is what was produced a moment
before. Lower quartiles of the rounds; `plain again` is the plain topic a second time, which shows the noise.

Throughput: `produce` and `consume` are `load.py`, a client that does next to nothing: the ratio is what the broker can
do at most, and plain bytes go out by `sendfile`. `consume, librdkafka` is what an application sees. Rounds are
interleaved, and a ratio is taken between two figures of the same round; the table has the median and the range. CPU is
that of the broker. `flush.policy=os`, so that the disk is not what is measured. With `--before`, a folder with the code
of an earlier version, the plain topic is measured on a broker of that code, too: the cost if it is off.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from harness import wire
from harness.client_connection import ClientConnection, cpu_ns
from harness.process import cpu_s
from headrace.testing.process import BrokerProcess

HERE = Path(__file__).parent
PARTITIONS = 4
PRODUCED_BYTES = 250_000_000
"""In one run at most: more would wait for the disk."""
ENCRYPTED = {"encryption.at.rest": "true"}
_ENCRYPTION_BYTES = 49
_DEPTH = 32
_HISTORY_FETCHES = 48
"""More than the broker holds in memory."""


class Load(NamedTuple):
    """A load of produce, and what is fetched at a time when it is read again."""

    message_bytes: int
    batch_messages: int
    fetch_bytes: int
    messages: int
    """How many a client reads."""

    def __str__(self) -> str:
        return f"{self.batch_messages} x {self.message_bytes} B"


LOADS = (
    Load(100, 100, 1 << 20, 1_000_000),
    Load(1000, 64, 1 << 20, 300_000),
    Load(1000, 1, 1 << 20, 20_000),
)
CLIENT = "consume, librdkafka"


class Place(NamedTuple):
    """A topic on a broker."""

    name: str
    port: int
    pid: int
    topic: str


class Measured(NamedTuple):
    mb_s: float
    cpu_s_per_gb: float
    """CPU time of the broker: on a machine that is busy with other things it says more than the clock."""


def measure(kind: str, place: Place, load: Load, seconds: float) -> Measured:
    """One run of the load generator."""
    is_client = kind == CLIENT
    program, mode = ("client_kafka.py", "consume") if is_client else ("load.py", kind)
    command = [sys.executable, str(HERE / program), mode, "--port", str(place.port), "--topic", place.topic]
    command += ["--partitions", str(PARTITIONS), "--warmup", "0.5", "--seconds", str(seconds)]
    command += ["--messages", str(load.messages)] if is_client else ["--connections", "2"]
    if kind == "produce":
        command += ["--message-bytes", str(load.message_bytes), "--batch-messages", str(load.batch_messages)]
        command += ["--depth", "8", "--acks", "-1", "--max-bytes", str(PRODUCED_BYTES)]
    elif kind == "consume":
        command += ["--fetch-bytes", str(load.fetch_bytes)]
    before_s = cpu_s(place.pid)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    cpu = (cpu_s(place.pid) - before_s) / found["bytes_total"] * 1e9
    return Measured(found["bytes"] / found["seconds"] / 1e6, cpu)


def create(port: int, topic: str, settings: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    new = NewTopic(topic, PARTITIONS, 1, config={"flush.policy": "os", **settings})
    for future in admin.create_topics([new]).values():
        future.result(30)


def median(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


class Topic:
    """One partition, and the fetches that read it."""

    def __init__(self, broker: BrokerProcess, name: str, load: Load) -> None:
        self._pid = broker.pid
        self._connection = ClientConnection(broker.port)
        batch = wire.record_batch(load.message_bytes, load.batch_messages, 1_700_000_000_000)
        self._produce = wire.produce_request(name, 0, batch, acks=-1, correlation_id=7)
        self._fetch = wire.FetchRequest(name, [0], partition_max_bytes=1 << 20, max_wait_ms=0)
        self._messages, self._batches = load.batch_messages, (1 << 20) // (len(batch) + _ENCRYPTION_BYTES)
        self._fetched_bytes = self._batches * len(batch)
        self._end = 0

    def fill(self) -> None:
        """Append as much as one fetch returns."""
        for _ in range(self._batches // _DEPTH):
            self._connection.ask(self._produce * _DEPTH, _DEPTH)
        self._connection.ask(self._produce * (self._batches % _DEPTH), self._batches % _DEPTH)
        self._end += self._batches * self._messages

    def history(self, fetches: int) -> float:
        """CPU s per GB to read from the start on."""
        return self._measure([at * self._batches * self._messages for at in range(fetches)])

    def tail(self, fetches: int) -> float:
        """CPU s per GB to read what has just been appended."""
        spent = 0.0
        for _ in range(fetches):
            began = self._end
            self.fill()
            spent += self._measure([began])
        return spent / fetches

    def _measure(self, offsets: list[int]) -> float:
        before = cpu_ns(self._pid)
        for offset in offsets:
            self._fetch.seek(0, offset)
            self._connection.ask(bytes(self._fetch.frame), 1)
        return (cpu_ns(self._pid) - before) / (len(offsets) * self._fetched_bytes)


def compare_cpu(broker: BrokerProcess, options: argparse.Namespace) -> None:
    print("| load | | plain, CPU s per GB | encrypted | plain : encrypted | plain : plain again |")
    print("|---|---|---|---|---|---|", flush=True)
    for number, load in enumerate(LOADS):
        topics = {}
        for name in ("plain", "encrypted"):
            topic = f"cpu-{name}-{number}"
            create(broker.port, topic, ENCRYPTED if name == "encrypted" else {})
            topics[name] = Topic(broker, topic, load)
            for _ in range(_HISTORY_FETCHES):
                topics[name].fill()
        topics["plain again"] = topics["plain"]
        kinds: tuple[tuple[str, Callable[[Topic], float]], ...] = (
            ("history", lambda topic: topic.history(8)),
            ("tail", lambda topic: topic.tail(4)),
        )
        for kind, measured in kinds:
            found: dict[str, list[float]] = {name: [] for name in topics}
            names = list(topics)
            for round_number in range(options.rounds):
                shift = round_number % len(names)
                for name in names[shift:] + names[:shift]:
                    found[name].append(measured(topics[name]))
            plain, encrypted, again = (statistics.quantiles(found[name], n=4)[0] for name in names)
            cells = f"{plain:.3f} | {encrypted:.3f} | {plain / encrypted:.2f} | {plain / again:.2f}"
            print(f"| {load} | {kind} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--cpu", action="store_true", help="CPU time of fetches instead of throughput")
    parser.add_argument("--before", type=Path, help="a folder to import an earlier version of headrace from")
    options = parser.parse_args()
    key = {"HEADRACE_ENCRYPTION_MASTER_KEY": b64encode(os.urandom(32)).decode()}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        codes: list[tuple[str, dict[str, str]]] = [("now", key)]
        if options.before is not None:
            codes.append(("before", {"PYTHONPATH": str(options.before)}))
        brokers: dict[str, BrokerProcess] = {}
        for name, environment in codes:
            broker = BrokerProcess(folder / name, env={**os.environ, **environment}, settings={"http.listen": "off"})
            stack.callback(broker.close)
            brokers[name] = broker.start()
        if options.cpu:
            compare_cpu(brokers["now"], options)
            return
        print("| load | | plain, MB/s | encrypted : plain | CPU s per GB, plain | encrypted | now : before | CPU |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        for number, load in enumerate(LOADS):
            compare(load, number, brokers, options)


def compare(load: Load, number: int, brokers: dict[str, BrokerProcess], options: argparse.Namespace) -> None:
    """Measure one load on all places, and print a line for each kind of use."""
    now = brokers["now"]
    places = [
        Place("plain", now.port, now.pid, f"plain-{number}"),
        Place("encrypted", now.port, now.pid, f"encrypted-{number}"),
    ]
    if "before" in brokers:
        places.append(Place("before", brokers["before"].port, brokers["before"].pid, f"plain-{number}"))
    for place in places:
        create(place.port, place.topic, ENCRYPTED if place.name == "encrypted" else {})
    for kind in ("produce", "consume", CLIENT):
        found: dict[str, list[Measured]] = {place.name: [] for place in places}
        for round_number in range(options.rounds):
            for place in places if round_number % 2 else reversed(places):
                found[place.name].append(measure(kind, place, load, options.seconds))
        plain, encrypted, before = found["plain"], found["encrypted"], found.get("before", [])
        cells = [
            f"{statistics.median(one.mb_s for one in plain):.0f}",
            median([a.mb_s / b.mb_s for a, b in zip(encrypted, plain, strict=True)]),
            f"{statistics.median(one.cpu_s_per_gb for one in plain):.2f}",
            f"{statistics.median(one.cpu_s_per_gb for one in encrypted):.2f}",
        ]
        if before:
            cells.append(median([a.mb_s / b.mb_s for a, b in zip(plain, before, strict=True)]))
            cells.append(median([a.cpu_s_per_gb / b.cpu_s_per_gb for a, b in zip(plain, before, strict=True)]))
        print(f"| {load} | {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
