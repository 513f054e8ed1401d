"""`headrace health` against a real broker: the sentence, the problems, exit codes, `--json` and `--ready`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing import Broker
from headrace.testing.process import BrokerProcess
from tests.waiting import until


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace", "health", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment or None)


@pytest.fixture(scope="module")
def fine() -> Iterator[Broker]:
    # Whatever the disk of this machine is like.
    with Broker(settings={"health.disk.free.percent": 0}) as broker:
        yield broker


def test_a_broker_without_problems(fine: Broker) -> None:
    done = run("--bootstrap", fine.bootstrap)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Everything is fine.\n", "")
    done = run("--http", fine.http_url, "--json")
    assert json.loads(done.stdout) == {"status": "ok", "sentence": "Everything is fine.", "problems": []}


def test_ready(fine: Broker) -> None:
    assert run("--ready", "--http", fine.http_url).stdout == "ready\n"
    assert run("--ready", "--bootstrap", fine.bootstrap).returncode == 0
    assert run("--ready", "--data-dir", str(fine.data_dir)).returncode == 0


def test_a_problem_is_said_with_what_to_do(tmp_path: Path) -> None:
    settings = {"insecure": True, "http.listen": "0.0.0.0:0", "health.disk.free.percent": 100}
    with BrokerProcess(tmp_path / "data", host="0.0.0.0", settings=settings) as broker:
        url = f"http://127.0.0.1:{broker.http_url.rpartition(':')[2]}"

        def found() -> bool:
            value = json.loads(run("--http", url, "--json").stdout)
            return {each["id"] for each in value["problems"]} >= {"insecure_listener", "disk_full"}

        until(found, "the broker has checked its health")
        done = run("--http", url)
        assert "WARNING  Broker 0 serves plain://0.0.0.0:" in done.stdout
        assert "→ headrace secure turns on TLS, users and ACLs" in done.stdout
        assert "left on the disk of" in done.stdout
        assert run("--http", url, "--fail-on", "warning").returncode == 1


def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    done = run("--http", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("headrace: no broker serves queues at http://127.0.0.1:1")
    done = run("--ready", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "no broker uses" in done.stderr
    assert run("--wait", "3").returncode == 2


def test_with_logins_over_tls() -> None:
    settings = {"authorization.enable": True, "super.users": "User:root", "health.disk.free.percent": 0}
    with Broker(tls=True, users={"root": "secret of root", "bob": "secret of bob"}, settings=settings) as broker:

        def by(user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            login = {
                "HEADRACE_BOOTSTRAP": broker.bootstrap,
                "HEADRACE_USER": user,
                "HEADRACE_PASSWORD": f"secret of {user}",
                "HEADRACE_CA_FILE": str(broker.ca_file),
                "PATH": os.environ["PATH"],
            }
            return run(*arguments, **login)

        assert (by("root").returncode, by("root").stdout) == (0, "Everything is fine.\n")
        denied = by("bob", "--http", broker.http_url)
        assert denied.returncode == 1
        assert "lacks the permission describe on the cluster" in denied.stderr
        # The probes need no login, and no certificate that the client trusts.
        assert run("--ready", "--http", broker.http_url).stdout == "ready\n"
