"""A thousand tasks through a task queue framework and a real `headrace serve` process, both killed meanwhile.

Some tasks fail at first and are retried, some are delayed. Workers, single processes of their pools and the broker are
killed with kill -9 at moments that a seed chooses; the broker is started again on the same ports and data. In the end
every task must have succeeded, no delayed one early, and the queue must be empty with nothing in flight.

A framework brings a folder with a `requirements.txt`, with `tasks.py` for its workers and with `send.py`, which sends
the tasks. They read from the environment: `SQS_HOST`, `SQS_PORT`, `QUEUE`, `COUNT`, and `EFFECTS`, a file to which each
attempt appends `number event`. Events are `failed`, `early` and `done`.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import boto3
from client_suite import Unavailable
from environments import environment
from report import Report, expect

from headrace.testing.process import BrokerProcess

_WORKERS = 2
_WORKER_KILLS, _POOL_KILLS, _BROKER_KILLS = 4, 4, 3
_DONE_WITHIN_S, _STOPPED_WITHIN_S = 300.0, 60.0
_EMPTY_FOR_S = 30.0
"""A queue that is empty for so long has lost what has not succeeded."""
_LOOK_EVERY_S = 0.05
_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


@dataclass(frozen=True)
class Framework:
    """What is checked: `worker` are the arguments with which the Python of its environment becomes a worker."""

    name: str
    folder: Path
    worker: Sequence[str]
    creates_queue: bool = True
    visibility_timeout_s: int = 10


@dataclass
class Effects:
    """What the tasks have done, from the file that they append to."""

    path: Path
    counts: dict[str, Counter[int]] = field(default_factory=dict)
    _position: int = 0

    def read(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._position += len(line)
                number, event = line.decode().split()
                self.counts.setdefault(event, Counter())[int(number)] += 1

    def of(self, event: str) -> Counter[int]:
        return self.counts.get(event, Counter())


class Worker:
    """A worker with its pool, in a process group of its own. It is started again when it ends, as a supervisor does."""

    def __init__(self, command: Sequence[str], folder: Path, env: dict[str, str], log: Path) -> None:
        self._command, self._folder, self._env, self._log = command, folder, env, log
        self._process: subprocess.Popen[bytes] | None = None
        self.ended: list[int] = []
        """The exit codes of those that ended by themselves."""
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._env, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def supervise(self) -> None:
        if (code := self.process.poll()) is not None:
            self.ended.append(code)
            self.kill_group()
            self.start()

    def kill(self) -> bool:
        self.kill_group()
        self.start()
        return True

    def kill_one_of_pool(self, choose: random.Random) -> bool:
        """Whether there was one."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with suppress(OSError):
            pool = [int(pid) for pid in children.read_text().split()]
            if pool:
                os.kill(choose.choice(pool), signal.SIGKILL)
                return True
        return False

    def kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOPPED_WITHIN_S)


class Run:
    """One run of a framework: its processes, and the kills that are still to come."""

    def __init__(self, framework: Framework, python: Path, broker: BrokerProcess, scratch: Path, count: int) -> None:
        self._broker = broker
        self._count = count
        self.effects = Effects(scratch / "effects")
        self._sqs = boto3.client(
            "sqs",
            endpoint_url=broker.http_url,
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )
        self._queue_url = f"{broker.http_url}/000000000000/tasks"
        if not framework.creates_queue:
            timeout = {"VisibilityTimeout": str(framework.visibility_timeout_s)}
            self._queue_url = self._sqs.create_queue(QueueName="tasks", Attributes=timeout)["QueueUrl"]
        at = urlsplit(broker.http_url)
        env = os.environ | {
            "SQS_HOST": str(at.hostname),
            "SQS_PORT": str(at.port),
            "QUEUE": "tasks",
            "COUNT": str(count),
            "EFFECTS": str(self.effects.path),
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self.log = scratch / "workers.log"
        send = [str(python), "send.py"]
        with self.log.open("ab") as log:
            self.sender = subprocess.Popen(send, cwd=framework.folder, env=env, stdout=log, stderr=log)
        command = [str(python), *framework.worker]
        self.workers = [Worker(command, framework.folder, env, self.log) for _ in range(_WORKERS)]

    def kills(self, choose: random.Random) -> list[tuple[int, str, Callable[[], bool]]]:
        """What is killed after how many tasks, in this order."""
        kinds: list[tuple[str, Callable[[], bool]]] = []
        kinds += [("worker", lambda: choose.choice(self.workers).kill())] * _WORKER_KILLS
        kinds += [("process of a pool", lambda: choose.choice(self.workers).kill_one_of_pool(choose))] * _POOL_KILLS
        kinds += [("broker", self._kill_broker)] * _BROKER_KILLS
        choose.shuffle(kinds)
        moments = sorted(choose.sample(range(self._count // 50, self._count * 8 // 10), len(kinds)))
        return [(after, what, kill) for after, (what, kill) in zip(moments, kinds, strict=True)]

    def _kill_broker(self) -> bool:
        self._broker.restart(kill=True)
        return True

    def until_finished(self, choose: random.Random) -> Counter[str]:
        """Kill as planned until all tasks are done and the queue is empty; how many of what were killed."""
        planned, killed = self.kills(choose), Counter[str]()
        end = time.monotonic() + _DONE_WITHIN_S
        filled_s = time.monotonic()
        while True:
            self.effects.read()
            for worker in self.workers:
                worker.supervise()
            done = len(self.effects.of("done"))
            if planned and done >= planned[0][0]:
                # Not always in the moment in which a task has ended.
                time.sleep(choose.uniform(0, 0.2))
                _, what, kill = planned[0]
                if kill():
                    killed[what] += 1
                    planned.pop(0)
            elif self.sender.poll() is not None:
                if any(self.counts()):
                    filled_s = time.monotonic()
                elif done == self._count:
                    return killed
            else:
                filled_s = time.monotonic()
            if time.monotonic() > min(end, filled_s + _EMPTY_FOR_S):
                raise AssertionError(self._unfinished())
            time.sleep(_LOOK_EVERY_S)

    def counts(self) -> list[int]:
        """How many messages are available, in flight and delayed."""
        found = self._sqs.get_queue_attributes(QueueUrl=self._queue_url, AttributeNames=list(_COUNTS))["Attributes"]
        return [int(found[name]) for name in _COUNTS]

    def _unfinished(self) -> str:
        done = self.effects.of("done")
        missing = [number for number in range(self._count) if number not in done]
        return (
            f"{len(missing)} tasks have not succeeded: {missing[:20]}; "
            f"available, in flight, delayed: {self.counts()}\n{self.log.read_text(errors='replace')[-3000:]}"
        )

    def close(self) -> None:
        for worker in self.workers:
            worker.kill_group()
        self.sender.kill()
        self.sender.wait()


def check(framework: Framework) -> int:
    """One line for each check; 1 if one failed. Where the framework cannot be had, a sentence says so, and it is 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1, help="chooses what is killed and when")
    parser.add_argument("--count", type=int, default=1000, help="how many tasks")
    parser.add_argument("--log", type=Path, help="a file for what workers write")
    options = parser.parse_args()
    try:
        python = environment(framework.folder / "requirements.txt", framework.folder.name)
    except Unavailable as reason:
        print(f"{framework.name} is not checked: {reason}.")
        return 0
    print(f"{framework.name}: seed {options.seed}", flush=True)
    report = Report()
    with (
        tempfile.TemporaryDirectory(prefix=f"headrace-{framework.folder.name}-") as scratch,
        BrokerProcess(Path(scratch) / "data") as broker,
    ):
        run = Run(framework, python, broker, Path(scratch), options.count)
        try:
            _check(report, run, broker, options)
        finally:
            run.close()
            if options.log is not None:
                options.log.write_bytes(run.log.read_bytes())
    print(report.summary(), flush=True)
    return 1 if report.failed else 0


def _check(report: Report, run: Run, broker: BrokerProcess, options: argparse.Namespace) -> None:
    with report.check(f"{options.count:,} tasks succeed, and nothing is left in the queue"):
        killed = run.until_finished(random.Random(options.seed))
        print("        killed: " + ", ".join(f"{what} {count} times" for what, count in sorted(killed.items())))
        expect(run.sender.returncode == 0, f"sending ended with exit code {run.sender.returncode}")
    effects = run.effects
    attempts = sum(effects.of("done").values()) + sum(effects.of("failed").values())
    ended = [code for worker in run.workers for code in worker.ended]
    print(f"        {attempts:,} attempts; workers that ended by themselves, by exit code: {dict(Counter(ended))}")
    with report.check("tasks that failed were tried again"):
        failed = effects.of("failed")
        expect(len(failed) >= options.count // 5, f"only {len(failed)} tasks have failed")
        expect(not set(failed) - set(effects.of("done")), "not all that failed have succeeded")
    with report.check("no delayed task ran early"):
        expect(not effects.of("early"), f"these did: {sorted(effects.of('early'))[:20]}")
    with report.check("workers stop on SIGTERM, and leave nothing in flight"):
        for worker in run.workers:
            worker.stop()
        expect(run.counts() == [0, 0, 0], f"available, in flight, delayed: {run.counts()}")
    with report.check("the queue is empty after another kill -9 of the broker"):
        broker.restart(kill=True)
        expect(run.counts() == [0, 0, 0], f"available, in flight, delayed: {run.counts()}")


def main(framework: Framework) -> None:
    sys.exit(check(framework))
