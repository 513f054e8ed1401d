"""Copying a topic while the workers that copy, and the broker, are killed with SIGKILL at random."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.faults.promises import Outcome, compare
from tests.faults.transformer import RECONNECT
from tests.interop import raw_client
from tests.interop.subject import Subject

PARTITIONS = 4
WORKERS = 2
GROUP, SOURCE, TARGET = "copying", "source", "target"
_SAY_EVERY_S = 10.0
_STOP_WITHIN_S = 60.0
_STACKS_WITHIN_S = 1.0
_RECOVERS_WITHIN_S = 15.0


@dataclass(frozen=True)
class Plan:
    """How much is copied, and how often somebody dies."""

    count: int
    per_second: int
    kill_every_s: tuple[float, float]
    seed: int
    most_kills: int | None = None
    """After so many, all is left in peace; None goes on until everything is copied."""

    @property
    def patience_s(self) -> float:
        return 120 + 20 * self.count / self.per_second


@dataclass
class Toll:
    """Who was killed how often, and how many workers ended without being killed."""

    broker: int = 0
    worker: int = 0
    ended: int = 0

    @property
    def killed(self) -> int:
        return self.broker + self.worker

    @property
    def crashes(self) -> int:
        return self.killed + self.ended


@dataclass(frozen=True)
class Copy:
    outcome: Outcome
    toll: Toll
    aborted: int
    """Copies that were written and belong to no committed transaction."""
    seconds: float

    def __str__(self) -> str:
        killed = f"broker killed {self.toll.broker} times, workers {self.toll.worker} times ({self.toll.ended} ended)"
        found = f"{self.outcome.lost} lost, {self.outcome.repeated} repeated, {self.aborted} aborted"
        return f"{self.outcome.count:,} messages in {self.seconds:.0f} s: {killed}; {found}"


class Worker:
    """A process that copies: `module` with the broker, the group, the topics and its name, then `more`."""

    def __init__(self, broker: Subject, name: str, module: str, more: tuple[str, ...], log: Path) -> None:
        arguments = [broker.bootstrap, GROUP, SOURCE, TARGET, name, *more]
        self._command = [sys.executable, "-m", module, *arguments]
        self._log = log
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Let it finish what it has in hand. Raises if it does not end."""
        self._process.terminate()
        self._process.wait(_STOP_WITHIN_S)

    def show_stacks(self) -> None:
        """Have it write to its log where it is."""
        self._process.send_signal(signal.SIGUSR1)

    def keep_running(self) -> bool:
        """Start it again if it has ended; says whether it had."""
        if self._process.poll() is None:
            return False
        self._process = self._start()
        return True


class Source:
    """Writes numbers to the source topic, so many in a second, whatever happens to the broker.

    The last fifth waits until it is released, so that the copy is not done before enough were killed.
    """

    def __init__(self, broker: Subject, count: int, per_second: int) -> None:
        self._producer = Producer(
            {
                **RECONNECT,
                "bootstrap.servers": broker.bootstrap,
                "linger.ms": 20,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._count = count
        self._per_second = per_second
        self._unsent: int | None = None
        self._is_over = threading.Event()
        self._is_released = threading.Event()
        self._released_count = count * 4 // 5
        self._thread = threading.Thread(target=self._run, name="source", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        for number in range(self._count):
            if number % 100 == 0:
                self._producer.poll(0)
                if self._is_over.wait(max(0.0, began + number / self._per_second - time.monotonic())):
                    self._producer.purge()
                    return
            if number == self._released_count:
                self._producer.flush(120)
                self._is_released.wait()
            self._producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
        self._unsent = self._producer.flush(120)

    @property
    def released_count(self) -> int:
        return self._count if self._is_released.is_set() else self._released_count

    def release(self) -> None:
        self._is_released.set()

    def finish(self) -> None:
        """Wait until everything is stored."""
        self._thread.join()
        assert self._unsent == 0, f"{self._unsent} were not stored in the source"

    def stop(self) -> None:
        self._is_over.set()
        self._is_released.set()
        self._thread.join()


def committed(broker: Subject) -> int:
    """How many messages of the source the group has committed."""
    with raw_client.Connection(broker.bootstrap) as connection:
        answer = connection.call(
            raw_client.OFFSET_FETCH,
            7,
            group_id=GROUP,
            topics=[{"name": SOURCE, "partition_indexes": list(range(PARTITIONS))}],
            require_stable=False,
        )
        if answer.error_code != raw_client.Error.none:
            raise raw_client.Closed(f"the group is not there yet: {answer.error_code}")
        return sum(max(0, part.committed_offset) for topic in answer.topics for part in topic.partitions)


def read_numbers(broker: Subject, isolation: str) -> list[int]:
    """Everything in the target topic."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": isolation, "enable.auto.commit": False})
    numbers: list[int] = []
    with closing(consumer):
        consumer.assign([TopicPartition(TARGET, at, 0) for at in range(PARTITIONS)])
        left = set(range(PARTITIONS))
        until = time.monotonic() + 120
        while left:
            assert time.monotonic() < until, f"{len(numbers)} were read, and partitions {left} have no end"
            for message in consumer.consume(10_000, 0.2):
                if message.error() is None:
                    numbers.append(int(message.value()))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
    return numbers


@contextmanager
def running(broker: Subject, module: str, more: tuple[str, ...], folder: Path) -> Iterator[list[Worker]]:
    """Workers, which are gone afterwards; when something fails, what they wrote is shown."""
    logs = [folder / f"worker-{at}.log" for at in range(WORKERS)]
    workers = [Worker(broker, f"worker-{at}", module, more, log) for at, log in enumerate(logs)]
    try:
        yield workers
        for worker in workers:
            worker.stop()
    except BaseException:
        for worker in workers:
            worker.show_stacks()
        time.sleep(_STACKS_WITHIN_S)
        for log in logs:
            print(f"{log.name}:", *log.read_text(errors="replace").splitlines()[-60:], sep="\n")
        raise
    finally:
        for worker in workers:
            worker.kill()


def create_topics(broker: Subject) -> None:
    for topic in (SOURCE, TARGET):
        raw_client.create_topic(broker.bootstrap, topic, PARTITIONS)


def copy_under_kills(
    broker: Subject, plan: Plan, module: str, *more: str, folder: Path, say: Callable[[str], None]
) -> Copy:
    """Copy everything, and count what is there in the end."""
    create_topics(broker)
    began = time.monotonic()
    source = Source(broker, plan.count, plan.per_second)
    try:
        with running(broker, module, more, folder) as workers:
            toll = _kill_until_copied(broker, source, workers, plan, say)
        source.finish()
    finally:
        source.stop()
    found = read_numbers(broker, "read_committed")
    aborted = len(read_numbers(broker, "read_uncommitted")) - len(found)
    copy = Copy(compare(plan.count, found), toll, aborted, time.monotonic() - began)
    say(str(copy))
    return copy


def _kill_until_copied(
    broker: Subject, source: Source, workers: list[Worker], plan: Plan, say: Callable[[str], None]
) -> Toll:
    rng = random.Random(plan.seed)
    toll = Toll()
    began = said = time.monotonic()
    next_kill = began + rng.uniform(*plan.kill_every_s)
    done = done_before = 0
    while done < plan.count:
        now = time.monotonic()
        assert now - began < plan.patience_s, f"{done} of {plan.count} are done after {now - began:.0f} s, {toll}"
        toll.ended += sum(worker.keep_running() for worker in workers)
        # On a machine that is so busy that nothing has recovered yet, wait for that, or nothing would ever be done.
        is_recovered = done > done_before or done == source.released_count or now > next_kill + _RECOVERS_WITHIN_S
        if now > next_kill and is_recovered and toll.killed != plan.most_kills:
            _kill_one(broker, workers, toll, rng)
            next_kill, done_before = time.monotonic() + rng.uniform(*plan.kill_every_s), done
        if toll.killed >= (plan.most_kills or 2):
            source.release()
        try:
            done = committed(broker)
        except (OSError, raw_client.Closed):
            time.sleep(0.05)
            continue
        if now - said > _SAY_EVERY_S:
            said = now
            say(f"{done:,} of {plan.count:,} after {now - began:.0f} s, {toll}")
        time.sleep(0.05)
    return toll


def _kill_one(broker: Subject, workers: list[Worker], toll: Toll, rng: random.Random) -> None:
    """A worker first, then the broker, so that both are among the killed however few there are; then at random."""
    is_worker = toll.killed == 0 or (toll.killed > 1 and rng.random() < 0.5)
    if is_worker:
        victim = rng.choice(workers)
        victim.kill()
        victim.keep_running()
        toll.worker += 1
    else:
        broker.kill()
        broker.start()
        toll.broker += 1
