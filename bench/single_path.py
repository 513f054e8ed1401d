"""What one Produce request of 100 B costs the broker, handled in runs and one by one, in one process.

    single_path.py [--turns 1000] [--only alone …]

One broker in this process gets its requests without a network (`metrics.DirectConnection`), with acks=all. Turns are
compared one by one, in changing order: `one by one` is a connection that never makes a run of its requests, `runs` is
one as it comes, and `again` repeats that: it shows what can be told apart. `alone` is one request at a time, `single`
32 in one piece for one partition, `spread` 32 for four partitions in turns, `idempotent` 32 of an idempotent producer.

CPU time of all threads of the process, until the last answer is in the socket; the median of all turns but the first
fifth. Under `flush.policy=ack` that includes the thread that syncs; while it does, the event loop is polled.
"""

import argparse
import asyncio
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct

from confluent_kafka.admin import AdminClient, NewTopic
from crc32c import crc32c

import metrics
from harness import wire
from headrace.app.broker import BrokerApp
from headrace.config.broker import broker_settings
from headrace.kafka.connection import Connection
from headrace.kafka.server import KafkaServer

_POLICIES = ("os", "ack")
_PARTITIONS = 4
_DEPTH = 32
_PAUSE_S = 0.0003
_LENGTH = Struct(">i")
_PRODUCER = Struct(">qhi")
_PRODUCER_AT, _CRC_AT, _COVERED_FROM = 43, 17, 21
_BATCH = wire.record_batch(100, 1, 1_700_000_000_000)


class OneByOne(Connection):
    """A connection without runs."""

    __slots__ = ()

    def _handle_run(self) -> bool:
        return False


class Side:
    """A connection of its own, and requests for it."""

    def __init__(self, server: KafkaServer, kind: type[Connection], producer_id: int) -> None:
        metrics.Connection = kind  # type: ignore[misc]
        self._connection = metrics.DirectConnection(server, is_counted=True)
        self._producer_id = producer_id
        self._sequence = 0

    def numbered(self, topic: str) -> bytes:
        """32 requests of an idempotent producer, which go on after those before."""
        requests = []
        for _ in range(_DEPTH):
            batch = bytearray(_BATCH)
            _PRODUCER.pack_into(batch, _PRODUCER_AT, self._producer_id, 0, self._sequence)
            wire.I32.pack_into(batch, _CRC_AT, _signed(crc32c(batch[_COVERED_FROM:])))
            requests.append(wire.produce_request(topic, 0, bytes(batch), acks=-1, correlation_id=7))
            self._sequence += 1
        return b"".join(requests)

    async def turn(self, block: bytes, count: int) -> float:
        """Microseconds of CPU time for each of these requests."""
        direct = self._connection
        began = time.process_time_ns()
        direct._connection.get_buffer(-1)[: len(block)] = block
        direct._connection.buffer_updated(len(block))
        await asyncio.sleep(0)
        answers = b""
        while _whole(answers) < count:
            with suppress(BlockingIOError):
                answers += direct._other_end.recv(1 << 20, socket.MSG_DONTWAIT)
                continue
            await asyncio.sleep(_PAUSE_S)
        return (time.process_time_ns() - began) / 1e3 / count

    def close(self) -> None:
        self._connection.close()


def _signed(number: int) -> int:
    return number - (1 << 32) if number >> 31 else number


def _whole(data: bytes) -> int:
    """The number of whole frames."""
    count = at = 0
    while len(data) - at >= 4 and len(data) - at - 4 >= (size := _LENGTH.unpack_from(data, at)[0]):
        at += 4 + size
        count += 1
    return count


def _kinds(topic: str) -> dict[str, tuple[int, Callable[[Side], bytes]]]:
    def requests(partitions: int, count: int) -> bytes:
        return b"".join(
            wire.produce_request(topic, number % partitions, _BATCH, acks=-1, correlation_id=number)
            for number in range(count)
        )

    alone, single, spread = requests(1, 1), requests(1, _DEPTH), requests(_PARTITIONS, _DEPTH)
    return {
        "alone": (1, lambda _: alone),
        "single": (_DEPTH, lambda _: single),
        "spread": (_DEPTH, lambda _: spread),
        "idempotent": (_DEPTH, lambda side: side.numbered(topic)),
    }


async def measure(server: KafkaServer, options: argparse.Namespace) -> None:
    kinds = {"one by one": OneByOne, "runs": Connection, "again": Connection}
    sides = {name: Side(server, kind, 1000 + number) for number, (name, kind) in enumerate(kinds.items())}
    print(f"| µs of CPU per request | {' | '.join(sides)} |\n|---|{'---|' * len(sides)}", flush=True)
    for policy in _POLICIES:
        for name, (count, block_of) in _kinds(f"bench-{policy}").items():
            if options.only and name not in options.only:
                continue
            found: dict[str, list[float]] = {each: [] for each in sides}
            for number in range(options.turns):
                for each in (list(sides), list(reversed(sides)))[number % 2]:
                    found[each].append(await sides[each].turn(block_of(sides[each]), count))
            medians = [statistics.median(times[options.turns // 5 :]) for times in found.values()]
            cells = " | ".join(f"{each:.2f} ({each / medians[0]:.3f})" for each in medians)
            print(f"| {name}, {policy} | {cells} |", flush=True)
    for side in sides.values():
        side.close()


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for policy in _POLICIES:
        new = NewTopic(f"bench-{policy}", _PARTITIONS, 1, config={"flush.policy": policy})
        admin.create_topics([new])[new.topic].result(30)


async def run(options: argparse.Namespace, folder: Path) -> None:
    settings = {"data.dir": str(folder / "data"), "kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0"}
    app = BrokerApp(broker_settings(settings))
    await app.start()
    try:
        server = app._metrics.kafka_server
        assert server is not None
        await asyncio.to_thread(create_topics, str(app.kafka_endpoint))
        await asyncio.sleep(2)
        await measure(server, options)
    finally:
        await app.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        asyncio.run(run(options, Path(folder)))


if __name__ == "__main__":
    main()
