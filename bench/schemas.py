"""What the schema registry can do, and what schema validation costs: topics with and without, on one broker.

    schemas.py [--rounds 5] [--seconds 2]

`load.py` is a client that does next to nothing: its ratio is what the broker can do at most. `librdkafka` is what an
application sees. Rounds are interleaved, and a ratio is taken between two figures of the same round; the table has the
median and the range. CPU is that of the broker. `flush.policy=os`, so that the disk is not what is measured. Values are
strings in Avro, of sizes that differ as those of an application do, and without keys.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from confluent_kafka.admin import AdminClient, NewTopic

from harness.process import cpu_s
from headrace.runtime.clock import SystemClock
from headrace.schemas.lookup import SchemaLookup
from headrace.schemas.resolved import IdOrGuid, Membership, ResolvedSchema
from headrace.testing.process import BrokerProcess

HERE = Path(__file__).parent
PARTITIONS = 4
PRODUCED_BYTES = 150_000_000
"""In one run at most: more would wait for the disk."""
MODES = ("off", "id", "payload")
CLIENTS = 4
TYPE = "application/vnd.schemaregistry.v1+json"


class ProduceLoad(NamedTuple):
    program: str
    message_bytes: int
    batch_messages: int
    spread: int

    def __str__(self) -> str:
        sizes = f"{self.message_bytes}±{self.spread} B" if self.spread else f"{self.message_bytes} B"
        batch = f"{self.batch_messages} x " if self.batch_messages else ""
        return f"{'librdkafka' if self.program == 'client_kafka.py' else 'load.py'}, {batch}{sizes}"


LOADS = (
    ProduceLoad("client_kafka.py", 100, 0, 40),
    ProduceLoad("client_kafka.py", 1000, 0, 400),
    ProduceLoad("load.py", 100, 100, 40),
    ProduceLoad("load.py", 100, 100, 0),
    ProduceLoad("load.py", 1000, 64, 400),
    ProduceLoad("load.py", 1000, 1, 0),
)


class Produced(NamedTuple):
    messages_s: float
    cpu_us: float
    """CPU time of the broker per message: on a machine that is busy with other things it says more than the clock."""


def produce(load: ProduceLoad, broker: BrokerProcess, topic: str, schema_id: int, seconds: float) -> Produced:
    command = [sys.executable, str(HERE / load.program), "produce", "--port", str(broker.port), "--topic", topic]
    command += ["--partitions", str(PARTITIONS), "--warmup", "0.5", "--seconds", str(seconds)]
    command += ["--message-bytes", str(load.message_bytes), "--batch-messages", str(load.batch_messages)]
    command += ["--schema-id", str(schema_id), "--spread", str(load.spread)]
    if load.program == "load.py":
        command += ["--connections", "2", "--depth", "8", "--acks", "-1", "--max-bytes", str(PRODUCED_BYTES)]
    before_s = cpu_s(broker.pid)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return Produced(
        found["messages"] / found["seconds"], (cpu_s(broker.pid) - before_s) / found["messages_total"] * 1e6
    )


def median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


class Registry:
    """A client of the registry with a connection of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = HTTPConnection(parts.hostname or "", parts.port, timeout=60)

    def call(self, method: str, path: str, body: object = None) -> dict[str, object]:
        data = None if body is None else json.dumps(body)
        self._connection.request(method, f"/registry{path}", data, {"Content-Type": TYPE})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {content!r}")
        found: dict[str, object] = json.loads(content)
        return found

    def register(self, subject: str, schema: object) -> int:
        found = self.call("POST", f"/subjects/{subject}/versions", {"schema": json.dumps(schema)})
        return int(str(found["id"]))


def compare(load: ProduceLoad, number: int, broker: BrokerProcess, options: argparse.Namespace) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    registry = Registry(broker.http_url)
    topics = {mode: f"{mode}-{number}" for mode in MODES}
    new = [
        NewTopic(topic, PARTITIONS, 1, config={"flush.policy": "os", "value.schema.validation": mode})
        for mode, topic in topics.items()
    ]
    for future in admin.create_topics(new).values():
        future.result(30)
    (schema_id,) = {registry.register(f"{topic}-value", {"type": "string"}) for topic in topics.values()}
    found: dict[str, list[Produced]] = {mode: [] for mode in MODES}
    for round_number in range(options.rounds):
        for mode in MODES if round_number % 2 else reversed(MODES):
            found[mode].append(produce(load, broker, topics[mode], schema_id, options.seconds))
    off = found["off"]
    cells = [str(load), f"{statistics.median(one.messages_s for one in off) / 1000:.0f}"]
    for mode in MODES[1:]:
        cells.append(median([a.messages_s / b.messages_s for a, b in zip(found[mode], off, strict=True)]))
    cells += [f"{statistics.median(one.cpu_us for one in found[mode]):.2f}" for mode in MODES]
    print(f"| {' | '.join(cells)} |", flush=True)


def rate(name: str, broker: BrokerProcess, count: int, work: Callable[[Registry, int], object]) -> None:
    """Call `work` with each number, from several clients at a time, and print how many it did."""
    local = [Registry(broker.http_url) for _ in range(CLIENTS)]

    def run(client: int) -> None:
        for number in range(client, count, CLIENTS):
            work(local[client], number)

    before_s, began_s = cpu_s(broker.pid), time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(run, range(CLIENTS)))
    elapsed_s, busy_s = time.perf_counter() - began_s, cpu_s(broker.pid) - before_s
    print(f"| {name} | {count / elapsed_s:,.0f} | {count / busy_s:,.0f} |", flush=True)


def lookups_in_process(count: int) -> None:
    """How often the broker itself can look up a schema that is in its cache."""
    schema = ResolvedSchema(1, "", "AVRO", '"string"')

    async def ask_schema(_: IdOrGuid) -> ResolvedSchema:
        return schema

    async def ask_memberships(wanted: Sequence[Membership]) -> Sequence[bool]:
        return [True] * len(wanted)

    async def work() -> None:
        lookup = SchemaLookup(SystemClock(), ask_memberships, ask_schema)
        await lookup.schema(1)
        await lookup.belongs(1, "a")
        for name, one in (("schema", lambda: lookup.schema(1)), ("belongs", lambda: lookup.belongs(1, "a"))):
            began_s = time.process_time()
            for _ in range(count):
                await one()
            busy_s = time.process_time() - began_s
            print(f"| in the broker: `SchemaLookup.{name}` | | {count / busy_s:,.0f} |", flush=True)

    asyncio.run(work())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        broker = BrokerProcess(Path(folder) / "broker")
        try:
            broker.start()
            print("| load | off, 1,000/s | id : off | payload : off | CPU µs a message, off | id | payload |")
            print("|---|---|---|---|---|---|---|", flush=True)
            for number, load in enumerate(LOADS):
                compare(load, number, broker, options)
            print("\n| requests | by the clock, 1/s | for each second of the broker's CPU |\n|---|---|---|", flush=True)
            rate(
                "register a new schema",
                broker,
                1000,
                lambda registry, number: registry.register(
                    f"rate-{number % 100}", {"type": "fixed", "name": "F", "size": 8, "doc": f"{number}"}
                ),
            )
            rate("`GET /schemas/ids/{id}`", broker, 10_000, lambda registry, _: registry.call("GET", "/schemas/ids/1"))
        finally:
            broker.close()
    lookups_in_process(200_000)


if __name__ == "__main__":
    main()
