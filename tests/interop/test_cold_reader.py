"""A consumer of data that is not in the page cache, beside producers and consumers at the end of another topic."""

import os
from pathlib import Path

from headrace.runtime.disk import OsDisk
from headrace.testing.process import BrokerProcess
from tests.faults import probes
from tests.faults.catch_up import FETCH_BYTES, make_cold, whole_batches
from tests.interop import batches, raw_client
from tests.waiting import until

MIB = 1 << 20
_SAME_FROM = 16
"""A broker sets the base offset and the leader epoch of a batch; all bytes after them are the producer's."""


def test_it_gets_every_byte_while_the_log_of_the_tail_is_synced_all_the_time(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        raw_client.create_topic(broker.bootstrap, "old", 1, {"segment.bytes": str(16 * MIB), "flush.policy": "os"})
        raw_client.create_topic(broker.bootstrap, "tail")
        sent = [batches.batch([os.urandom(900 * 1024)]) for _ in range(40)]
        with raw_client.Connection(broker.bootstrap) as connection:
            for batch in sent:
                assert raw_client.produce(connection, "old", batch, acks=1).error_code is raw_client.Error.none
            folder = broker.data_dir / "old-0"
            make_cold(folder)
            is_cold = not any(OsDisk().open_read_only(path).is_cached(0, MIB) for path in folder.glob("*.log"))
            assert is_cold or not is_on_a_device(folder)
            tails = [probes.tail(broker.bootstrap, "tail", every_s=0.001), *syncing(broker.bootstrap)]
            with probes.probing(tails):
                read = read_all(connection, len(sent))
                # The tail goes on after the last old record, too.
                before = len(tails[0].times_s)
                until(lambda: len(tails[0].times_s) > before, "another message at the tail")
        assert len(read) == len(sent)
        assert all(one[_SAME_FROM:] == other[_SAME_FROM:] for one, other in zip(read, sent, strict=True))


def test_a_few_bytes_that_are_not_in_the_page_cache(tmp_path: Path) -> None:
    sent = batches.batch([b"small"])
    with BrokerProcess(tmp_path / "data") as broker, raw_client.Connection(broker.bootstrap) as connection:
        raw_client.create_topic(broker.bootstrap, "old")
        assert raw_client.produce(connection, "old", sent).error_code is raw_client.Error.none
        make_cold(broker.data_dir / "old-0")
        (read,) = read_all(connection, 1)
    assert read[_SAME_FROM:] == sent[_SAME_FROM:]


def is_on_a_device(folder: Path) -> bool:
    """False for file systems in memory, which have no cache to be cold."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [each for each in mounts if folder.resolve().is_relative_to(each[1])]
    return max(inside, key=lambda each: len(each[1]))[2] not in ("tmpfs", "ramfs")


def syncing(bootstrap: str) -> list[probes.LatencyProbe]:
    """Producers that never pause, so that one of the topic's logs is being synced most of the time."""
    raw_client.create_topic(bootstrap, "busy")
    return [probes.produces(bootstrap, "busy", every_s=0.0) for _ in range(2)]


def read_all(connection: raw_client.Connection, count: int) -> list[bytes]:
    read: list[bytes] = []
    while len(read) < count:
        found = raw_client.fetch(connection, "old", len(read), partition_max_bytes=FETCH_BYTES)
        assert found.error_code is raw_client.Error.none
        read += [bytes(batch.data) for batch in whole_batches(memoryview(found.records))]
    return read
