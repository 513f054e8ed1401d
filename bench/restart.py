"""How long a broker takes to be ready again, by the number of its partitions: after `kill -9` and after a clean stop.

    restart.py [--partitions 20 670 1000] [--written 20] [--rounds 3] [--code FOLDER]

A broker gets topics with so many partitions, messages of an idempotent producer in all of them, and a consumer group,
which makes the 50 partitions of its offsets. When the checkpoint of the recovery points covers all of that, a few
partitions are written to and the process is killed. Measured is the next start: seconds from the start of the process
to its ready line, and CPU seconds of all its threads until then. After these rounds it is stopped cleanly and started
again, as often.

The page cache is warm, as after a kill. `--code` measures another version of Headrace: a folder to import it from. On a
machine that is busy with other things the CPU time says more, and `--nice -10` gives the measured process its turn.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from harness.process import cpu_s, free_port

CHECKPOINT_EVERY_MS = 2000
POINTS = "recovery-point-offset-checkpoint"
READY = b"Headrace is ready"
PER_TOPIC = 100
MESSAGE = b"m" * 1000


class Started(NamedTuple):
    ready_s: float
    cpu_s: float


class Broker:
    """One data directory, and the process that serves it."""

    def __init__(self, folder: Path, code: Path | None = None, nice: int = 0) -> None:
        self.data = folder / "data"
        self.port = free_port()
        self._log = folder / "output.log"
        self._env = {**os.environ, **({"PYTHONPATH": str(code)} if code else {})}
        # Compiling all of the code at each start would hide what is measured.
        self._env.pop("PYTHONDONTWRITEBYTECODE", None)
        self._prefix = ["nice", "-n", str(nice)] if nice else []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Started:
        command = [*self._prefix, sys.executable, "-m", "headrace", "serve", "--data-dir", str(self.data)]
        command += ["--kafka-listen", f"127.0.0.1:{self.port}", "--http-listen", f"127.0.0.1:{free_port()}"]
        command += ["--set", f"log.flush.offset.checkpoint.interval.ms={CHECKPOINT_EVERY_MS}"]
        command += ["--set", "preload.enable=false"]
        began = time.perf_counter()
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=self._env)
        self._process = process
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(READY):
                return Started(time.perf_counter() - began, cpu_s(process.pid))
        raise SystemExit(f"the broker did not start: {self._log.read_text()[-2000:]}")

    def client_options(self) -> dict[str, Any]:
        return {"bootstrap.servers": f"127.0.0.1:{self.port}", "enable.idempotence": True, "linger.ms": 20}

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None


def fill(broker: Broker, partitions: int, batches: int) -> list[tuple[str, int]]:
    """Topics with messages in every partition, and a group with an offset; returns the partitions."""
    where = {"bootstrap.servers": f"127.0.0.1:{broker.port}"}
    sizes = [min(PER_TOPIC, partitions - first) for first in range(0, partitions, PER_TOPIC)]
    names = [f"topic-{number}" for number in range(len(sizes))]
    admin = AdminClient(where)
    for future in admin.create_topics([NewTopic(n, size, 1) for n, size in zip(names, sizes, strict=True)]).values():
        future.result()
    everything = [(name, index) for name, size in zip(names, sizes, strict=True) for index in range(size)]
    producer = Producer(broker.client_options())
    for _ in range(batches):
        write(producer, everything)
    consumer = Consumer({**where, "group.id": "readers", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(name, index, 1) for name, index in everything], asynchronous=False)
    consumer.close()
    return everything


def write(producer: Producer, partitions: list[tuple[str, int]], messages: int = 10) -> None:
    for topic, index in partitions:
        for _ in range(messages):
            producer.produce(topic, MESSAGE, partition=index)
    if producer.flush(60):
        raise SystemExit("the broker did not acknowledge everything")


def await_checkpoint(broker: Broker, everything: list[tuple[str, int]], offset: int) -> None:
    """Wait until the recovery points cover what was written."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = (broker.data / POINTS).read_text().splitlines()[2:] if (broker.data / POINTS).exists() else []
        points = {(topic, int(index)): int(point) for topic, index, point in (line.split() for line in lines)}
        if all(points.get(partition, 0) >= offset for partition in everything):
            return
        time.sleep(0.05)
    raise SystemExit("the recovery points were not written")


def measure(args: argparse.Namespace, partitions: int) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="restart-", dir=args.work_dir))
    broker = Broker(folder, args.code, args.nice)
    killed: list[Started] = []
    clean: list[Started] = []
    try:
        broker.start()
        everything = fill(broker, partitions, args.batches)
        offset = args.batches * 10
        for _ in range(args.rounds):
            await_checkpoint(broker, everything, offset)
            # Killed with everything idle but the partitions that are written to now, before the next checkpoint.
            time.sleep(CHECKPOINT_EVERY_MS / 1000 + 0.5)
            write(Producer(broker.client_options()), everything[: args.written])
            broker.kill()
            killed.append(broker.start())
        for _ in range(args.rounds):
            broker.stop()
            clean.append(broker.start())
        broker.stop()
    finally:
        broker.kill()
        shutil.rmtree(folder)
    return {"partitions": partitions, "killed": summary(killed), "clean": summary(clean)}


def summary(starts: list[Started]) -> dict[str, list[float]]:
    """Median, least and most of what was measured."""
    result = {}
    for name in Started._fields:
        values = sorted(round(getattr(started, name), 2) for started in starts)
        if values:
            result[name] = [round(statistics.median(values), 2), values[0], values[-1]]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--partitions", type=int, nargs="+", default=[20, 670, 1000])
    parser.add_argument("--written", type=int, default=20, help="how many of them are written to before the kill")
    parser.add_argument("--batches", type=int, default=10, help="of ten messages with 1 kB, in every partition")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--code", type=Path, help="where to import headrace from")
    parser.add_argument("--work-dir", type=Path)
    parser.add_argument("--nice", type=int, default=0, help="priority of the broker")
    args = parser.parse_args()
    for partitions in args.partitions:
        print(json.dumps(measure(args, partitions)), flush=True)


if __name__ == "__main__":
    main()
