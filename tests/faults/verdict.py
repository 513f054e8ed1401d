"""What became of everything after the last fault: final reads, the metadata's history, the disks, and the checker."""

import json
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headrace.model.ids import PartitionIndex, TopicName, TopicPartition
from headrace.testing.checkers import HEALED, Anomaly, check
from headrace.testing.etcd import EtcdProcess
from headrace.testing.histories import History, Recorder
from headrace.testing.replicas import find_divergence
from tests.faults.crowd import Crowd
from tests.faults.nemesis import Scene
from tests.faults.testbed import BROKERS, node
from tests.faults.workload import TOPICS, copied, read_everything

COPIED_WITHIN_S = 120.0
READ_WITHIN_S = 60.0
_WATCH_WITHIN_S = 30.0


class Verdict(NamedTuple):
    history: History
    anomalies: list[Anomaly]
    unclean_ends: int
    """How often a client could not go on and was started again."""

    def __str__(self) -> str:
        history, kinds = self.history, {one.number for one in self.anomalies}
        acked = len(history.ended_ok(history.sends))
        return (
            f"{len(history.sends):,} sent, {acked:,} acknowledged, {len(history.begins):,} transactions, "
            f"{len(history.ended_ok(history.commits)):,} offset commits, "
            f"{sum(len(poll.records) for poll in history.polls):,} reads, {len(history.states):,} changes of leaders "
            f"and replicas; {len(self.anomalies)} anomalies {sorted(kinds) or ''}, {self.unclean_ends} clients gave up"
        )


def conclude(scene: Scene, crowd: Crowd, say: Callable[[str], None]) -> Verdict:
    """Let everything finish in peace, read it all, stop the brokers and look at their disks."""
    bed, record = scene.bed, scene.record
    bed.recover()
    crowd.keep_running()
    began = time.monotonic()
    crowd.stop_senders()
    say(f"producers have finished after {time.monotonic() - began:.1f} s")
    end = time.monotonic() + COPIED_WITHIN_S
    while not copied(bed.cluster.bootstrap) and time.monotonic() < end:
        crowd.keep_running()
        time.sleep(0.2)
    say(f"all is copied after {time.monotonic() - began:.1f} s")
    crowd.stop_others()
    say(f"the other clients have finished after {time.monotonic() - began:.1f} s")
    record.note(HEALED)
    with Recorder(crowd.folder / "last.jsonl", "last") as last:
        high_watermarks = read_everything(bed.cluster.bootstrap, last, READ_WITHIN_S)
    say(f"all is read after {time.monotonic() - began:.1f} s")
    bed.cluster.await_in_sync()
    write_states(bed.cluster.etcd, crowd.folder / "states.jsonl")
    for broker_id in BROKERS:
        bed.cluster.kill(broker_id)
    divergences = _divergences(scene, high_watermarks, say)
    history = History.read(crowd.folder)
    anomalies = check(history) + [Anomaly(14, "divergence", what) for what in divergences]
    return Verdict(history, anomalies, crowd.ended_count)


def _divergences(scene: Scene, high_watermarks: dict[str, int], say: Callable[[str], None]) -> list[str]:
    """Where copies differ. One that we have put a wrong bit into stays as it is until somebody reads it."""
    found, mended = [], 0
    for partition, high_watermark in high_watermarks.items():
        folders = {broker_id: scene.bed.data_dir(broker_id) for broker_id in BROKERS}
        whole = {broker_id for broker_id in BROKERS if (broker_id, partition) not in scene.flipped}
        copies = {node(broker_id): folders[broker_id] for broker_id in sorted(whole)}
        found += find_divergence(copies, {partition: high_watermark})
        for broker_id in set(BROKERS) - whole:
            pair = {node(one): folders[one] for one in (broker_id, *sorted(whole)[:1])}
            mended += not find_divergence(pair, {partition: high_watermark})
    if scene.flipped:
        say(f"{mended} of {len(scene.flipped)} copies with a flipped bit were found and mended")
    return found


def write_states(etcd: EtcdProcess, path: Path) -> None:
    """Every state that a partition of ours ever had in the metadata, in order, as etcd remembers it."""
    names: dict[str, str] = {}
    with Recorder(path, "metadata") as record:
        for key, value in _all_changes(etcd):
            kind, _, rest = key.removeprefix("/headrace").removeprefix("/").partition("/")
            if kind == "topics" and rest in TOPICS:
                names[value["topic_id"]] = rest
                for index, state in enumerate(value["partitions"]):
                    _write_state(record, TopicPartition(TopicName(rest), PartitionIndex(index)), state)
            elif kind == "partitions":
                topic_id, _, index_text = rest.partition("/")
                if topic_id in names:
                    _write_state(
                        record, TopicPartition(TopicName(names[topic_id]), PartitionIndex(int(index_text))), value
                    )


def _write_state(record: Recorder, where: TopicPartition, state: dict[str, Any]) -> None:
    record.state(
        where,
        leader=state["leader"],
        leader_epoch=state["leader_epoch"],
        isr=state["isr"],
        partition_epoch=state["partition_epoch"],
    )


def _all_changes(etcd: EtcdProcess) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key and value that was put, from the first revision on."""
    until = json.loads(etcd.ctl("get", "/", "--write-out=json"))["header"]["revision"]
    # The watch does not end by itself: a key that is put now is the last that it has to show.
    end_key = "/end-of-history"
    etcd.ctl("put", end_key, str(until))
    command = ["etcdctl", f"--endpoints={etcd.endpoint}", "watch", "--prefix", "/", "--rev=1", "--write-out=json"]
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"ETCDCTL_API": "3", "PATH": _PATH})
    try:
        assert watch.stdout is not None
        for line in watch.stdout:
            for event in json.loads(line)["Events"]:
                key = b64decode(event["kv"]["key"]).decode()
                if key == end_key:
                    return
                if event["kv"].get("value"):
                    yield key, json.loads(b64decode(event["kv"]["value"]))
    finally:
        watch.kill()
        watch.wait()
        if watch.stdout is not None:
            watch.stdout.close()


_PATH = "/usr/local/bin:/usr/bin:/bin"
