"""`headrace cluster` and `headrace topic describe` against three brokers that all tests of this file share.

Each test finds all brokers running and no topics: it may come before or after any other.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli.cluster.status import DEGRADED, NOT_SERVING, WELL
from headrace.cli.errors import CommandFailed
from headrace.cli.main import app
from headrace.model.errors import HeadraceError
from headrace.testing import etcd
from headrace.testing.cluster import ClusterProcesses
from headrace.wire import Cluster

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("cli-cluster"),
    pytest.mark.skipif(not etcd.is_installed(), reason="needs Debian's etcd-server and etcd-client"),
]

WAIT_S = 90.0


class Shell:
    """Runs `headrace` against the cluster, in this process: starting one for each command would take the most time."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.cluster = cluster

    def run(self, *arguments: str, code: int = 0) -> str:
        """What a command prints, on stdout and stderr; `code` is the exit code that it must have."""
        got, printed = self._invoke(*arguments)
        assert got == code, (arguments, got, printed, self.cluster.logs())
        return printed

    def status(self) -> dict[str, Any]:
        got, printed = self._invoke("cluster", "status", "--json")
        assert got in (WELL, DEGRADED, NOT_SERVING), (got, printed)
        found: dict[str, Any] = json.loads(printed)
        return found

    def all_is_well(self) -> str:
        """What `cluster status` prints once it finds nothing wrong."""
        last = ""

        def look() -> str:
            nonlocal last
            got, last = self._invoke("cluster", "status")
            return "" if got == WELL else last

        self.cluster.wait_until(look, "all is well", WAIT_S)
        return last

    def _invoke(self, *arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, [*arguments, "--bootstrap", self.cluster.bootstrap])
        if isinstance(result.exception, HeadraceError):
            return 1 if isinstance(result.exception, CommandFailed) else 2, f"{result.output}{result.exception}"
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output

    def replicas(self, topic: str) -> list[tuple[int, ...]]:
        with Cluster(self.cluster.bootstrap) as asked:
            return [part.replicas for part in asked.metadata([topic])[topic].partitions]

    def hosts(self, broker_id: int) -> int:
        with Cluster(self.cluster.bootstrap) as asked:
            found = asked.metadata().values()
        return sum(broker_id in part.replicas for topic in found for part in topic.partitions)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    settings = {
        "offsets.topic.num.partitions": 2,
        "transaction.state.log.num.partitions": 2,
    }
    with ClusterProcesses(folder, brokers=3, racks=("a", "b", "c"), settings=settings) as cluster:
        yield cluster


@pytest.fixture
def shell(cluster: ClusterProcesses) -> Iterator[Shell]:
    yield Shell(cluster)
    for broker_id, broker in cluster.brokers.items():
        if not broker.is_running:
            cluster.start_broker(broker_id)
    with Cluster(cluster.bootstrap) as asked:
        for topic in asked.metadata():
            asked.delete_topic(topic)


def test_status_of_a_cluster_where_all_is_well(shell):
    shell.run("topic", "create", "well", "-p", "6")
    printed = shell.all_is_well()
    assert "All partitions are led, and all of their replicas are in sync." in printed
    found = shell.status()
    assert [(each["broker"], each["rack"], each["state"]) for each in found["brokers"]] == [
        (1, "a", "active"),
        (2, "b", "active"),
        (3, "c", "active"),
    ]
    assert found["controller"] in (1, 2, 3)
    assert sum(each["leads"] for each in found["brokers"]) == found["partitions"]


def test_describe_tells_leaders_replicas_and_lag(shell):
    shell.run("topic", "create", "told", "-p", "3")
    found: dict[str, Any] = {}

    def all_have_it() -> str:
        """A topic is there before all of its replicas are: those of other brokers come a moment later."""
        found.update(json.loads(shell.run("topic", "describe", "told", "--json")))
        return "" if all(len(part["lag"]) == 3 for part in found["partitions"]) else str(found["partitions"])

    shell.cluster.wait_until(all_have_it, "every broker tells of its replicas", WAIT_S)
    for part in found["partitions"]:
        assert part["leader"] in part["replicas"]
        assert sorted(part["replicas"]) == [1, 2, 3]
        assert part["lag"] == {"1": 0, "2": 0, "3": 0}
        assert part["offline"] == []
    assert "IN SYNC" in shell.run("topic", "describe", "told")


def test_a_topic_gets_more_replicas_and_other_brokers(shell):
    shell.run("topic", "create", "moved", "-p", "3", "--replicas", "1")
    with Cluster(shell.cluster.bootstrap) as asked:
        before = asked.metadata(["moved"])["moved"]
    plan = shell.run("cluster", "reassign", "moved", "--replication-factor", "2", "--dry-run")
    assert "This is a plan only" in plan
    assert shell.replicas("moved") == [part.replicas for part in before.partitions]
    assert "Done: 3 partitions" in shell.run("cluster", "reassign", "moved", "--replication-factor", "2")
    assert [len(each) for each in shell.replicas("moved")] == [2, 2, 2]
    shell.run("cluster", "reassign", "moved:0", "--replicas", "3,1", "--throttle", "50M")
    assert shell.replicas("moved")[0] == (3, 1)
    assert "Nothing to do" in shell.run("cluster", "reassign", "moved:0", "--replicas", "3,1")
    assert "there is no broker 9" in shell.run("cluster", "reassign", "moved", "--replicas", "9", code=1)


def test_a_broker_is_drained_and_gets_its_share_again(shell):
    shell.run("topic", "create", "drained", "-p", "6", "--replicas", "2")
    assert "it can be stopped" in shell.run("cluster", "drain", "3")
    assert shell.hosts(3) == 0
    states = {each["broker"]: each["state"] for each in shell.status()["brokers"]}
    assert states == {1: "active", 2: "active", 3: "draining"}
    shell.run("cluster", "undrain", "3")
    assert "This is a plan only" in shell.run("cluster", "rebalance", "--move")
    assert shell.hosts(3) == 0
    shell.run("cluster", "rebalance", "--move", "--yes")
    assert shell.hosts(3) > 0
    assert "Nothing to do" in shell.run("cluster", "rebalance", "--move")


def test_a_drain_that_cannot_succeed_changes_nothing_and_says_what_helps(shell):
    shell.run("topic", "create", "everywhere", "-p", "2", "--replicas", "3")
    printed = shell.run("cluster", "drain", "3", code=1)
    assert "nothing was changed: everywhere-0, everywhere-1 have a replica on every other active broker" in printed
    assert "headrace cluster drain 3 --fewer-replicas" in printed
    assert {each["state"] for each in shell.status()["brokers"]} == {"active"}
    assert [len(each) for each in shell.replicas("everywhere")] == [3, 3]
    assert "it can be stopped" in shell.run("cluster", "drain", "3", "--fewer-replicas")
    assert [sorted(each) for each in shell.replicas("everywhere")] == [[1, 2], [1, 2]]
    shell.run("cluster", "undrain", "3")


def test_a_broker_that_is_killed_shows_and_leadership_comes_back(shell):
    shell.run("topic", "create", "kept", "-p", "6", "--replicas", "3")
    shell.cluster.await_in_sync(WAIT_S)
    shell.cluster.kill(2)
    # The cluster does not know yet: whoever asks every broker must wait until it does.
    assert "There are no groups" in shell.run("group", "list")

    def is_away() -> str:
        found = shell.status()
        states = {each["broker"]: each["state"] for each in found["brokers"]}
        is_over = states.get(2) == "away" and found["is_serving"]
        return "" if is_over else f"broker 2 is {states.get(2)}, without leaders are {found['offline']}"

    shell.cluster.wait_until(is_away, "others have taken over from broker 2", WAIT_S)
    printed = shell.run("cluster", "status", code=1)
    assert "Broker 2 is away" in printed
    described = json.loads(shell.run("topic", "describe", "kept", "--json"))
    assert all(part["leader"] in (1, 3) and part["offline"] == [2] for part in described["partitions"])
    shell.cluster.start_broker(2)
    shell.cluster.await_in_sync(WAIT_S)
    shell.run("cluster", "rebalance")
    described = json.loads(shell.run("topic", "describe", "kept", "--json"))
    assert all(part["leader"] == part["replicas"][0] for part in described["partitions"])
    shell.all_is_well()
