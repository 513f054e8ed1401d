"""A broker on its own: one data set of a broker that was stopped, one of a broker that was killed."""

import json
import shutil
from pathlib import Path

from headrace import Client
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster
from tests.upgrade.inventory import take
from tests.upgrade.release import DAY_S, OPENING, clock_ahead, pack
from tests.upgrade.write import queues, topics
from tests.upgrade.write.stuck import STUCK_FILE, StuckBroker

WRITING = {
    **OPENING,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "shutdown.timeout.ms": 1000,
    # Where a log begins is known to the replicas that follow soon.
    "log.flush.offset.checkpoint.interval.ms": 100,
    # Or a client that has not heard of it yet brings a deleted queue back as a topic.
    "auto.create.topics.enable": False,
}


def write_single(folder: Path, target: Path, *, is_killed: bool) -> None:
    data, name = folder / "data", "single-killed" if is_killed else "single-stopped"
    broker = StuckBroker(data, settings=WRITING, env={STUCK_FILE: str(folder / "stuck")})
    with broker, Cluster(broker.bootstrap) as cluster, Client(broker.bootstrap, http=broker.http_url) as client:
        topics.write_settings(broker.bootstrap, cluster, broker_id=0)
        topics.write_topics(broker.bootstrap, cluster)
        known = {
            "duplicate": topics.write_producer(broker.bootstrap, cluster),
            "share": topics.write_groups(broker.bootstrap, cluster),
        }
        queues.write_queues(client, broker.http_url)
        left_open = topics.write_transactions(broker.bootstrap, cluster)
        decided = topics.write_decided(broker.bootstrap, cluster)
        broker.stick()
        topics.decide(decided, cluster)
        queues.start_move(client)
        if is_killed:
            broker.kill()
        else:
            assert broker.terminate() == 0
        del left_open, decided
    pack(data, target / f"{name}.tar.xz")
    shutil.copytree(data, folder / "copy")
    with BrokerProcess(folder / "copy", settings=OPENING, env=clock_ahead(folder, DAY_S)) as later:
        content = take(later.bootstrap, later.http_url)
    (target / f"{name}.json").write_text(json.dumps({**known, "content": content}, indent=1, ensure_ascii=False))
