"""What the gate asks of a broker: each load does so many steps, and says what an operation cost in CPU time.

Requests are encoded once and sent over plain sockets, so that the client is short; only work through the SDK has a
process of its own, because the SDK belongs to the revision and is measured, too.
"""

import argparse
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from harness import wire
from harness.client_connection import ClientConnection, cpu_ns
from harness.process import Process
from harness.systems import BENCH_DIR, Headrace
from queue_load import RECEIPT, Requests, create_request, queue_url, whole_answer

_NOW_MS = int(time.time() * 1000)
_IN_FLIGHT = 32
_SQS_CONNECTIONS = 8
_SDK_MESSAGES = 100
_MIB = 1 << 20

Costs = dict[str, float]
"""Microseconds of CPU time per operation, by the name of the operation."""


class RevisionBroker(Headrace):
    """A broker of one revision. Brokers of a set have the same hash seed, and no addresses are random."""

    def __init__(self, work_dir: Path, name: str, source: Path, seed: int, prefix: list[str]) -> None:
        self.name = name
        env = {"PYTHONPATH": str(source), "PYTHONHASHSEED": str(seed)}
        super().__init__(work_dir, [*prefix, sys.executable, "-m", "headrace"], env=env)
        self._prefix = prefix

    def create_topic(self, name: str, policy: str) -> None:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0})
        admin.create_topics([NewTopic(name, 1, 1, config={"flush.policy": policy})])[name].result(60)

    def popen(self, script: str, *words: str) -> "subprocess.Popen[str]":
        """A Python process of the same revision that is spoken to by lines."""
        command = [*self._prefix, sys.executable, str(BENCH_DIR / script), *words]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.environment(),
                preexec_fn=Process.die_with_parent,  # noqa: PLW1509 - the harness has one thread
            )


class Load(ABC):
    def __init__(self, broker: RevisionBroker) -> None:
        self._pid = broker.pid

    def turn(self, steps: int) -> Costs:
        before = cpu_ns(self._pid)
        operations = max(1, self._work(steps))
        return self._costs((cpu_ns(self._pid) - before) / 1e3 / operations, operations)

    def spent_ms(self, steps: int) -> float:
        """The CPU time that the broker spends on so many steps."""
        before = cpu_ns(self._pid)
        self._work(steps)
        return (cpu_ns(self._pid) - before) / 1e6

    @abstractmethod
    def _work(self, steps: int) -> int:
        """Do so many steps, and return how many operations they were."""

    @abstractmethod
    def _costs(self, broker_us: float, operations: int) -> Costs: ...

    def close(self) -> None:
        return


class KafkaLoad(Load):
    """A step is some requests that are sent in one piece."""

    def __init__(self, broker: RevisionBroker, name: str, block: bytes, requests: int) -> None:
        super().__init__(broker)
        self._name, self._block, self._requests = name, block, requests
        self._connection = ClientConnection(broker.port)

    def _work(self, steps: int) -> int:
        for _ in range(steps):
            self._connection.ask(self._block, self._requests)
        return steps * self._requests

    def _costs(self, broker_us: float, operations: int) -> Costs:
        return {self._name: broker_us}

    def close(self) -> None:
        self._connection.close()


class SqsLoad(Load):
    """A step is a send, a receive and a delete on each connection, all connections at once."""

    def __init__(self, broker: RevisionBroker, name: str, batch: int) -> None:
        super().__init__(broker)
        self._name = name
        self._socks = [wire.connect(broker.http_port) for _ in range(_SQS_CONNECTIONS)]
        options = argparse.Namespace(port=broker.http_port, topic=f"gate-sqs-{batch}", batch=batch, message_bytes=100)
        self._requests = Requests(options, queue_url(_asked(self._socks[0], create_request(options))))

    def _work(self, steps: int) -> int:
        return sum(self._cycle() for _ in range(steps))

    def _cycle(self) -> int:
        self._on_all([self._requests.send] * len(self._socks))
        received = [RECEIPT.findall(answer) for answer in self._on_all([self._requests.receive] * len(self._socks))]
        self._on_all([self._requests.deleting(receipts) if receipts else b"" for receipts in received])
        return sum(map(len, received))

    def _on_all(self, requests: list[bytes]) -> list[bytes]:
        pairs = [(sock, request) for sock, request in zip(self._socks, requests, strict=True) if request]
        for sock, request in pairs:
            sock.sendall(request)
        return [_answer(sock) for sock, _ in pairs]

    def _costs(self, broker_us: float, operations: int) -> Costs:
        return {self._name: broker_us}

    def close(self) -> None:
        for sock in self._socks:
            sock.close()


def _asked(sock: socket.socket, request: bytes) -> bytes:
    sock.sendall(request)
    return _answer(sock)


def _answer(sock: socket.socket) -> bytes:
    data = bytearray()
    while (whole := whole_answer(data)) is None:
        part = sock.recv(1 << 16)
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    return whole


class SdkLoad(Load):
    """A step is a hundred messages that are sent, received and acknowledged."""

    def __init__(self, broker: RevisionBroker) -> None:
        super().__init__(broker)
        self._process = broker.popen("queue_turns.py", str(broker.port), "gate-sdk")
        self._sdk_ns = 0

    def _work(self, steps: int) -> int:
        messages = steps * _SDK_MESSAGES
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{messages}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ConnectionError("the client of the SDK ended")
        self._sdk_ns = int(line)
        return messages

    def _costs(self, broker_us: float, operations: int) -> Costs:
        return {"queue work, broker": broker_us, "queue work, SDK": self._sdk_ns / 1e3 / operations}

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=60)


def _produce(broker: RevisionBroker, topic: str, batch: bytes) -> bytes:
    """A Produce that the broker takes: a refusal would be measured as well, and is cheaper."""
    request = wire.produce_request(topic, 0, batch, acks=-1, correlation_id=7)
    connection = ClientConnection(broker.port)
    at = wire.produce_error_at(topic)
    error = int.from_bytes(connection.ask(request, 1)[at : at + 2], "big", signed=True)
    connection.close()
    if error:
        raise ValueError(f"a Produce to {topic} is refused with error {error}")
    return request


def _single(broker: RevisionBroker, policy: str) -> Load:
    topic = f"gate-single-{policy}"
    broker.create_topic(topic, policy)
    block = _produce(broker, topic, wire.record_batch(100, 1, _NOW_MS)) * _IN_FLIGHT
    return KafkaLoad(broker, f"single, {policy}", block, _IN_FLIGHT)


def _produce_64k(broker: RevisionBroker) -> Load:
    broker.create_topic("gate-produce", "os")
    block = _produce(broker, "gate-produce", wire.record_batch(1024, 63, _NOW_MS)) * 4
    return KafkaLoad(broker, "produce, 64 KiB", block, 4)


def _consume_1m(broker: RevisionBroker) -> Load:
    broker.create_topic("gate-consume", "os")
    filling = ClientConnection(broker.port)
    batch = _produce(broker, "gate-consume", wire.record_batch(1024, 500, _NOW_MS))
    for _ in range(4):
        filling.ask(batch, 1)
    filling.close()
    fetch = wire.FetchRequest("gate-consume", [0], partition_max_bytes=_MIB, max_wait_ms=0)
    return KafkaLoad(broker, "consume, 1 MiB", bytes(fetch.frame), 1)


LOADS: Mapping[str, Callable[[RevisionBroker], Load]] = {
    "single os": lambda broker: _single(broker, "os"),
    "single ack": lambda broker: _single(broker, "ack"),
    "produce": _produce_64k,
    "consume": _consume_1m,
    "sqs 1": lambda broker: SqsLoad(broker, "SQS cycle, 1 message", 1),
    "sqs 10": lambda broker: SqsLoad(broker, "SQS cycle, 10 messages", 10),
    "queue work": SdkLoad,
}
