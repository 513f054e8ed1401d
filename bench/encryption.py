"""What encryption at rest costs: produce and consume of an encrypted topic beside a plain one of the same broker.

    encryption.py [--rounds 5] [--seconds 3] [--before FOLDER]

Rounds are interleaved, and a ratio is taken between two figures of the same round; the table has the median and the
range. `flush.policy=os`, so that the disk is not what is measured. With `--before`, a folder with the code of an
earlier version, the plain topic is also measured on a broker of that code: what encryption costs where it is off.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from base64 import b64encode
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.process import BrokerProcess

HERE = Path(__file__).parent
PARTITIONS = 4
ENCRYPTED = {"encryption.at.rest": "true"}


class Load(NamedTuple):
    """A load of produce, and what is fetched at a time when it is read again."""

    message_bytes: int
    batch_messages: int
    fetch_bytes: int

    def __str__(self) -> str:
        return f"{self.batch_messages} x {self.message_bytes} B"


LOADS = (Load(100, 100, 1 << 20), Load(1000, 64, 1 << 20), Load(1000, 1, 1 << 20))


class Place(NamedTuple):
    """A topic on a broker."""

    name: str
    port: int
    topic: str


def measure(kind: str, place: Place, load: Load, seconds: float) -> float:
    """MB per second of one run of the load generator."""
    command = [sys.executable, str(HERE / "load.py"), kind, "--port", str(place.port), "--topic", place.topic]
    command += ["--partitions", str(PARTITIONS), "--connections", "2", "--warmup", "0.5", "--seconds", str(seconds)]
    if kind == "produce":
        command += ["--message-bytes", str(load.message_bytes), "--batch-messages", str(load.batch_messages)]
        command += ["--depth", "8", "--acks", "-1", "--max-bytes", str(2_000_000_000)]
    else:
        command += ["--fetch-bytes", str(load.fetch_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return float(found["bytes"] / found["seconds"] / 1e6)


def create(port: int, topic: str, settings: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    new = NewTopic(topic, PARTITIONS, 1, config={"flush.policy": "os", **settings})
    for future in admin.create_topics([new]).values():
        future.result(30)


def median(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--before", type=Path, help="a folder to import an earlier version of headrace from")
    options = parser.parse_args()
    key = {"HEADRACE_ENCRYPTION_MASTER_KEY": b64encode(os.urandom(32)).decode()}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        codes: list[tuple[str, dict[str, str]]] = [("now", key)]
        if options.before is not None:
            codes.append(("before", {"PYTHONPATH": str(options.before)}))
        ports = {}
        for name, environment in codes:
            broker = BrokerProcess(folder / name, env={**os.environ, **environment}, settings={"http.listen": "off"})
            stack.callback(broker.close)
            ports[name] = broker.start().port
        print("| load | | plain, MB/s | encrypted : plain | plain now : before |\n|---|---|---|---|---|", flush=True)
        for number, load in enumerate(LOADS):
            places = [
                Place("plain", ports["now"], f"plain-{number}"),
                Place("encrypted", ports["now"], f"enc-{number}"),
            ]
            if "before" in ports:
                places.append(Place("before", ports["before"], f"plain-{number}"))
            for place in places:
                create(place.port, place.topic, ENCRYPTED if place.name == "encrypted" else {})
            for kind in ("produce", "consume"):
                found: dict[str, list[float]] = {place.name: [] for place in places}
                for round_number in range(options.rounds):
                    for place in places if round_number % 2 else reversed(places):
                        found[place.name].append(measure(kind, place, load, options.seconds))
                plain = found["plain"]
                ratio = [a / b for a, b in zip(found["encrypted"], plain, strict=True)]
                before = [a / b for a, b in zip(plain, found.get("before", []), strict=False)]
                cells = [f"{statistics.median(plain):.0f}", median(ratio), median(before) if before else ""]
                print(f"| {load} | {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
