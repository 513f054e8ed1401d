"""A disk that is nearly full: producers are slowed down before they are refused, and nobody else is."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.process import BrokerProcess
from tests.faults.mounts import small_disk
from tests.interop import batches, raw_client
from tests.interop.classic_members import Member
from tests.scraped import scrape
from tests.waiting import until

Error = raw_client.Error
DISK_MIB = 64
BATCH_BYTES = 64_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with small_disk(tmp_path / "disk", DISK_MIB) as disk, BrokerProcess(disk / "data") as one:
        yield one


def produce(connection: raw_client.Connection, topic: str) -> tuple[Error, int]:
    """The error code, and the throttle time in milliseconds."""
    body = raw_client.produce_body(topic, batches.batch([os.urandom(BATCH_BYTES)]))
    answer = connection.call(raw_client.PRODUCE, 9, body)
    throttle_ms = round(answer.throttle_time.total_seconds() * 1000)
    return answer.responses[0].partition_responses[0].error_code, throttle_ms


def free_mib(folder: Path) -> float:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize / (1 << 20)


def fill(folder: Path, free: float) -> Path:
    """Fill the disk until that many MiB are free; the file that can be removed again."""
    ballast = folder.parent / "ballast"
    with ballast.open("ab") as file:
        while free_mib(folder) > free:
            file.write(bytes(64 * 1024))
            file.flush()
    return ballast


def metric(broker: BrokerProcess, name: str) -> float:
    return scrape(broker.http_url)[name]


def test_producers_are_slowed_then_refused_and_others_are_not(broker: BrokerProcess) -> None:
    raw_client.create_topic(broker.bootstrap, "events")
    member = Member(broker.bootstrap, "readers", 5)
    raw_client.until_coordinated(member.connection, name="readers")
    with raw_client.Connection(broker.bootstrap) as producer, raw_client.Connection(broker.bootstrap) as reader:
        assert produce(producer, "events") == (Error.none, 0)
        ballast = fill(broker.data_dir, free=2.5)
        until(lambda: produce(producer, "events")[1] > 0, "a produce is slowed down")
        first_ms = produce(producer, "events")[1]
        began_s = time.monotonic()
        code, later_ms = produce(producer, "events")
        assert code is Error.none
        assert time.monotonic() - began_s >= first_ms / 1000 * 0.9, "the connection is muted for its delay"
        assert later_ms > first_ms, "the less room, the longer the delay"
        assert metric(broker, "headrace_disk_slows_producers") == 1

        fill(broker.data_dir, free=0.4)
        until(lambda: produce(producer, "events")[0] is Error.kafka_storage_error, "producers are refused")
        assert metric(broker, "headrace_disk_refuses_producers") == 1
        # Consumers, commits, admins and deletes go on, at once.
        began_s = time.monotonic()
        assert batches.values(raw_client.fetch(reader, "events").records)
        assert member.commit("events", 1) is Error.none
        assert reader.call(raw_client.METADATA, 9, topics=None).topics
        assert raw_client.offset_at(reader, "events", -1).error_code is Error.none
        assert time.monotonic() - began_s < 5

        member.connection.close()
        ballast.unlink()
        until(lambda: produce(producer, "events") == (Error.none, 0), "producers are at full speed again")
        assert metric(broker, "headrace_disk_slows_producers") == 0
        assert metric(broker, "headrace_disk_throttle_seconds_total") > 0
    log = broker.stderr
    assert "producers are slowed down until there is room" in log
    assert "producers are refused until there is room" in log
