"""A cluster of three brokers that were killed, and a snapshot of its etcd."""

import json
import shutil
from pathlib import Path

from headrace import Client
from headrace.testing.cluster import ClusterProcesses
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster
from tests.interop.batches import Record
from tests.upgrade.clusters import SETTINGS, SNAPSHOT, opened_cluster
from tests.upgrade.inventory import take
from tests.upgrade.release import DAY_S, clock_ahead, pack
from tests.upgrade.write import queues, topics
from tests.upgrade.write.single import WRITING
from tests.upgrade.write.stuck import STUCK_FILE, StuckBroker
from tests.waiting import until


class StuckCluster(ClusterProcesses):
    def _make(self, broker_id: int, rack: str) -> BrokerProcess:
        made = super()._make(broker_id, rack)
        stuck = StuckBroker(
            made.data_dir,
            port=made.port,
            settings=made.settings,
            args=made.args,
            env={STUCK_FILE: str(self.folder / "stuck")},
            log_file=self.folder / f"broker-{broker_id}.log",
        )
        self.brokers[broker_id] = stuck
        return stuck

    def stick(self) -> None:
        (self.folder / "stuck").touch()


def write_cluster(folder: Path, target: Path) -> None:
    written, data = folder / "written", folder / "data"
    running = StuckCluster(written, brokers=3, settings={**SETTINGS, **WRITING})
    with running:
        with Cluster(running.bootstrap) as cluster, Client(running.bootstrap, http=running.http_url) as client:
            _write(running, cluster, client)
            for broker_id in running.brokers:
                running.kill(broker_id)
        data.mkdir()
        running.etcd.ctl("snapshot", "save", str(data / SNAPSHOT))
    for broker_id in running.brokers:
        shutil.copytree(written / f"broker-{broker_id}", data / f"broker-{broker_id}")
    pack(data, target / "cluster.tar.xz")
    with opened_cluster(data, clock_ahead(folder, DAY_S)) as later:
        content = take(later.bootstrap, later.http_url)
    (target / "cluster.json").write_text(json.dumps({"content": content}, indent=1, ensure_ascii=False))


def _write(running: StuckCluster, cluster: Cluster, client: Client) -> None:
    bootstrap = running.bootstrap
    topics.write_settings(bootstrap, cluster, broker_id=2)
    topics.write_codecs(bootstrap, cluster)
    topics.write_segments(bootstrap, cluster)
    _write_moved(bootstrap, cluster)
    topics.consume(bootstrap, "classic", "codecs", {"group.protocol": "classic"})
    topics.consume(bootstrap, "next-gen-left", "codecs", {"group.protocol": "consumer"})
    cluster.commit_offsets("tool", {("codecs", 1): 7}, metadata="set by a tool")
    queues.write_queues(client, running.http_url)
    left_open = topics.write_transactions(bootstrap, cluster)
    decided = topics.write_decided(bootstrap, cluster)
    running.await_in_sync()
    running.stick()
    topics.decide(decided, cluster)
    queues.start_move(client)
    del left_open


def _write_moved(bootstrap: str, cluster: Cluster) -> None:
    """A partition that was moved from one broker to another one, and a topic with a single replica."""
    cluster.create_topic("moved", partitions=1, replication_factor=2, settings=topics.KEPT)
    topics.produce(bootstrap, "moved", [Record(b"before", None, (), topics.START_MS)])
    (part,) = cluster.metadata(["moved"])["moved"].partitions
    (other,) = {1, 2, 3} - set(part.replicas)
    assert not cluster.reassign({("moved", 0): (other, part.replicas[0])})
    until(lambda: not cluster.reassignments(), "the end of the reassignment")
    topics.produce(bootstrap, "moved", [Record(b"after", None, (), topics.START_MS + 1)])
    cluster.create_topic("alone", partitions=3, replication_factor=1, settings=topics.KEPT)
    topics.produce(bootstrap, "alone", [Record(b"on one broker", None, (), topics.START_MS)], partition=1)
