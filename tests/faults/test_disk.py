"""A full disk and a disk that fails to sync."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.history import read_partition
from tests.faults.mounts import small_disk
from tests.faults.strace import failing_syncs
from tests.interop import batches, raw_client, subject
from tests.interop.subject import Subject

Error = raw_client.Error
pytestmark = pytest.mark.skipif(not subject.IS_HEADRACE, reason="Apache Kafka halts when its disk fails")

BATCH_BYTES = 200_000


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[Subject, Path, int]]:
    """A broker on a small disk that is full, a file that can be removed to make room, and how many batches it took."""
    with small_disk(tmp_path / "disk", 48) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(16 << 20))
        # Producers are not slowed down: see test_disk_pressure.py.
        until_full = {"disk.slow.below.bytes": "0", "disk.refuse.below.bytes": "0"}
        broker = subject.make(disk, {"log.flush.offset.checkpoint.interval.ms": "200", **until_full})
        broker.start()
        try:
            raw_client.create_topic(broker.bootstrap, "other")
            raw_client.create_topic(
                broker.bootstrap, "full", 1, {"segment.bytes": "4194304", "file.delete.delay.ms": "0"}
            )
            with raw_client.Connection(broker.bootstrap) as connection:
                assert raw_client.produce(connection, "other", batches.batch([b"before"])).error_code == Error.none
                count = 0
                while (code := produce(connection, count)) == Error.none:
                    count += 1
                    assert count < 500
            assert code == Error.kafka_storage_error
            yield broker, ballast, count
        finally:
            broker.close()


def produce(connection: raw_client.Connection, number: int) -> Error:
    sent = batches.batch([b"%d" % number + os.urandom(BATCH_BYTES)])
    code: Error = raw_client.produce(connection, "full", sent).error_code
    return code


def eventually_produces(connection: raw_client.Connection, number: int, seconds: float = 60) -> None:
    """A write may also take the last of the room and then find none for its flush: that is a timeout, and retriable."""
    end = time.monotonic() + seconds
    while (code := produce(connection, number)) != Error.none:
        assert code in (Error.kafka_storage_error, Error.request_timed_out)
        assert time.monotonic() < end, "writing did not resume"
        time.sleep(0.1)


def test_a_full_disk_refuses_writes_and_goes_on_reading(full: tuple[Subject, Path, int]) -> None:
    broker, _, count = full
    with raw_client.Connection(broker.bootstrap) as connection:
        for _ in range(5):
            assert produce(connection, count) == Error.kafka_storage_error
        assert raw_client.offset_at(connection, "full", -1).offset == count
        assert batches.values(raw_client.fetch(connection, "other").records) == [b"before"]
        assert connection.call(raw_client.METADATA, 9, topics=None).topics
    assert len(read_partition(broker.bootstrap, "full")) == count


def test_writing_resumes_when_there_is_room(full: tuple[Subject, Path, int]) -> None:
    broker, ballast, count = full
    ballast.unlink()
    with raw_client.Connection(broker.bootstrap) as connection:
        eventually_produces(connection, count)
        assert raw_client.produce(connection, "other", batches.batch([b"after"])).error_code == Error.none
    found = read_partition(broker.bootstrap, "full")
    assert len(found) == count + 1
    assert [int((value or b"")[: len(str(at))]) for at, value in sorted(found.items())] == list(range(count + 1))


def test_deleting_records_makes_room(full: tuple[Subject, Path, int]) -> None:
    broker, _, count = full
    with raw_client.Connection(broker.bootstrap) as connection:
        one = {"partition_index": 0, "offset": count // 2}
        answer = connection.call(
            raw_client.DELETE_RECORDS, 2, topics=[{"name": "full", "partitions": [one]}], timeout=10_000
        )
        assert answer.topics[0].partitions[0].error_code == Error.none
        eventually_produces(connection, count)


def test_deleting_a_topic_makes_room(full: tuple[Subject, Path, int]) -> None:
    broker, _, _ = full
    with raw_client.Connection(broker.bootstrap) as connection:
        answer = connection.call(raw_client.DELETE_TOPICS, 6, topics=[{"name": "full"}], timeout=10_000)
        assert answer.responses[0].error_code == Error.none
        end = time.monotonic() + 60
        while (
            raw_client.produce(connection, "other", batches.batch([os.urandom(BATCH_BYTES)])).error_code != Error.none
        ):
            assert time.monotonic() < end
            time.sleep(0.1)


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_a_broker_starts_on_a_full_disk_and_recovers_with_room(how: str, full: tuple[Subject, Path, int]) -> None:
    broker, ballast, count = full
    getattr(broker, how)()
    ballast.unlink()
    broker.start()
    with raw_client.Connection(broker.bootstrap) as connection:
        raw_client.wait_topic(connection, "full", 1)
        eventually_produces(connection, count)
    assert len(read_partition(broker.bootstrap, "full")) == count + 1


# A disk that fails to sync


def test_no_ack_after_a_failed_sync(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker()
    raw_client.create_topic(broker.bootstrap, "sync")
    raw_client.create_topic(broker.bootstrap, "other")
    with raw_client.Connection(broker.bootstrap) as connection:
        for topic in ("sync", "other"):
            assert raw_client.produce(connection, topic, batches.batch([b"safe"])).error_code == Error.none
        with failing_syncs(broker.pid):
            for _ in range(3):
                assert (
                    raw_client.produce(connection, "sync", batches.batch([b"lost"])).error_code
                    == Error.kafka_storage_error
                )
            # Reading what was safe goes on, and what was not is not shown.
            for topic in ("sync", "other"):
                assert batches.values(raw_client.fetch(connection, topic).records) == [b"safe"]
                assert raw_client.offset_at(connection, topic, -1).offset == 1
        # A sync that works afterwards proves nothing about the pages that were lost: the failure is final.
        for topic in ("sync", "other"):
            assert (
                raw_client.produce(connection, topic, batches.batch([b"lost"])).error_code == Error.kafka_storage_error
            )
        assert batches.values(raw_client.fetch(connection, "sync").records) == [b"safe"]
    assert "sync" in broker.stderr.lower()
    broker.kill()
    broker.start()
    with raw_client.Connection(broker.bootstrap) as connection:
        raw_client.wait_topic(connection, "sync", 1)
        assert batches.values(raw_client.fetch(connection, "sync").records)[0] == b"safe"
        assert raw_client.produce(connection, "sync", batches.batch([b"again"])).error_code == Error.none
