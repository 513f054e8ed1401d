"""SIGKILL and power cuts while clients write: what was acknowledged is there afterwards, once, in order."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.history import Writer, check, read_partition
from tests.faults.mounts import LoopDisk
from tests.interop import batches, raw_client, subject
from tests.interop.subject import Subject


def wait_acked(writer: Writer, count: int, seconds: float = 60) -> None:
    """Until so many more values are acknowledged."""
    goal = len(writer.history.acked) + count
    end = time.monotonic() + seconds
    while len(writer.history.acked) < goal:
        assert writer.error is None, writer.error
        assert time.monotonic() < end, "nothing is acknowledged any more"
        time.sleep(0.002)


def kill_again_and_again(broker: Subject, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    settings = {"segment.bytes": "1048576"}
    for topic in ("once", "at-least"):
        raw_client.create_topic(broker.bootstrap, topic, 1, settings)
    writers = [Writer(broker, "once", idempotent=True), Writer(broker, "at-least", idempotent=False, size_bytes=5000)]
    for writer in writers:
        writer.start()
    for _ in range(kills):
        for writer in writers:
            wait_acked(writer, rng.randint(1, 60))
        broker.kill()
        broker.start()
    for writer in writers:
        wait_acked(writer, 5)
    for writer in writers:
        check(writer.finish(), read_partition(broker.bootstrap, "once" if writer is writers[0] else "at-least"))
    once = [value for _, value in sorted(read_partition(broker.bootstrap, "once").items())]
    assert [int((value or b"").split(b"-")[1].rstrip(b".")) for value in once] == list(range(len(once)))


def test_kill_again_and_again(own_broker: Callable[..., Subject]) -> None:
    kill_again_and_again(own_broker(), kills=5, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_fifty_times(own_broker: Callable[..., Subject]) -> None:
    kill_again_and_again(own_broker(), kills=50, seed=2)


def test_kill_while_topics_come_and_go(own_broker: Callable[..., Subject]) -> None:
    """A topic is there with all of its partitions or not at all, and one that was deleted does not come back."""
    broker = own_broker()
    rng = random.Random(3)
    created: set[str] = set()
    deleted: set[str] = set()
    for turn in range(4):
        with raw_client.Connection(broker.bootstrap) as connection:
            for number in range(rng.randint(2, 6)):
                name = f"t-{turn}-{number}"
                raw_client.create_topic(broker.bootstrap, name, 3)
                created.add(name)
                assert (
                    raw_client.produce(connection, name, batches.batch([name.encode()])).error_code
                    == raw_client.Error.none
                )
            for name in rng.sample(sorted(created), len(created) // 3):
                answer = connection.call(raw_client.DELETE_TOPICS, 6, topics=[{"name": name}], timeout=10_000)
                assert answer.responses[0].error_code == raw_client.Error.none
                created.discard(name)
                deleted.add(name)
            # In flight when the broker dies: either outcome is fine, half of one is not.
            maybe = {"name": f"maybe-{turn}", "num_partitions": 3, "replication_factor": 1}
            connection.send(raw_client.CREATE_TOPICS, 7, topics=[maybe], timeout=10_000)
            broker.kill()
        broker.start()
        with raw_client.Connection(broker.bootstrap) as connection:
            found = {topic.name: topic for topic in connection.call(raw_client.METADATA, 12, topics=None).topics}
            assert created <= found.keys()
            assert not deleted & found.keys()
            for name, topic in found.items():
                assert len(topic.partitions) == 3, name
                assert all(one.error_code == raw_client.Error.none for one in topic.partitions)
            for name in created:
                assert batches.values(raw_client.fetch(connection, name).records) == [name.encode()]


@pytest.fixture
def loop_disk(tmp_path: Path) -> Iterator[LoopDisk]:
    disk = LoopDisk(tmp_path / "disk")
    yield disk
    disk.close()


def cut_power_again_and_again(loop_disk: LoopDisk, turns: int) -> None:
    broker = subject.make(loop_disk.folder)
    writer = Writer(broker, "durable", idempotent=True, size_bytes=1000)
    try:
        broker.start()
        raw_client.create_topic(broker.bootstrap, "durable", 1, {"segment.bytes": "1048576"})
        writer.start()
        for turn in range(turns):
            wait_acked(writer, 30 + 40 * turn)
            loop_disk.cut_power(broker.pid)
            broker.kill()
            loop_disk.unmount()
            loop_disk.mount()
            broker.start()
        wait_acked(writer, 5)
        check(writer.finish(), read_partition(broker.bootstrap, "durable"))
    finally:
        try:
            writer.finish() if writer.ident else None
        finally:
            broker.close()


@pytest.mark.skipif(not subject.IS_HEADRACE, reason="Apache Kafka acknowledges what is not on disk yet")
def test_power_cut(loop_disk: LoopDisk) -> None:
    cut_power_again_and_again(loop_disk, turns=2)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not subject.IS_HEADRACE, reason="Apache Kafka acknowledges what is not on disk yet")
def test_power_cut_twenty_times(loop_disk: LoopDisk) -> None:
    cut_power_again_and_again(loop_disk, turns=20)


@pytest.mark.skipif(not subject.IS_HEADRACE, reason="Apache Kafka acknowledges what is not on disk yet")
def test_the_power_cut_really_loses_what_was_not_synced(loop_disk: LoopDisk) -> None:
    """The same with flush.policy=os must lose something, or the test above proves nothing."""
    broker = subject.make(loop_disk.folder)
    try:
        broker.start()
        raw_client.create_topic(broker.bootstrap, "hopeful", 1, {"flush.policy": "os"})
        with raw_client.Connection(broker.bootstrap) as connection:
            for number in range(200):
                assert (
                    raw_client.produce(connection, "hopeful", batches.batch([b"%d" % number])).error_code
                    == raw_client.Error.none
                )
        loop_disk.cut_power(broker.pid)
        broker.kill()
        loop_disk.unmount()
        loop_disk.mount()
        broker.start()
        assert len(read_partition(broker.bootstrap, "hopeful")) < 200
    finally:
        broker.close()
