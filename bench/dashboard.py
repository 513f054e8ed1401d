"""What the dashboard costs: the processor time of a broker with open live views, and the time of a page of long lists.

    .venv/bin/python -m bench.dashboard --streams 200 --topics 10000 --groups 15000

The broker is a process of its own; its processor time comes from /proc. Lists are asked for one after the other, each
with another page or order, after the figures have been collected once.
"""

import argparse
import json
import os
import selectors
import socket
import statistics
import time
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.process import BrokerProcess

_TICKS_PER_S = 100
_SETTINGS = {"num.partitions": "1", "max.partitions.per.broker": "20000"}
"""Room for the partitions of `__consumer_offsets` besides those of the topics."""
_SAMPLE_S = 20.0
_ROUNDS = 2
"""Each with a sample without streams and of each view: the broker's own periodic work falls into some of them."""
_FILLED = "filled"
_AT_A_TIME = 100
"""Topics and groups that are created with one request, or at the same time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=15_000)
    parser.add_argument("--data", type=Path, help="keep the topics and groups here, and use those of an earlier run")
    wanted = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = wanted.data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        is_filled = (folder / _FILLED).exists()
        broker = BrokerProcess(folder / "data", settings=_SETTINGS, log_file=folder / "log")
        broker.start()
        try:
            if wanted.streams:
                print_streams(broker, wanted.streams)
            if not is_filled:
                create(broker, wanted.topics, wanted.groups)
                (folder / _FILLED).touch()
            print_pages(broker, wanted.topics, wanted.groups)
        finally:
            broker.terminate()


def print_streams(broker: BrokerProcess, count: int) -> None:
    get(broker, "/overview")
    found: dict[str, list[float]] = {}
    for _ in range(_ROUNDS):
        for view in ("", "overview", "cluster"):
            streams = [opened(broker, view) for _ in range(count if view else 0)]
            found.setdefault(view, []).append(cpu_share(broker, streams))
            for stream in streams:
                stream.close()
    idle = statistics.fmean(found.pop(""))
    for view, shares in found.items():
        more, each = statistics.fmean(shares) - idle, ", ".join(f"{share:.2%}" for share in shares)
        print(f"{count} streams of {view}: {more:.2%} of a core above idle, {idle:.2%} (rounds: {each})")


def opened(broker: BrokerProcess, view: str) -> socket.socket:
    where = urlsplit(broker.http_url)
    stream = socket.create_connection((where.hostname or "", where.port or 0))
    stream.sendall(f"GET /api/v1/live/{view} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    stream.setblocking(False)
    return stream


def cpu_share(broker: BrokerProcess, streams: list[socket.socket]) -> float:
    """The share of a core that the broker uses while the streams are read."""
    read(streams, 5.0)
    before, began_s = cpu_s(broker.pid), time.monotonic()
    received = read(streams, _SAMPLE_S)
    if streams:
        events = received / len(streams)
        print(f"  each stream had {events:.1f} reads in {_SAMPLE_S:.0f} s", flush=True)
    return (cpu_s(broker.pid) - before) / (time.monotonic() - began_s)


def read(streams: list[socket.socket], seconds: float) -> int:
    """Read all streams for some time; how many reads had data."""
    deadline_s, received = time.monotonic() + seconds, 0
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while (left_s := deadline_s - time.monotonic()) > 0:
            if not streams:
                time.sleep(left_s)
            for key, _ in selector.select(left_s):
                assert key.fileobj.recv(1 << 20), "the broker has closed a stream"  # type: ignore[union-attr]
                received += 1
    return received


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def create(broker: BrokerProcess, topics: int, groups: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "socket.timeout.ms": 300_000})
    names = [f"topic-{number:05}" for number in range(topics)]
    for start in range(0, topics, _AT_A_TIME):
        wanted = [NewTopic(name, 1, 1) for name in names[start : start + _AT_A_TIME]]
        for future in admin.create_topics(wanted, operation_timeout=300, request_timeout=300).values():
            future.result(600)
    for start in range(0, groups, _AT_A_TIME):
        pending = [
            admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(f"group-{number:05}", [TopicPartition(names[number % topics], 0, 0)])]
            )
            for number in range(start, min(start + _AT_A_TIME, groups))
        ]
        for each in pending:
            for future in each.values():
                future.result(600)


def print_pages(broker: BrokerProcess, topics: int, groups: int) -> None:
    print(f"{topics} topics, {groups} groups; load {os.getloadavg()[0]:.0f}")
    for path in (
        "/topics?page=1",
        "/topics?sort=size_bytes&order=desc&page=7",
        "/topics?search=99&per_page=100",
        "/groups?page=1",
        "/groups?sort=lag_seconds&order=desc",
        "/groups?search=77&sort=lag_messages&page=2",
        "/topics/topic-00001",
        "/groups/group-00001",
        "/overview",
    ):
        get(broker, path)
        before_s = cpu_s(broker.pid)
        times_ms = sorted(timed_ms(broker, path) for _ in range(15))
        used_ms = (cpu_s(broker.pid) - before_s) / len(times_ms) * 1000
        print(
            f"{path}: median {statistics.median(times_ms):.0f} ms, worst {times_ms[-1]:.0f} ms; "
            f"{used_ms:.0f} ms of processor time each, with the broker's other work"
        )


def timed_ms(broker: BrokerProcess, path: str) -> float:
    # Spread over time, so that some requests find figures that are too old to be used again.
    time.sleep(0.37)
    began_s = time.perf_counter()
    get(broker, path)
    return (time.perf_counter() - began_s) * 1000


def get(broker: BrokerProcess, path: str) -> Any:
    connection = HTTPConnection(urlsplit(broker.http_url).netloc, timeout=60)
    try:
        connection.request("GET", f"/api/v1{path}")
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return json.loads(text)
    finally:
        connection.close()


if __name__ == "__main__":
    main()
