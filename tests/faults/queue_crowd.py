"""Those who send to a queue and those who work on it, through boto3: threads and processes that can be killed."""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.faults.queue_work import PROBLEMS, WORK, Endpoints

PATIENCE_S = 600.0


class Sender(threading.Thread):
    """Sends everything, each ten messages until they are acknowledged, with a pause after them."""

    def __init__(self, urls: list[str], bodies: list[str], name: str, pause_s: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.acked: set[str] = set()
        self._urls = urls
        self._bodies = bodies
        self._name = name
        self._pause_s = pause_s
        self.is_stopped = False

    def run(self) -> None:
        with Endpoints(self._urls, self._name) as endpoints:
            for first in range(0, len(self._bodies), 10):
                some = self._bodies[first : first + 10]
                while not self.is_stopped and not self._sent(endpoints, some):
                    endpoints.next()
                    time.sleep(0.1)
                if self.is_stopped:
                    return
                time.sleep(self._pause_s)

    def _sent(self, endpoints: Endpoints, some: list[str]) -> bool:
        entries = [{"Id": str(at), "MessageBody": body} for at, body in enumerate(some)]
        try:
            answer = endpoints.client.send_message_batch(QueueUrl=endpoints.url_of(WORK), Entries=entries)
        except PROBLEMS:
            return False
        self.acked.update(some[int(each["Id"])] for each in answer.get("Successful", []))
        return len(answer.get("Successful", [])) == len(some)


class Workers:
    """Worker processes, which are killed and replaced."""

    def __init__(self, folder: Path, urls: Sequence[str], count: int) -> None:
        self._folder = folder
        self._urls = urls
        self._made = 0
        self._processes = [self._start() for _ in range(count)]

    def _start(self) -> "subprocess.Popen[bytes]":
        self._made += 1
        command = [sys.executable, "-m", "tests.faults.queue_work", str(self._folder), f"process-{self._made}"]
        return subprocess.Popen([*command, *self._urls])

    def kill_one(self, chance: random.Random) -> str:
        at = chance.randrange(len(self._processes))
        _end(self._processes[at])
        self._processes[at] = self._start()
        return f"worker {at}"

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        (self._folder / "stop").touch()
        for process in self._processes:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait(60)


@contextmanager
def sending(urls: list[str], wanted: list[str], count: int, *, pause_s: float = 0.0) -> Iterator[list[Sender]]:
    parts = [wanted[at::count] for at in range(count)]
    senders = [Sender(urls, part, f"sender-{at}", pause_s) for at, part in enumerate(parts)]
    for sender in senders:
        sender.start()
    try:
        yield senders
    finally:
        for sender in senders:
            sender.is_stopped = True
            sender.join(PATIENCE_S)
