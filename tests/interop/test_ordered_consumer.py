"""A consumer that reads old data in order from a broker on which nothing is synced meanwhile."""

import os
from datetime import timedelta
from pathlib import Path

from headrace.runtime import page_cache
from headrace.runtime.disk import OsDisk
from headrace.testing.process import BrokerProcess
from tests.faults.catch_up import make_cold, whole_batches
from tests.interop import batches, raw_client
from tests.interop.test_cold_reader import is_on_a_device

MIB = 1 << 20
_SAME_FROM = 16
"""A broker sets the base offset and the leader epoch of a batch; all bytes after them are the producer's."""
_DELETE_RECORDS = 21


def fill(broker: BrokerProcess, count: int, segment_bytes: int) -> list[bytes]:
    """A topic with so many batches of 300 KiB, one record each; nothing of it is in the page cache."""
    settings = {"segment.bytes": str(segment_bytes), "flush.policy": "os", "file.delete.delay.ms": "0"}
    raw_client.create_topic(broker.bootstrap, "old", 1, settings)
    sent = [batches.batch([os.urandom(300 * 1024)]) for _ in range(count)]
    with raw_client.Connection(broker.bootstrap) as connection:
        for batch in sent:
            assert raw_client.produce(connection, "old", batch, acks=1).error_code is raw_client.Error.none
    make_cold(broker.data_dir / "old-0")
    return sent


def read(connection: raw_client.Connection, begin: int, end: int) -> list[bytes]:
    """The batches of some offsets, by fetches of 1 MiB."""
    found: list[bytes] = []
    while begin + len(found) < end:
        part = raw_client.fetch(connection, "old", begin + len(found))
        assert part.error_code is raw_client.Error.none
        found += [bytes(each.data)[_SAME_FROM:] for each in whole_batches(memoryview(part.records))]
    return found[: end - begin]


def test_it_gets_every_byte_of_all_segments_and_of_what_is_appended_then(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        sent = fill(broker, 100, 8 * MIB)
        with raw_client.Connection(broker.bootstrap) as connection:
            assert read(connection, 0, 100) == [each[_SAME_FROM:] for each in sent]
            for number in range(100, 110):
                more = batches.batch([os.urandom(300 * 1024)])
                assert raw_client.produce(connection, "old", more, acks=1).error_code is raw_client.Error.none
                assert read(connection, number, number + 1) == [more[_SAME_FROM:]]
            # From the start again, partly from the page cache.
            assert read(connection, 0, 100) == [each[_SAME_FROM:] for each in sent]


def test_what_it_was_sent_leaves_the_page_cache(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        sent = fill(broker, 200, 64 * MIB)
        (path,) = (broker.data_dir / "old-0").glob("*.log")
        file = OsDisk().open_read_only(path)
        file.disable_read_ahead()
        can_tell = is_on_a_device(path.parent) and page_cache._cached_pages(0, 0, 1) is not None
        is_cold = can_tell and not file.has_any_cached(0, file.size())
        with raw_client.Connection(broker.bootstrap) as connection:
            assert read(connection, 0, 200) == [each[_SAME_FROM:] for each in sent]
        if is_cold:
            assert not file.is_cached(17 * MIB, 14 * MIB), "it was read once, and by one consumer"


def test_records_that_are_deleted_while_it_reads_them(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        sent = fill(broker, 100, 8 * MIB)
        with raw_client.Connection(broker.bootstrap) as connection:
            assert read(connection, 0, 12) == [each[_SAME_FROM:] for each in sent[:12]]
            partitions = [{"partition_index": 0, "offset": 70}]
            answer = connection.call(
                _DELETE_RECORDS, 2, topics=[{"name": "old", "partitions": partitions}], timeout=timedelta(seconds=10)
            )
            assert answer.topics[0].partitions[0].low_watermark == 70
            assert raw_client.fetch(connection, "old", 12).error_code is raw_client.Error.offset_out_of_range
            assert read(connection, 70, 100) == [each[_SAME_FROM:] for each in sent[70:]]
