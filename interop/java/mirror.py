"""Kafka's MirrorMaker carries topics with their settings from Apache Kafka to Headrace, and later changes, too."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from apache import HERE, Java
from report import Report, expect
from tests.interop import batches, raw_client
from tests.interop.subject import KafkaProcess

from headrace.testing.process import BrokerProcess

_WITHIN_S = 120.0
_TOPIC = "orders"
_COPY = f"kafka.{_TOPIC}"
_OWN_TOPICS = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic",
               "offset.storage", "status.storage", "config.storage")  # fmt: skip
_SET = {"preallocate": "true", "local.retention.ms": "1000", "retention.ms": "12345678"}


def check_mirror(report: Report, java: Java, scratch: Path) -> None:
    kafka = KafkaProcess(f"{HERE}:{java.libs}", scratch / "mirrored", {})
    try:
        kafka.start()
        raw_client.create_topic(kafka.bootstrap, _TOPIC, 3, _SET)
        with raw_client.Connection(kafka.bootstrap) as connection:
            raw_client.produce(connection, _TOPIC, batches.batch([b"one", b"two"]))
        with (
            BrokerProcess(scratch / "mirror") as broker,
            _mirror_maker(java, kafka.bootstrap, broker.bootstrap, scratch),
            raw_client.Connection(kafka.bootstrap) as source,
            raw_client.Connection(broker.bootstrap) as target,
        ):
            with report.check("MirrorMaker copies a topic with its partitions, settings and records"):
                _until(lambda: _settings(target) == _SET)
                raw_client.wait_topic(target, _COPY, 3)
                _until(lambda: batches.values(raw_client.fetch(target, _COPY).records) == [b"one", b"two"])
            with report.check("MirrorMaker carries over a setting that is changed, and one that is deleted"):
                _alter(source, ("retention.ms", 0, "7654321"), ("preallocate", 1, None))
                _until(lambda: _settings(target) == {"local.retention.ms": "1000", "retention.ms": "7654321"})
    finally:
        kafka.close()


@contextmanager
def _mirror_maker(java: Java, source: str, target: str, scratch: Path) -> Iterator[None]:
    settings = {
        "clusters": "kafka,headrace",
        "kafka.bootstrap.servers": source,
        "headrace.bootstrap.servers": target,
        "kafka->headrace.enabled": "true",
        "headrace->kafka.enabled": "false",
        "kafka->headrace.topics": _TOPIC,
        "replication.factor": "1",
        **{f"{name}.replication.factor": "1" for name in _OWN_TOPICS},
        "refresh.topics.interval.seconds": "1",
        "sync.topic.configs.interval.seconds": "1",
        "emit.heartbeats.enabled": "false",
    }
    file = scratch / "mirror.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with (scratch / "mirror.log").open("wb") as log:
        command = java.command("org.apache.kafka.connect.mirror.MirrorMaker", str(file))
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait(60)


def _settings(connection: raw_client.Connection) -> dict[str, str]:
    """What is set on the copy; nothing while it is not there."""
    resource = {"resource_type": 2, "resource_name": _COPY, "configuration_keys": None}
    (result,) = connection.call(raw_client.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    return {config.name: config.value for config in result.configs if config.config_source == 1}


def _alter(connection: raw_client.Connection, *changes: tuple[str, int, str | None]) -> None:
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resource = {"resource_type": 2, "resource_name": _TOPIC, "configs": configs}
    (answer,) = connection.call(raw_client.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses
    expect(answer.error_code == raw_client.Error.none, answer)


def _until(look: Callable[[], bool]) -> None:
    end = time.monotonic() + _WITHIN_S
    while not look():
        expect(time.monotonic() < end, f"not within {_WITHIN_S:.0f} s")
        time.sleep(0.2)
