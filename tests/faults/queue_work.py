"""Workers of a queue, through boto3, that may be killed at any moment, and the journals that they leave.

As a process: `python -m tests.faults.queue_work FOLDER NAME URL…`. It works until the file `stop` is in the folder, and
takes poison for poison until the file `healed` is there. A line is in the journal before the next step is taken.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

WORK, DEAD = "work", "dead"
POISON = "poison"
MAX_RECEIVES = 3
PROBLEMS = (BotoCoreError, ClientError)
_READ_TIMEOUT_S = 30
_PAUSE_S = 0.1


def connect(url: str) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(
            retries={"max_attempts": 0}, connect_timeout=5, read_timeout=_READ_TIMEOUT_S, max_pool_connections=1
        ),
    )


class Endpoints:
    """A client of one of the brokers; of the next one, when that fails."""

    def __init__(self, urls: Sequence[str], seed: str) -> None:
        self._urls = list(urls)
        random.Random(seed).shuffle(self._urls)
        self._client: Any = None

    def __enter__(self) -> "Endpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self.next()

    @property
    def client(self) -> Any:
        if self._client is None:
            self._client = connect(self._urls[0])
        return self._client

    def url_of(self, queue: str) -> str:
        return f"{self._urls[0]}/000000000000/{queue}"

    def next(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        self._urls.append(self._urls.pop(0))


class Journal:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, event: str, **what: Any) -> None:
        line = json.dumps({"event": event, "at": time.monotonic(), **what}, separators=(",", ":"))
        os.write(self._fd, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


def work(
    name: str, urls: Sequence[str], journal: Journal, *, stopped: Callable[[], bool], healed: Callable[[], bool]
) -> None:
    """Receive, do the work and delete, until told to stop. Whatever fails is tried again."""
    chance = random.Random(name)
    with Endpoints(urls, name) as endpoints:
        while not stopped():
            try:
                _work_once(endpoints, journal, chance, is_healed=healed())
            except PROBLEMS:
                endpoints.next()
                time.sleep(_PAUSE_S)


def _work_once(endpoints: Endpoints, journal: Journal, chance: random.Random, *, is_healed: bool) -> None:
    client, url = endpoints.client, endpoints.url_of(WORK)
    asked = time.monotonic()
    got = client.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1, MessageSystemAttributeNames=["ApproximateReceiveCount"]
    ).get("Messages", [])
    done = []
    for message in got:
        count = int(message["Attributes"]["ApproximateReceiveCount"])
        journal.write("got", id=message["MessageId"], body=message["Body"], asked=asked, count=count)
        if is_healed or not message["Body"].startswith(POISON):
            done.append(message)
        elif chance.random() < 0.5:
            journal.write("back", id=message["MessageId"])
            client.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    if done:
        entries = [{"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]} for at, each in enumerate(done)]
        answer = client.delete_message_batch(QueueUrl=url, Entries=entries)
        for each in answer.get("Successful", []):
            message = done[int(each["Id"])]
            journal.write("deleted", id=message["MessageId"], body=message["Body"])


def events(folder: Path) -> Iterator[dict[str, Any]]:
    """What all workers have written so far. The last line of one that was killed may be cut off."""
    for path in sorted(folder.glob("*.journal")):
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


def main() -> None:
    folder, name, urls = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    journal = Journal(folder / f"{name}.journal")
    work(name, urls, journal, stopped=(folder / "stop").exists, healed=(folder / "healed").exists)


if __name__ == "__main__":
    main()
