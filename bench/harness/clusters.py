"""Three brokers on this machine: Headrace with its etcd, and Apache Kafka as three KRaft nodes of both roles."""

import shutil
import subprocess
import time
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from harness.process import Process, ProcessFailed, cpu_s, free_port, rss_bytes
from harness.systems import Headrace, Kafka, System

BROKERS = 3


def _are_there(port: int) -> bool:
    """Whether the broker on this port knows all of them."""
    try:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        return len(admin.list_topics(timeout=2).brokers) == BROKERS
    except KafkaException:
        return False


class HeadraceCluster(Headrace):
    name = "headrace-3"

    def _launch(self) -> Process:
        where = ["--data-dir", str(self.dir / "data"), "--base-port", str(self.port)]
        return Process([*self._command, "cluster", "dev", "--brokers", str(BROKERS), *where], self.log)

    def _choose_port(self) -> int:
        return _free_ports_in_a_row(BROKERS)

    def _is_ready(self) -> bool:
        return _are_there(self.port)


class KafkaCluster(System):
    name = "kafka-3"
    is_kafka_protocol = True
    ready_timeout_s = 120.0

    def __init__(self, work_dir: Path) -> None:
        super().__init__(work_dir)
        libs = Kafka.libraries()
        self._nodes = [_Node(self.dir, number, libs) for number in range(1, BROKERS + 1)]

    def version(self) -> str:
        return self._nodes[0].version()

    def start(self) -> None:
        begin = time.perf_counter()
        voters = ",".join(f"{node.number}@127.0.0.1:{node.controller_port}" for node in self._nodes)
        for node in self._nodes:
            node.begin(voters)
        self.port = self._nodes[0].port
        while not self._is_ready():
            for node in self._nodes:
                node.check()
            if time.perf_counter() - begin > self.ready_timeout_s:
                raise ProcessFailed(f"{self.name} was not ready in time")
            time.sleep(0.05)
        self.ready_s = time.perf_counter() - begin

    def _launch(self) -> Process:
        raise NotImplementedError("each node has a process of its own")

    def _is_ready(self) -> bool:
        return _are_there(self.port)

    def stop(self) -> float:
        return sum(node.stop() for node in self._nodes)

    def is_running(self) -> bool:
        return all(node.is_running() for node in self._nodes)

    def cpu_s(self) -> float:
        return sum(cpu_s(node.pid) for node in self._nodes)

    def rss_bytes(self) -> int:
        return sum(rss_bytes(node.pid) for node in self._nodes)

    def clear(self) -> None:
        for node in self._nodes:
            node.clear()


class _Node(Kafka):
    def __init__(self, cluster_dir: Path, number: int, libs: Path) -> None:
        self.name = f"node-{number}"
        self.number = number
        super().__init__(cluster_dir, libs)
        self.port = free_port()
        self.controller_port = free_port()
        self._voters = ""

    def begin(self, voters: str) -> None:
        """Start without waiting: no node is ready before the others are there."""
        self._voters = voters
        properties = self.dir / "server.properties"
        self._write_properties(properties, self.controller_port)
        if not (self.dir / "data").exists():
            self._format(properties)
        self._process = Process(self._java("kafka.Kafka", str(properties)), self.log)

    def check(self) -> None:
        assert self._process is not None
        self._process.check()

    def _write_properties(self, path: Path, controller_port: int) -> None:
        super()._write_properties(path, controller_port)
        own = {
            "node.id": str(self.number),
            "controller.quorum.voters": self._voters,
            "offsets.topic.replication.factor": str(BROKERS),
            "transaction.state.log.replication.factor": str(BROKERS),
            "transaction.state.log.min.isr": "2",
        }
        lines = [line for line in path.read_text().splitlines() if line.partition("=")[0] not in own]
        path.write_text("\n".join([*lines, *(f"{name}={value}" for name, value in own.items())]) + "\n")


def _free_ports_in_a_row(count: int) -> int:
    """The first of some ports that are free now."""
    while True:
        first = free_port()
        if first + count < 65_536 and all(_is_free(first + more) for more in range(1, count)):
            return first


def _is_free(port: int) -> bool:
    listening = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=False)
    return shutil.which("ss") is None or not listening.stdout.strip()
