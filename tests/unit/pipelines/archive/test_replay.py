"""Records of an archive, back into a topic of a real broker."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.pipelines.archive.archiver import ArchiveOptions, Archiver
from headrace.pipelines.archive.layout import read_archive
from headrace.pipelines.archive.replay import ReplayFilter, replay
from headrace.records.batch import iter_headers
from headrace.records.builder import build_batch
from headrace.records.reader import Record, iter_records
from headrace.testing import Broker
from headrace.wire import Cluster, TopicNotFound

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000 // DAY_MS * DAY_MS


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # The records are years old, and retention would take them.
    with Broker(settings={"log.retention.ms": -1}) as broker, Cluster(broker.bootstrap) as cluster:
        yield cluster


def read(cluster: Cluster, topic: str, partition: int) -> list[Record]:
    found = cluster.fetch(topic, partition, 0)
    batches = [found.records[at : at + header.size] for at, header in iter_headers(found.records)]
    return [*itertools.chain.from_iterable(iter_records(batch) for batch in batches)]


def test_a_day_comes_back_as_it_was(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("orders", partitions=3)
    cluster.create_topic("again", partitions=2)
    # Times go to and fro over midnight, so that the files of two days share offsets.
    sent = [
        Record(0, START_MS + DAY_MS + (-1) ** number * number * 60_000, b"%d" % number, b"v", (("n", b"%d" % number),))
        for number in range(40)
    ]
    for partition in range(3):
        cluster.produce({("orders", partition): build_batch(sent)})
    with Archiver(cluster, ArchiveOptions(topic="orders", path=str(tmp_path))) as archiver:
        archiver.run_once()
    view = read_archive(tmp_path)
    assert len(view.files) == 6
    done = replay(cluster, view, "again", ReplayFilter(partitions=frozenset({1})))
    assert done.records == 40
    assert [record[1:] for record in read(cluster, "again", 1)] == [record[1:] for record in sent]
    # One day of all partitions: the third shares a partition with the first.
    wanted = [record[1:] for record in sent if record.timestamp >= START_MS + DAY_MS]
    done = replay(cluster, view, "again", ReplayFilter(since_ms=START_MS + DAY_MS, until_ms=START_MS + 2 * DAY_MS))
    assert done.records == 3 * len(wanted)
    assert [record[1:] for record in read(cluster, "again", 0)] == wanted * 2
    with pytest.raises(TopicNotFound, match="headrace topic create nowhere"):
        replay(cluster, view, "nowhere", ReplayFilter())
