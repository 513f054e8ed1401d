"""The part of the tour with three brokers, one of which is killed."""

import os
import re
import shutil
import signal
import time
from pathlib import Path

from headrace.cli.demo.output import DemoOutput
from headrace.cli.demo.processes import TourProcess
from headrace.cli.errors import CommandFailed
from headrace.cli.output import count, table
from headrace.client.public import Client
from headrace.model.extras import CLUSTER, require
from headrace.wire import Cluster

_BROKERS = 3
_BEFORE, _AFTER = 100, 100
"""Messages per partition, before and after the fault."""
_READY = re.compile(r"bootstrap servers +(\S+)\n(?s:.*?)kill -9 (\d+) +\(broker (\d+)\)")
_SESSION_MS = 3_000


def check_cluster_ready() -> None:
    """Raise `HeadraceError` where a cluster cannot be started."""
    require(CLUSTER)
    if shutil.which("etcd") is None:
        raise CommandFailed("there is no etcd on the PATH (Debian: apt-get install etcd-server)")


def show_failover(voice: DemoOutput, folder: Path) -> None:
    arguments = ["cluster", "dev", "--brokers", str(_BROKERS), "--base-port", "0"]
    arguments += ["--data-dir", str(folder / "cluster"), "--set", f"broker.session.timeout.ms={_SESSION_MS}"]
    cluster = TourProcess("the cluster", arguments, folder / "cluster.log")
    try:
        with voice.waiting_for("etcd and three brokers"):
            bootstrap, pid, broker = cluster.await_line(_READY).groups()
        voice.say(f"   `headrace cluster dev` runs {count(_BROKERS, 'broker')} and an etcd: {bootstrap}")
        _fail_over(voice, bootstrap, int(pid), int(broker))
    finally:
        with voice.waiting_for("the cluster to stop"):
            cluster.stop(signals=2)


def _fail_over(voice: DemoOutput, bootstrap: str, pid: int, broker: int) -> None:
    with Cluster(bootstrap) as cluster, Client(bootstrap) as client:
        cluster.create_topic("payments", partitions=_BROKERS, replication_factor=_BROKERS)
        before = _leaders(cluster)
        with voice.waiting_for("payments"):
            sent = _publish(client, "before", _BEFORE)
        voice.say(f"   {count(len(sent), 'payment')} are on the disks of all three brokers.")
        os.kill(pid, signal.SIGKILL)
        killed_s = time.monotonic()
        voice.say(f"   Broker {broker} was ended with kill -9, and producing goes on …")
        with voice.waiting_for("another broker to lead"):
            sent |= _publish(client, "after", _AFTER)
            took_s = time.monotonic() - killed_s
            after = _leaders(cluster)
        rows = [(f"   {partition}", before[partition], after[partition]) for partition in sorted(before)]
        table(None, [("   PARTITION", "left"), ("LED BY", "right"), ("THEN BY", "right")], rows)
        with voice.waiting_for("all payments"):
            found = [message.text for message in client.replay("payments")]
    if sorted(found) != sorted(sent):
        raise CommandFailed(f"{len(sent)} payments were acknowledged and {len(found)} were read: please report this")
    voice.say(f"   All {count(len(sent), 'payment')} are there, once each. Producing stood still for {took_s:.1f} s.")


def _publish(client: Client, when: str, number: int) -> set[str]:
    """Messages to every partition; those that were acknowledged, which are all."""
    sent = {f"{when} {partition} {each}": partition for each in range(number) for partition in range(_BROKERS)}
    for payload, partition in sent.items():
        client.publish_soon("payments", payload, partition=partition)
    client.flush()
    return set(sent)


def _leaders(cluster: Cluster) -> dict[int, int]:
    return {each.partition: each.leader for each in cluster.metadata(["payments"])["payments"].partitions}
