"""What the work of queues costs on one worker and on two: CPU time of all workers per message, sent, received, deleted.

    worker_queues.py [--before FOLDER] [--rounds N] [--messages N]

Each cluster is an etcd (which must be on the PATH) and the workers of one machine, with data in memory. All clusters
run at the same time and have their turns in changing order; the table has medians over the rounds. `--before` is the
`src` folder of another commit, which is measured beside this one.

`http` is the SQS API with one message to a request, at the address of the first worker, whichever leads the queue;
`http leader` at the worker that leads it; `http ten` has ten messages to a request, at one address; `sdk` is the SDK
with the address of the first worker, a hundred messages to a call.
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import UUID

from headrace import Client
from headrace.model.state_partition import state_partition
from headrace.testing.cluster import ClusterProcesses
from headrace.wire import Cluster

QUEUES = 8
_BODY = "x" * 100
_STALL_S = 60.0


class Sqs:
    """A connection that speaks the SQS API to one worker."""

    def __init__(self, url: str) -> None:
        self._connection = HTTPConnection(url.removeprefix("http://"), timeout=_STALL_S)

    def call(self, action: str, **body: object) -> dict[str, Any]:
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{action}"}
        self._connection.request("POST", "/", json.dumps(body), headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"{action}: {response.status} {answer!r}")
        found: dict[str, Any] = json.loads(answer or b"{}")
        return found

    def cycle(self, url: str, messages: int, at_once: int) -> None:
        """Send, receive and delete so many messages, `at_once` to a request."""
        for _ in range(messages // at_once):
            if at_once == 1:
                self.call("SendMessage", QueueUrl=url, MessageBody=_BODY)
            else:
                entries = [{"Id": str(number), "MessageBody": _BODY} for number in range(at_once)]
                self.call("SendMessageBatch", QueueUrl=url, Entries=entries)
            left = at_once
            while left:
                got = self.call("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=at_once, WaitTimeSeconds=5)
                receipts = [message["ReceiptHandle"] for message in got.get("Messages", ())]
                left -= len(receipts)
                if at_once == 1 and receipts:
                    self.call("DeleteMessage", QueueUrl=url, ReceiptHandle=receipts[0])
                elif receipts:
                    entries = [{"Id": str(number), "ReceiptHandle": each} for number, each in enumerate(receipts)]
                    self.call("DeleteMessageBatch", QueueUrl=url, Entries=entries)


class Workers:
    """A running cluster of one version, with its queues."""

    def __init__(self, name: str, cluster: ClusterProcesses) -> None:
        self.name = name
        self.count = len(cluster.brokers)
        self._cluster = cluster
        self._first = cluster.brokers[1]
        sqs = Sqs(self._first.http_url)
        self._names = [f"q{number}" for number in range(QUEUES)]
        self._urls = [sqs.call("CreateQueue", QueueName=name)["QueueUrl"] for name in self._names]
        with Cluster(cluster.bootstrap) as wire:
            topics = wire.metadata()
        leaders = [topics[name].partitions[0].leader for name in self._names]
        self._leaders = [cluster.brokers[leader] for leader in leaders]
        self._client = Client(self._first.bootstrap)
        self._queues = [self._client.queue(name).create() for name in self._names]
        for queue in self._queues:  # Opens its state, and so creates the topic of the state.
            queue.receive(max=1, wait=0)
        with Cluster(cluster.bootstrap) as wire:
            states = wire.metadata()["__queue_state"].partitions
        led = [
            states[state_partition(topics[name].topic_id or UUID(int=0), len(states))].leader for name in self._names
        ]
        self.apart = sum(leader != its for leader, its in zip(leaders, led, strict=True))
        """How many queues another worker leads than their state."""

    def close(self) -> None:
        self._client.close()

    def cpu_us(self) -> float:
        """The CPU time of all workers so far, in all their threads."""
        tasks = [task for each in self._cluster.brokers.values() for task in Path(f"/proc/{each.pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1000

    def http(self, messages: int, at_once: int = 1) -> None:
        self._on_each(lambda at: Sqs(self._first.http_url).cycle(self._urls[at], messages // QUEUES, at_once))

    def http_leader(self, messages: int) -> None:
        self._on_each(lambda at: Sqs(self._leaders[at].http_url).cycle(self._urls[at], messages // QUEUES, 1))

    def sdk(self, messages: int) -> None:
        def work(at: int) -> None:
            queue, size = self._queues[at], 100
            for _ in range(messages // QUEUES // size):
                queue.send_many([_BODY.encode()] * size)
                left = size
                while left:
                    acks = [message.ack() for message in queue.receive(max=left, wait=1)]
                    for ack in acks:
                        ack.result(_STALL_S)
                    left -= len(acks)

        self._on_each(work)

    @staticmethod
    def _on_each(work: Callable[[int], None]) -> None:
        """Do the work of each queue, all at the same time."""
        failed: list[Exception] = []

        def run(at: int) -> None:
            try:
                work(at)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=run, args=(at,)) for at in range(QUEUES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]


KINDS: dict[str, tuple[Callable[[Workers, int], None], int]] = {
    "http": (Workers.http, 1),
    "http leader": (Workers.http_leader, 1),
    "http ten": (lambda workers, messages: workers.http(messages, 10), 5),
    "sdk": (Workers.sdk, 20),
}
"""How each is worked through, and how many times the number of messages it has in a turn."""


@contextmanager
def running(folder: Path, name: str, source: Path | None, workers: int) -> Iterator[Workers]:
    """The workers of one version."""
    before = os.environ.get("PYTHONPATH")
    if source is not None:
        os.environ["PYTHONPATH"] = str(source)
    try:
        cluster = ClusterProcesses(folder / f"{name}-{workers}", brokers=workers, racks=["machine"]).start()
    finally:
        if source is not None:
            os.environ.pop("PYTHONPATH")
            if before is not None:
                os.environ["PYTHONPATH"] = before
    try:
        found = Workers(name, cluster)
        try:
            yield found
        finally:
            found.close()
    finally:
        cluster.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=400)
    parser.add_argument("--only", choices=KINDS, action="append")
    args = parser.parse_args()
    versions: dict[str, Path | None] = {"now": None, **({"before": args.before} if args.before else {})}
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=memory) as folder, ExitStack() as stack:
        clusters = [
            stack.enter_context(running(Path(folder), name, source, workers))
            for name, source in versions.items()
            for workers in (1, 2)
        ]
        for cluster in clusters:
            print(f"{cluster.name}, {cluster.count} workers: {cluster.apart} of {QUEUES} queues apart from their state")
        taken: dict[tuple[str, str, int], list[float]] = {}
        for turn in range(args.rounds + 1):
            for kind in args.only or KINDS:
                work, factor = KINDS[kind]
                messages = args.messages * factor
                for cluster in random.sample(clusters, len(clusters)):
                    before_us = cluster.cpu_us()
                    work(cluster, messages)
                    if turn:  # The first one warms up.
                        spent_us = (cluster.cpu_us() - before_us) / messages
                        taken.setdefault((kind, cluster.name, cluster.count), []).append(spent_us)
            print(f"round {turn}, load {os.getloadavg()[0]:.0f}, {time.strftime('%H:%M:%S')}", flush=True)
        print("\n| µs of CPU per message | version | 1 worker | 2 workers | ratio |\n|---|---|---:|---:|---:|")
        for kind in args.only or KINDS:
            for name in versions:
                one, two = taken[kind, name, 1], taken[kind, name, 2]
                ratio = statistics.median(b / a for a, b in zip(one, two, strict=True))
                print(
                    f"| {kind} | {name} | {statistics.median(one):.0f} | {statistics.median(two):.0f} | {ratio:.2f} |"
                )


if __name__ == "__main__":
    main()
