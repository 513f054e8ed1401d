"""What a workload is, and what several of them need."""

import json
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from harness.lab import NATS, RABBITMQ, REDIS, Lab, MeasurementFailed, Variant

BATCH_BYTES = 960 * 1024
"""A full batch: just below librdkafka's batch.size of 1,000,000 bytes and Kafka's largest message."""
BATCH_OVERHEAD = {1024: 9, 100: 8}
"""Bytes that a record needs beside its value, at the least; with them a full batch stays below the limit."""
OTHERS = (NATS, RABBITMQ, REDIS)

Result = dict[str, float]


@dataclass(frozen=True)
class Metric:
    key: str
    unit: str
    more_is_better: bool = True


class Workload(ABC):
    name: str
    title: str
    metric: Metric
    shown: tuple[Metric, ...] = ()
    """Further figures for the table."""
    variants: tuple[Variant, ...]
    rounds: int | None = None
    """How often, if not as often as the run says: for what does not vary, or takes long."""
    least_rounds: int = 1
    """At least so often, whatever the run says: for small differences."""

    @contextmanager
    def prepared(self, lab: Lab, variant: Variant) -> Iterator[str]:
        """What is set up once for all rounds; gives the topic."""
        yield ""

    @abstractmethod
    def run(self, lab: Lab, variant: Variant, topic: str) -> Result: ...


def batch_messages(message_bytes: int, batch_bytes: int = BATCH_BYTES) -> int:
    return max(1, batch_bytes // (message_bytes + BATCH_OVERHEAD[message_bytes]))


def preload(
    lab: Lab,
    variant: Variant,
    topic: str,
    partitions: int,
    message_bytes: int,
    total_bytes: int,
    batch: int | None = None,
) -> int:
    """Fill a topic with at least so many bytes; return how many messages it has."""
    done = lab.run(
        "load.py",
        "produce",
        port=lab.system(variant.system).port,
        topic=topic,
        partitions=partitions,
        message_bytes=message_bytes,
        batch_messages=batch or batch_messages(message_bytes),
        max_bytes=total_bytes,
        warmup=0,
        seconds=3600,
    )
    return int(done["messages_total"])


def drive_peer(
    lab: Lab, variant: Variant, what: str, topic: str, message_bytes: int, max_messages: int = 1 << 62
) -> Result:
    return lab.measure(
        variant,
        "client_peers.py",
        variant.system,
        what,
        topic=topic,
        message_bytes=message_bytes,
        max_messages=max_messages,
        seconds=lab.sizes.seconds,
        warmup=lab.sizes.warmup_s,
    )


def result_of(process: "subprocess.Popen[str]") -> Result:
    output, errors = process.communicate(timeout=3600)
    if process.returncode:
        raise MeasurementFailed((errors.strip().splitlines() or ["a load process failed"])[-1])
    result: Result = json.loads(output.strip().splitlines()[-1])
    return result


def last_line(process: "subprocess.Popen[str]") -> str:
    _, errors = process.communicate(timeout=60)
    return (errors.strip().splitlines() or ["no reason given"])[-1]


def size_text(message_bytes: int) -> str:
    return "1 KiB" if message_bytes == 1024 else f"{message_bytes} B"


def partitions_text(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
