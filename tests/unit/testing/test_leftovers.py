"""Whatever a test leaves behind fails it and no other: `tests/leftovers.py`, in a run of pytest of its own."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

TESTS = """
import logging, os, signal, socket, subprocess, sys, threading
import pytest
from confluent_kafka import Producer
from tests import leftovers

KEPT = []
LONG = [sys.executable, "-c", "import time; time.sleep(100)"]

def test_thread():
    threading.Thread(target=threading.Event().wait, name="forgotten", daemon=True).start()

def test_process():
    KEPT.append(subprocess.Popen(LONG))

def test_orphan():
    code = f"import subprocess; subprocess.Popen({LONG!r})"
    subprocess.run([sys.executable, "-c", code], check=True)

def test_client():
    KEPT.append(Producer({"bootstrap.servers": "127.0.0.1:1"}))

def test_socket():
    KEPT.append(socket.create_server(("127.0.0.1", 0)))

def test_garbage():
    cycle = [socket.create_server(("127.0.0.1", 0))]
    cycle.append(cycle)

def test_environment():
    os.environ["FORGOTTEN"] = "1"

def test_logging():
    logging.getLogger("headrace.forgotten").propagate = False

def test_signal():
    signal.signal(signal.SIGUSR1, lambda *_: None)

@pytest.fixture(scope="module")
def lasting():
    leftovers.PATIENCE_S = 60.0
    os.environ["LASTING"] = "1"
    with subprocess.Popen(LONG) as process, socket.create_server(("127.0.0.1", 0)) as server:
        asked, over = threading.Event(), threading.Event()
        def serve():
            asked.wait()
            threading.Thread(target=over.wait).start()
        thread = threading.Thread(target=serve)
        thread.start()
        producer = Producer({"bootstrap.servers": "127.0.0.1:1"})
        yield asked
        over.set()
        thread.join()
        process.kill()
    del os.environ["LASTING"]

def test_nothing_1(lasting):
    lasting.set()

def test_nothing_2(lasting):
    thread = threading.Timer(0.2, lambda: None)
    thread.start()
    with subprocess.Popen(LONG) as process:
        process.kill()

def test_nothing_3(tmp_path):
    pass
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux")
def test_what_is_left_behind_fails_the_test_that_left_it(tmp_path: Path) -> None:
    (tmp_path / "test_careless.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        "from tests import leftovers\n"
        "leftovers.PATIENCE_S = 0.1\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(leftovers.Leftovers())\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rE",
        "-W",
        "error",
        "-p",
        "no:headrace",
        "-p",
        "no:cacheprovider",
    ]
    ended = subprocess.run(
        [*command, f"--rootdir={tmp_path}", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "1000", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    for process_id in re.findall(r"the process (\d+) ", ended.stdout):
        with suppress(ProcessLookupError):
            os.kill(int(process_id), signal.SIGKILL)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("ERROR ")]
    said = {line.partition("::test_")[2].partition(" ")[0]: line.partition(" - ")[2] for line in lines}
    assert said.keys() == {
        "thread", "process", "orphan", "client", "socket", "garbage", "environment", "logging", "signal"
    }, ended.stdout  # fmt: skip
    assert "forgotten" in said["thread"]
    assert "time.sleep(100)" in said["process"]
    assert "time.sleep(100)" in said["orphan"]
    assert "librdkafka" in said["client"]
    assert "('127.0.0.1'," in said["socket"]
    assert "unclosed" in said["garbage"]
    assert "FORGOTTEN" in said["environment"]
    assert "headrace.forgotten" in said["logging"]
    assert "SIGUSR1" in said["signal"]
    assert "12 passed, 9 errors" in ended.stdout
