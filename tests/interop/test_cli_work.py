"""`headrace work` with a real broker and real processes: scaling, kills, stops, crashes and reloads."""

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from headrace import Client
from headrace.testing import Broker
from tests.waiting import until

from .work_command import WorkCommand

_SLEEPER = """
import time

@client.queue("{queue}").worker(concurrency={threads})
def work(message):
    with open("log", "a") as log:
        log.write(f"{{os.getpid()}} {{message.text}}\\n")
    time.sleep({seconds})
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap) as one:
        yield one


def begun(folder: Path) -> dict[str, list[int]]:
    """The processes that have begun each message, in order."""
    found = defaultdict(list)
    log = folder / "log"
    for line in log.read_text().splitlines() if log.exists() else ():
        pid, _, text = line.partition(" ")
        found[text].append(int(pid))
    return found


def lines(folder: Path) -> int:
    """How many messages were begun, redeliveries included."""
    log = folder / "log"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def busy(folder: Path) -> set[int]:
    """The processes that have begun one of the last messages."""
    with (folder / "log").open("rb") as log:
        log.seek(-min(500, log.seek(0, os.SEEK_END)), os.SEEK_END)
        return {int(line.split()[0]) for line in log.read().splitlines()[1:-1]}


def test_a_backlog_brings_the_pool_to_its_bound_and_back(broker: Broker, client: Client, tmp_path: Path) -> None:
    _scale(
        broker, client, tmp_path, "short", messages=500, kills=1, options=("--target-seconds", "1", "--cooldown", "1")
    )


@pytest.mark.slow
def test_a_hundred_thousand_messages(broker: Broker, client: Client, tmp_path: Path) -> None:
    _scale(broker, client, tmp_path, "long", messages=100_000, kills=20, options=("--cooldown", "5"), threads=32)


def _scale(
    broker: Broker,
    client: Client,
    folder: Path,
    name: str,
    *,
    messages: int,
    kills: int,
    options: tuple[str, ...],
    threads: int = 4,
) -> None:
    """Messages with 50 ms of work each: the pool grows from 1 to 4 and shrinks to 1, while processes are killed."""
    queue = client.queue(f"scale-{name}").create(visibility=5)
    queue.send_many([str(number) for number in range(messages)])
    app = _SLEEPER.format(queue=queue.name, threads=threads, seconds=0.05)
    killed: set[int] = set()
    with WorkCommand(folder, broker, app, "--max", "4", *options) as work:
        work.said("runs in 1 process")
        started_s = time.monotonic()
        until(lambda: 4 in work.sizes, lambda: f"the bound: {work.lines}")
        grown_s = time.monotonic() - started_s
        for number in range(1, kills + 1):
            enough = messages * number // (kills + 2)
            until(lambda enough=enough: lines(folder) >= enough)  # type: ignore[misc]
            victim = until(lambda: [each for each in work.children if each in busy(folder)])[-1]
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
        until(lambda: (found := queue.counts()).available + found.in_flight == 0, timeout_s=600)
        finished_s = time.monotonic()
        work.said("was ended by SIGKILL")
        until(lambda: work.sizes[-1] == 1 and len(work.children) == 1, lambda: str(work.lines))
        shrunk_s = time.monotonic() - finished_s
        assert max(work.sizes) == 4
        assert "waiting" in work.said("-> 4 processes")
        work.stop()
        assert work.process.wait(60) == 0
    print(f"to the bound in {grown_s:.1f} s, back within {shrunk_s:.1f} s of the last message: {work.lines}")
    assert len(begun(folder)) == messages, "nothing is lost"
    for text, processes in begun(folder).items():
        assert killed.issuperset(processes[:-1]), f"{text} was begun twice, though no process was killed with it"


def test_a_stop_finishes_messages_in_progress_and_returns_the_others(
    broker: Broker, client: Client, tmp_path: Path
) -> None:
    queue = client.queue("stopped").create()
    queue.send_many([str(number) for number in range(100)])
    app = _SLEEPER.format(queue="stopped", threads=2, seconds=0.5) + "    open('done', 'a').write('x')\n"
    with WorkCommand(tmp_path, broker, app) as work:
        until(lambda: len(begun(tmp_path)) >= 2)
        work.stop()
        assert work.process.wait(60) == 0
        work.said("stopping 1 process")
    handled = len((tmp_path / "done").read_text())
    assert handled == len(begun(tmp_path)), "what was begun is finished"
    counts = queue.counts()
    assert (counts.available, counts.in_flight) == (100 - handled, 0), "the others are available at once"


def test_a_process_that_hangs_is_killed_after_the_grace_time(broker: Broker, client: Client, tmp_path: Path) -> None:
    client.queue("hanging").create().send("one")
    app = _SLEEPER.format(queue="hanging", threads=1, seconds=3600)
    with WorkCommand(tmp_path, broker, app, "--grace", "0.5") as work:
        until(lambda: begun(tmp_path))
        (child,) = work.children
        work.stop(signal.SIGINT)
        assert work.process.wait(60) == 0
        work.said("did not stop within 0.5 s and was killed")
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.slow
def test_a_second_signal_ends_everything_at_once(broker: Broker, client: Client, tmp_path: Path) -> None:
    client.queue("impatient").create().send("one")
    with WorkCommand(tmp_path, broker, _SLEEPER.format(queue="impatient", threads=1, seconds=3600)) as work:
        until(lambda: begun(tmp_path))
        work.stop(signal.SIGINT)
        work.said("Ctrl-C again ends them at once")
        work.stop(signal.SIGINT)
        assert work.process.wait(30) == 0


def test_processes_end_with_their_pool(broker: Broker, client: Client, tmp_path: Path) -> None:
    client.queue("orphaned").create().send("one")
    app = _SLEEPER.format(queue="orphaned", threads=1, seconds=3600)
    with WorkCommand(tmp_path, broker, app, "--min", "2", "--grace", "0.5") as work:
        until(lambda: begun(tmp_path) and len(work.children) == 2)
        children = work.children
        work.process.kill()
        until(lambda: not any(Path(f"/proc/{each}").exists() for each in children))


def test_a_crash_loop_is_named(broker: Broker, client: Client, tmp_path: Path) -> None:
    client.queue("crashing").create(visibility=1).send("one")
    app = """
@client.queue("crashing").worker()
def work(message):
    os._exit(7)
"""
    with WorkCommand(tmp_path, broker, app) as work:
        work.said("ended with exit code 7; another one is started in 0.5 s")
        work.said("crash loop: 3 starts in a row have failed")


def test_handlers_never_have_more_processes_than_partitions(broker: Broker, client: Client, tmp_path: Path) -> None:
    client.topics.create("ordered", partitions=2)
    for number in range(200):
        client.publish_soon("ordered", str(number), partition=number % 2)
    client.flush()
    app = """
import time

@client.handler("ordered", group="ordered-readers")
def work(message):
    with open("log", "a") as log:
        log.write(f"{message.partition} {message.text}\\n")
    time.sleep(0.02)
"""
    with WorkCommand(tmp_path, broker, app, "--max", "8", "--target-seconds", "0.1", "--listen", ":0") as work:
        assert "it has 2 partitions" in work.said("-> 2 processes")
        until(lambda: len(begun(tmp_path)) == 200)
        url = work.said("serving http").split()[-1]
        until(lambda: 'handled_total{source="group ordered-readers"} 200' in urlopen(url, timeout=30).read().decode())
        assert "headrace_work_wanted_processes 2" in urlopen(url, timeout=30).read().decode()
        assert max(work.sizes) == 2
    lines = (tmp_path / "log").read_text().splitlines()
    for partition in ("0", "1"):
        seen = [int(line.split()[1]) for line in lines if line.split()[0] == partition]
        assert list(dict.fromkeys(seen)) == sorted(set(seen)), "in order, redeliveries apart"


def test_reload_replaces_the_processes_and_survives_broken_code(broker: Broker, client: Client, tmp_path: Path) -> None:
    queue = client.queue("reloaded").create()
    app = """
@client.queue("reloaded").worker()
def work(message):
    open("log", "a").write(f"VERSION {message.text}\\n")
"""

    def heard(version: int, text: str) -> None:
        queue.send(text)
        until(lambda: text in begun(tmp_path))
        assert begun(tmp_path)[text] == [version]

    with WorkCommand(tmp_path, broker, app.replace("VERSION", "1"), "--reload") as work:
        heard(1, "a")
        work.write("def broken(:\n")
        work.said("SyntaxError")
        work.said("the processes with the old code go on")
        heard(1, "b")
        work.write(app.replace("VERSION", "2"))
        work.said("1 process run the new code")
        heard(2, "c")


def test_what_cannot_be_run_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from headrace import Client\nclient = Client()\n")
    command = [sys.executable, "-m", "headrace", "work", "app:client"]
    found = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    assert "app:client has nothing to run" in found.stderr
    assert "Traceback" not in found.stderr
