"""What ACLs cost: the broker's CPU time per request with authorization on and off, in many short turns.

    acls.py [--rounds 40] [--requests 8000] [--before FOLDER]

The smallest requests, so that a check is as large a part of each as it can be: Produce of single messages of 100 B,
pipelined, and Fetch of one batch from each of four partitions. There are 1,000 rules of other users, and two prefixed
ones of this user, who logs in with SCRAM. Each round measures every variant once, in changing order; `off again` is
`off` a second time, which shows the noise. With `--before`, a folder with the code of an earlier version, a second
broker runs that code. The table has medians of CPU time per request and of the ratios within a round, and the ratios of
the lower quartiles, which other work on the machine disturbs less.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic, ScramCredentialInfo, ScramMechanism
from confluent_kafka.admin import UserScramCredentialUpsertion as Upsertion

from harness import wire
from harness.client_connection import cpu_ns
from harness.process import free_port
from harness.secure_wire import Connector, Security
from harness.security import create_acls, switch
from headrace.testing.process import BrokerProcess

TOPIC = "bench-acls"
PARTITIONS = 4
DEPTH = 32
USER, PASSWORD = "bench", "a password for bench"
_LENGTH = Struct(">i")


class Measured(NamedTuple):
    broker: str
    is_on: bool
    name: str


class Load:
    """One connection to a broker, and what is measured by it."""

    def __init__(self, broker: BrokerProcess, sasl_port: int) -> None:
        self.pid = broker.pid
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        credential = Upsertion(USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode())
        self._admin.alter_user_scram_credentials([credential])[USER].result(30)
        new = NewTopic(TOPIC, PARTITIONS, 1, config={"flush.policy": "os"})
        self._admin.create_topics([new])[TOPIC].result(30)
        self.switch(on=True)
        create_acls(self._admin)
        self._sock = Connector(Security(None, USER, PASSWORD)).connect(sasl_port)
        batch = wire.record_batch(100, 1, 1_700_000_000_000)
        frames = [wire.produce_request(TOPIC, n % PARTITIONS, batch, acks=-1, correlation_id=n) for n in range(DEPTH)]
        self._produce = b"".join(frames)
        fetch = wire.FetchRequest(TOPIC, list(range(PARTITIONS)), partition_max_bytes=1, max_wait_ms=0)
        self._fetch = bytes(fetch.frame) * DEPTH

    def switch(self, *, on: bool) -> None:
        switch(self._admin, on=on)

    def produce(self, requests: int) -> None:
        self._run(self._produce, requests)

    def consume(self, requests: int) -> None:
        self._run(self._fetch, requests)

    def _run(self, block: bytes, requests: int) -> None:
        """Send blocks of `DEPTH` requests, each when the one before is answered."""
        for _ in range(requests // DEPTH):
            self._sock.sendall(block)
            left, data = DEPTH, bytearray()
            while left:
                part = self._sock.recv(1 << 20)
                if not part:
                    raise ConnectionError("the broker closed the connection")
                data += part
                at = 0
                while len(data) - at >= 4 and len(data) - at >= 4 + (size := _LENGTH.unpack_from(data, at)[0]):
                    at += 4 + size
                    left -= 1
                del data[:at]


def measure(load: Load, run: Callable[[int], None], requests: int, *, on: bool) -> float:
    """Microseconds of the broker's CPU time per request."""
    load.switch(on=on)
    run(DEPTH * 4)
    before = cpu_ns(load.pid)
    run(requests)
    return (cpu_ns(load.pid) - before) / 1e3 / (requests // DEPTH * DEPTH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--requests", type=int, default=8000)
    parser.add_argument("--before", type=Path, help="a folder to import an earlier version of headrace from")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        loads: dict[str, Load] = {}
        environments: dict[str, dict[str, str]] = {"now": {}}
        if options.before is not None:
            environments["before"] = {"PYTHONPATH": str(options.before)}
        for name, environment in environments.items():
            plain, sasl = free_port(), free_port()
            settings = {
                "http.listen": "off",
                "listeners": f"plain://127.0.0.1:{plain},sasl_plain://127.0.0.1:{sasl}",
                "super.users": "User:ANONYMOUS",
            }
            broker = BrokerProcess(folder / name, port=plain, env={**os.environ, **environment}, settings=settings)
            stack.callback(broker.close)
            loads[name] = Load(broker.start(), sasl)
        print("| | off | on | on : off | off again : off | lower quartiles, on : off | off again : off |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for kind in ("produce", "consume"):
            compare(kind, loads, options)


def quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0]


def compare(kind: str, loads: dict[str, Load], options: argparse.Namespace) -> None:
    """Measure one kind of request in turns, and print a line for each broker."""
    variants = [
        Measured(name, is_on, each)
        for name in loads
        for is_on, each in ((False, "off"), (True, "on"), (False, "off again"))
    ]
    found: dict[Measured, list[float]] = {variant: [] for variant in variants}
    for round_number in range(options.rounds):
        shift = round_number % len(variants)
        for variant in variants[shift:] + variants[:shift]:
            load = loads[variant.broker]
            run = load.produce if kind == "produce" else load.consume
            found[variant].append(measure(load, run, options.requests, on=variant.is_on))
    for name in loads:
        off, on, again = (found[variant] for variant in variants if variant.broker == name)
        cells = [
            f"{statistics.median(off):.2f}",
            f"{statistics.median(on):.2f}",
            f"{statistics.median(a / b for a, b in zip(on, off, strict=True)):.3f}",
            f"{statistics.median(a / b for a, b in zip(again, off, strict=True)):.3f}",
            f"{quartile(on) / quartile(off):.3f}",
            f"{quartile(again) / quartile(off):.3f}",
        ]
        print(f"| {kind}, {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
