"""From 0.1 to the current version, one broker after the other, while clients of topics and of a queue work.

Until the feature level is raised an upgraded broker can go back; from then on 0.1 is refused in words.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from headrace.model.features import FEATURE, LATEST_LEVEL
from headrace.testing.checkers import report
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster, Refused
from tests.earlier_versions import environment_of
from tests.faults.episodes import run
from tests.faults.nemesis import Fault, Scene
from tests.faults.queue_crowd import Sender, sending
from tests.faults.queue_work import WORK, Endpoints, connect
from tests.faults.testbed import BROKERS, Testbed
from tests.faults.workload import TOPICS
from tests.interop import raw_client, subject
from tests.interop.streams_members import StreamsMember, plain
from tests.waiting import until

pytestmark = pytest.mark.skipif(not subject.IS_HEADRACE, reason="about a cluster of Headrace")

OLD = "0.1"
NEW_SETTING = {"compression.gzip.level": "1"}
KAFKA_DEFAULT = {"preallocate": "false"}
MESSAGES = [f"message {number}" for number in range(20_000)]
RECEIVED_WITHIN_S = 120.0


class Receiver(threading.Thread):
    """Receives and deletes what is in the queue, from whichever broker answers."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(daemon=True)
        self.bodies: set[str] = set()
        self.is_stopped = False
        self._urls = urls

    def run(self) -> None:
        with Endpoints(self._urls, "receiver") as endpoints:
            while not self.is_stopped:
                try:
                    self._receive(endpoints)
                except Exception:
                    endpoints.next()

    def _receive(self, endpoints: Endpoints) -> None:
        url = endpoints.url_of(WORK)
        answer = endpoints.client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        got = answer.get("Messages", [])
        if got:
            entries = [{"Id": str(at), "ReceiptHandle": one["ReceiptHandle"]} for at, one in enumerate(got)]
            deleted = endpoints.client.delete_message_batch(QueueUrl=url, Entries=entries)
            self.bodies.update(got[int(each["Id"])]["Body"] for each in deleted.get("Successful", []))


def level_of(broker: BrokerProcess) -> int:
    with Cluster(broker.bootstrap) as cluster:
        return cluster.feature(FEATURE).finalized


def joins_streams_group(brokers: Iterable[BrokerProcess]) -> set[raw_client.Error]:
    """What each broker says to a member of a streams group (KIP-1071), which 0.1 cannot read."""
    said = set()
    for broker in brokers:
        with raw_client.Connection(broker.bootstrap) as connection:
            said.add(StreamsMember(connection, "upgraded").join(plain(TOPICS[0])).error_code)
    return said


def change_version(broker_id: int, env: dict[str, str]) -> Fault:
    """Stop a broker as planned, to be started again with this environment."""

    def stop(scene: Scene) -> str:
        scene.bed.cluster.stop(broker_id)
        scene.bed.cluster.brokers[broker_id].env = env
        return f"broker {broker_id}"

    return stop


def check_what_is_refused(scene: Scene) -> str:
    """With brokers of both versions, what 0.1 does not know is refused, and the refusal says what to do."""
    broker = scene.bed.cluster.brokers[1]
    assert level_of(broker) == 1
    with Cluster(broker.bootstrap) as cluster:
        with pytest.raises(Refused, match=r"feature level 2, and the cluster is at 1.*headrace cluster upgrade"):
            cluster.set_topic_settings(TOPICS[0], NEW_SETTING)
        # As MirrorMaker does: a default changes nothing, so that 0.1 need not know of it.
        cluster.set_topic_settings(TOPICS[0], KAFKA_DEFAULT)
        with pytest.raises(Refused, match=r"broker 3 is of a version before 0\.2"):
            cluster.upgrade_feature(FEATURE, LATEST_LEVEL)
    assert joins_streams_group([broker]) == {raw_client.Error.unsupported_version}
    shown = upgrade(scene)
    assert "The feature level stays 1: install the new version on broker 3 first" in shown
    return "refused"


def raise_level(scene: Scene) -> str:
    for broker in scene.bed.cluster.brokers.values():
        assert level_of(broker) == 1
    shown = upgrade(scene)
    assert f"The feature level is {LATEST_LEVEL}." in shown
    with Cluster(scene.bed.cluster.bootstrap) as cluster:
        cluster.set_topic_settings(TOPICS[0], {**NEW_SETTING, **KAFKA_DEFAULT})
    assert raw_client.Error.none in joins_streams_group(scene.bed.cluster.brokers.values())
    return f"level {LATEST_LEVEL}"


def upgrade(scene: Scene) -> str:
    bootstrap = scene.bed.cluster.brokers[1].bootstrap
    command = [sys.executable, "-m", "headrace", "cluster", "upgrade", "--bootstrap", bootstrap]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def until_received(sender: Sender, receiver: Receiver) -> Fault:
    """Send no more, and wait until everything acknowledged has been received and deleted."""

    def drain(_: Scene) -> str:
        sender.is_stopped = True
        sender.join(RECEIVED_WITHIN_S)
        until(lambda: sender.acked <= receiver.bodies, "messages of the queue", RECEIVED_WITHIN_S)
        receiver.is_stopped = True
        receiver.join(RECEIVED_WITHIN_S)
        return f"{len(sender.acked)} messages of the queue"

    return drain


def refusal(bed: Testbed, broker_id: int, data_dir: Path, env: dict[str, str]) -> str:
    """What a broker says that does not start."""
    command = [sys.executable, "-m", "headrace", "serve", "--etcd", bed.cluster.etcd.endpoint, "--kafka-listen"]
    command += ["127.0.0.1:0", "--http-listen", "off", "--broker-id", str(broker_id), "--data-dir", str(data_dir)]
    ended = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.timeout(900)
def test_a_rolling_upgrade_under_load_loses_nothing(tmp_path: Path, say: Callable[[str], None]) -> None:
    old = environment_of(OLD, tmp_path)
    with Testbed(tmp_path, with_network=False, with_disks=False, env=old) as bed:
        urls = [f"http://{broker.settings['http.listen']}" for broker in bed.cluster.brokers.values()]
        connect(urls[0]).create_queue(QueueName=WORK, Attributes={"VisibilityTimeout": "5"})
        receiver = Receiver(urls)
        receiver.start()
        with sending(urls, MESSAGES, 1, pause_s=0.1) as (sender,):
            steps = {f"upgrade broker {one}": change_version(one, {}) for one in BROKERS} | {
                "broker 2 goes back": change_version(2, old),
                "refuse new features": check_what_is_refused,
                "raise the level": raise_level,
                "receive everything": until_received(sender, receiver),
            }
            order = [f"upgrade broker {one}" for one in (1, 2)] + ["broker 2 goes back", "upgrade broker 2"]
            order += ["refuse new features", "upgrade broker 3", "raise the level", "receive everything"]
            verdict = run(bed, tmp_path, order, seed=1, per_second=50, is_small=True, others=steps, say=say)
        assert not verdict.anomalies, report(verdict.anomalies)
        assert sender.acked
        # The brokers are stopped now. 0.1 starts neither with data of the new level nor as a new broker.
        assert "written by a newer Headrace" in refusal(bed, 3, bed.data_dir(3), old)
        assert "the metadata under /cluster cannot be read" in refusal(bed, 9, tmp_path / "new", old)
