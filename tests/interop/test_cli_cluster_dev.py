"""`headrace cluster dev` and `headrace serve --workers` as processes: what they say, and what they leave behind."""

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.testing import etcd
from headrace.wire import Cluster
from tests.snippets import blocks_of
from tests.waiting import until

HEADRACE = [sys.executable, "-m", "headrace"]
WAIT_S = 90.0

needs_etcd = pytest.mark.skipif(not etcd.is_installed(), reason="needs Debian's etcd-server and etcd-client")
pytestmark = pytest.mark.timeout(300)


class Command:
    """A command that runs until it is told to stop, with what it printed so far."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.printed = ""

    def read_until(self, pattern: str) -> "re.Match[str]":
        """Wait for a line that matches; everything before it counts too."""
        assert self.process.stdout is not None
        deadline_s = time.monotonic() + WAIT_S
        while (found := re.search(pattern, self.printed)) is None:
            left_s = deadline_s - time.monotonic()
            readable, _, _ = select.select([self.process.stdout], [], [], max(0.0, left_s))
            piece = os.read(self.process.stdout.fileno(), 65_536) if readable else b""
            assert piece, f"no {pattern!r} in what it printed:\n{self.printed}"
            self.printed += piece.decode()
        return found

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=WAIT_S)
        self.printed += rest.decode()
        return self.process.returncode


@contextmanager
def running(*arguments: str) -> Iterator[Command]:
    process = subprocess.Popen([*HEADRACE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with process:
        try:
            yield Command(process)
        finally:
            process.kill()


def processes_of(folder: Path) -> list[int]:
    """The processes whose command names this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
                is_zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if str(folder).encode() in command and not is_zombie:
                found.append(int(entry.name))
    return found


def wait_until_none(folder: Path) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while left := processes_of(folder):
        assert time.monotonic() < deadline_s, left
        time.sleep(0.05)


def typed(*arguments: str, folder: Path, fails: bool = False) -> str:
    """What `headrace cluster dev` prints in another terminal."""
    command = [*HEADRACE, "cluster", "dev", *arguments, "--data-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode != 0) is fails, done
    return done.stderr if fails else done.stdout


def test_a_broker_cannot_be_brought_back_where_no_cluster_runs(tmp_path):
    assert f"no `headrace cluster dev` runs on {tmp_path}" in typed("start", "2", folder=tmp_path, fails=True)


@needs_etcd
def test_one_command_runs_a_cluster_and_ctrl_c_stops_all_of_it(tmp_path):
    folder = tmp_path / "dev"
    arguments = ("cluster", "dev", "--brokers", "3", "--base-port", "0", "--data-dir", str(folder))
    with running(*arguments, "--restart") as command:
        bootstrap = command.read_until(r"bootstrap servers +(\S+)\n")[1]
        assert len(bootstrap.split(",")) == 3
        with Cluster(bootstrap) as cluster:
            assert cluster.create_topic("kept", partitions=3)
        victim = int(command.read_until(r"kill -9 (\d+)")[1])
        os.kill(victim, signal.SIGKILL)
        command.read_until(rf"broker 3 \| was ended by SIGKILL \(process {victim}\); it is started again in 1 s")
        command.read_until(r"started again(?s:.*)broker 3 \| ready on")
        assert command.stop(signal.SIGINT) == 0
        stops = [line for line in command.printed.splitlines() if line.endswith("| stopped")]
        assert [line.split(" |")[0].strip() for line in stops] == ["broker 3", "broker 2", "broker 1", "etcd"]
    assert processes_of(folder) == []
    assert sorted(path.name for path in (folder / "logs").iterdir()) == [
        "broker-1.log",
        "broker-2.log",
        "broker-3.log",
        "etcd.log",
    ]
    with running(*arguments) as command:
        bootstrap = command.read_until(r"bootstrap servers +(\S+)\n")[1]
        with Cluster(bootstrap) as cluster:
            assert "kept" in cluster.metadata()
        assert f"bring it back      headrace cluster dev start 3 --data-dir {folder}\n" in command.printed
        assert "broker 2 is running already" in typed("start", "2", folder=folder, fails=True)
        assert "start 2" in typed("kill", "2", folder=folder)
        command.read_until(r"broker 2 \| was ended by SIGKILL .*; 2 brokers left; headrace cluster dev start 2 ")
        assert typed("start", "2", folder=folder).startswith("broker 2 is ready on ")
        assert typed("start", "4", folder=folder).startswith("broker 4 is ready on ")
        with Cluster(bootstrap) as cluster:
            nodes = cluster.describe().brokers
        assert [broker_id for broker_id, node in nodes.items() if not node.is_fenced] == [1, 2, 3, 4]
        assert "there is no 77 in this cluster" in typed("start", "77", folder=folder, fails=True)
        # However it ends, what it started ends with it.
        command.process.kill()
    wait_until_none(folder)


@needs_etcd
def test_workers_are_brokers_of_one_rack_and_are_started_again(tmp_path):
    folder = tmp_path / "workers"
    with etcd.EtcdProcess() as store:
        arguments = ["--etcd", store.endpoint, "--broker-id", "10", "--rack", "r1", "--data-dir", str(folder)]
        arguments += ["--workers", "2", "--kafka-listen", "127.0.0.1:0"]
        foreign = folder / "worker-1" / "cat.jpg"
        foreign.parent.mkdir(parents=True)
        foreign.write_bytes(b"miaow")
        assert "cat.jpg" in refused(*arguments)
        foreign.unlink()
        with running("serve", *arguments) as command:
            bootstrap = command.read_until(r"Headrace is ready on (\S+) \(brokers 10 to 11, ")[1]
            with Cluster(bootstrap) as cluster:
                nodes = cluster.describe().brokers
                assert {each.broker_id: each.rack for each in nodes.values()} == {10: "r1", 11: "r1"}
            victim = next(pid for pid in processes_of(folder / "worker-1") if pid != command.process.pid)
            os.kill(victim, signal.SIGKILL)
            command.read_until(r"worker-1: was ended by SIGKILL .*; it is started again in 1 s")
            assert command.stop(signal.SIGTERM) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["worker-0", "worker-1"]
    assert processes_of(folder) == []


def refused(*arguments: str) -> str:
    """The one sentence of a `headrace serve` that does not start; before and after it, workers may log."""
    done = subprocess.run([*HEADRACE, "serve", *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2, done
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("headrace: ")]
    return sentence


def test_workers_without_etcd_are_refused():
    assert "--workers needs --etcd" in refused("--workers", "2")


def test_a_machine_without_etcd_is_told_how_to_get_it(tmp_path):
    done = subprocess.run(
        [*HEADRACE, "cluster", "dev", "--base-port", "0", "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 1
    assert "apt-get install etcd-server" in done.stderr


@needs_etcd
def test_the_commands_of_the_pages_on_a_cluster(tmp_path, monkeypatch):
    """On one cluster, in the order of the pages and each once; the first command starts it, on ports that are free."""
    monkeypatch.chdir(tmp_path)
    start = ["cluster", "dev", "--brokers", "3"]
    typed_lines = [
        shlex.split(line.removeprefix("$ "), comments=True)[1:]
        for page in ("README.md", "docs/quickstart.md", "docs/operations.md")
        for block in blocks_of(page)
        if block.language == "cluster"
        for line in block.text.splitlines()
        if not line.startswith("#")
    ]
    assert typed_lines.count(start) == 3
    with running(*start, "--base-port", "0") as command:
        bootstrap = command.read_until(r"bootstrap servers +(\S+)\n")[1]
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", bootstrap)
        for arguments in dict.fromkeys(map(tuple, typed_lines)):
            if arguments != tuple(start):
                told = [bootstrap if each == "queue1:9092" else each for each in arguments]
                until(lambda told=told: succeeds(told, command), f"{told} succeeds")  # type: ignore[misc]
        with Cluster(bootstrap) as cluster:
            found = cluster.metadata(["orders", "payments"])
        assert [len(found[topic].partitions) for topic in ("orders", "payments")] == [6, 6]
        assert command.stop(signal.SIGINT) == 0
    assert processes_of(tmp_path) == []


def succeeds(arguments: list[str], command: Command) -> bool:
    """Whether a command ends well. `cluster status` does not while replicas catch up, and then somebody asks again."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0 or arguments[:2] == ["cluster", "status"], (arguments, done.output, command.printed)
    return done.exit_code == 0
