"""Restarts after kill -9 with partitions that nobody has written to since the last checkpoint."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.storage.checkpoints import RECOVERY_POINTS
from headrace.storage.summary import LOG_SUMMARIES
from headrace.testing.process import BrokerProcess
from tests.earlier_versions import environment_of
from tests.faults.history import read_partition
from tests.interop import batches, raw_client, subject
from tests.waiting import until

pytestmark = pytest.mark.skipif(not subject.IS_HEADRACE, reason="about the files of Headrace")

TOPICS = [f"topic-{number}" for number in range(5)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path / "data", settings={"log.flush.offset.checkpoint.interval.ms": 200, "http.listen": "off"}
    )
    yield process
    process.close()


class Written:
    """Topics with one partition each, and what was acknowledged on them."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._values: dict[str, list[bytes]] = {}
        for topic in TOPICS:
            raw_client.create_topic(broker.bootstrap, topic, 1)
            self._values[topic] = []

    def write(self, *topics: str) -> None:
        with raw_client.Connection(self._broker.bootstrap, timeout_s=60) as connection:
            for topic in topics:
                for _ in range(20):
                    value = b"%d-" % len(self._values[topic]) + b"x" * 2000
                    answer = raw_client.produce(connection, topic, batches.batch([value]))
                    assert (answer.error_code, answer.base_offset) == (raw_client.Error.none, len(self._values[topic]))
                    self._values[topic].append(value)

    def check(self) -> None:
        for topic, expected in self._values.items():
            assert read_partition(self._broker.bootstrap, topic) == dict(enumerate(expected))

    def await_checkpoint(self) -> None:
        until(lambda: all(self._is_checkpointed(topic) for topic in TOPICS), "the checkpoint")

    def _is_checkpointed(self, topic: str) -> bool:
        folder = self._broker.data_dir
        line = f"{topic} 0 {len(self._values[topic])}\n"
        summary = f'"{topic}",0,'
        is_old = bool(self._broker.env)
        return line in read(folder / RECOVERY_POINTS) and (is_old or summary in read(folder / LOG_SUMMARIES))


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def flip_a_bit(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        byte = file.read(1)[0]
        file.seek(100)
        file.write(bytes([byte ^ 1]))


def test_only_what_was_written_to_or_changed_is_read(broker: BrokerProcess) -> None:
    """Bits that are flipped without a trace show what was read: this is not found in a partition that was idle."""
    broker.start()
    written = Written(broker)
    written.write(*TOPICS)
    written.await_checkpoint()
    broker.settings["log.flush.offset.checkpoint.interval.ms"] = 600_000
    broker.restart(kill=True)
    written.check()
    written.write("topic-0")
    broker.kill()
    for topic in ("topic-0", "topic-1", "topic-2"):
        (path,) = (broker.data_dir / f"{topic}-0").glob("*.log")
        before = path.stat()
        flip_a_bit(path)
        if topic != "topic-2":
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    broker.start()
    found = {path.parent.name for path in broker.data_dir.glob("*/*.corrupt*")}
    assert found == {"topic-0-0", "topic-2-0"}, "written to since, and changed since"


def test_versions_take_turns_on_a_data_directory(broker: BrokerProcess, tmp_path: Path) -> None:
    """While the feature level is 1, also 0.1 starts on what this version has left, and is killed on it in turn."""
    old = environment_of("0.1", tmp_path)
    broker.env = old
    broker.start()
    written = Written(broker)
    for env in ({}, old, {}, {}, old, {}):
        written.write(*TOPICS)
        written.await_checkpoint()
        written.write("topic-0")
        broker.env = env
        broker.restart(kill=True)
        written.check()
        assert "format=1\n" in read(broker.data_dir / "meta.properties")
    written.await_checkpoint()
    broker.env = old
    broker.restart()
    written.check()
    written.write(*TOPICS)
    broker.env = {}
    broker.restart()
    written.check()
    assert not list(broker.data_dir.glob("*/*.corrupt*"))
