"""The broker under test, as a process that tests start, stop, kill and look into.

Normally that is `headrace serve`. Two environment variables change it, to learn what is Kafka's behaviour and what is
ours:
- `HEADRACE_TEST_BOOTSTRAP=host:port`: a broker that already runs; tests that must stop or kill it are skipped;
- `HEADRACE_TEST_KAFKA_LIBS=dir`: Apache Kafka in KRaft combined mode from the jars in that folder.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

from headrace.testing.etcd import free_port

from . import raw_client

EXTERNAL = os.environ.get("HEADRACE_TEST_BOOTSTRAP")
KAFKA_LIBS = os.environ.get("HEADRACE_TEST_KAFKA_LIBS")
IS_HEADRACE = not (EXTERNAL or KAFKA_LIBS)
CAN_CONTROL = not EXTERNAL


class Subject(Protocol):
    """What tests need of a broker process. `start` returns when it answers; the address stays over restarts."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def data_dir(self) -> Path: ...

    @property
    def stderr(self) -> str:
        """Everything it wrote so far to its log."""
        ...

    def start(self) -> object: ...

    def terminate(self) -> int:
        """SIGTERM, wait, and the exit code."""
        ...

    def kill(self) -> None:
        """SIGKILL and wait."""
        ...

    def close(self) -> None:
        """Stop it, running or not, and let go of everything."""
        ...


def wait_answering(bootstrap: str, timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while True:
        try:
            raw_client.advertised(bootstrap)
            return
        except (OSError, raw_client.Closed):
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


class External:
    """A broker that somebody else runs."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @property
    def pid(self) -> int:
        pytest.skip("the broker under test is not our process")

    @property
    def data_dir(self) -> Path:
        pytest.skip("the broker under test is not our process")

    @property
    def stderr(self) -> str:
        return "(the broker under test is not our process: look at its own log)"

    def start(self) -> None:
        wait_answering(self.bootstrap)

    def terminate(self) -> int:
        pytest.skip("the broker under test is not our process")

    def kill(self) -> None:
        pytest.skip("the broker under test is not our process")

    def close(self) -> None:
        """It goes on running."""


class KafkaProcess:
    """Apache Kafka, one node, both roles."""

    def __init__(self, libs: str, home: Path, settings: Mapping[str, str]) -> None:
        port, controller = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        self.data_dir = home / "data"
        self._class_path = f"{libs}/*"
        self._config = home / "server.properties"
        self._log = home / "kafka.log"
        self._process: subprocess.Popen[bytes] | None = None
        rows = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **settings,
        }
        home.mkdir(parents=True, exist_ok=True)
        self._config.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
        self._java("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(self._config)).wait()

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            command = ["java", "-Xmx512m", "-cp", self._class_path, *arguments]
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._process = self._java("kafka.Kafka", str(self._config))
        wait_answering(self.bootstrap)
        with raw_client.Connection(self.bootstrap) as connection:
            end = time.monotonic() + 60
            while not connection.call(raw_client.METADATA, 12, topics=[]).brokers and time.monotonic() < end:
                time.sleep(0.05)

    def terminate(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(60)
        return 0 if code == 128 + signal.SIGTERM else code

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.terminate()

    @property
    def stderr(self) -> str:
        return self._log.read_text(errors="replace")


SELDOM = {"log.retention.check.interval.ms": str(24 * 3_600_000)}
"""Many tests write records that are years old. In a run that takes longer than five minutes, retention would take them
at any moment, in the middle of such a test; those that are about retention have it look more often."""


def make(home: Path, settings: Mapping[str, str] | None = None) -> Subject:
    """A broker that is not running yet, with its data under `home` and these broker settings by Kafka's names."""
    if EXTERNAL:
        if settings:
            pytest.skip("needs a broker with its own settings, and the broker under test is not our process")
        return External(EXTERNAL)
    settings = {**SELDOM, **(settings or {})}
    if KAFKA_LIBS:
        if shutil.which("java") is None:
            pytest.skip("HEADRACE_TEST_KAFKA_LIBS is set but there is no java")
        return KafkaProcess(KAFKA_LIBS, home, settings)
    from headrace.testing.process import BrokerProcess

    return BrokerProcess(home / "data", settings=settings)
