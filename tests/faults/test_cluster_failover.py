"""How soon a producer gets answers again: after a leader was killed, and when one is stopped as planned.

The times are printed, with the settings that they depend on, and judged by whoever reads them: the goals are 5 s at the
99th percentile after a kill and 1 s for a planned stop, on a machine that does nothing else.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from headrace.wire import Cluster
from tests.faults.testbed import Testbed
from tests.faults.workload import PRODUCER
from tests.interop import subject

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not subject.IS_HEADRACE, reason="about a cluster of Headrace"),
]

TOPIC = "failover"
SETTINGS = {"broker.session.timeout.ms": 3000}
KILLS, STOPS = 50, 20
RESUMED_WITHIN_S = 60.0


class Sender:
    """An idempotent producer that sends a message every few milliseconds and notes when each was answered."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender")
        self._answers: list[tuple[float, float]] = []
        """When each was sent and when it was answered, in the order of the answers."""
        self.errors: list[str] = []

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            self._producer.produce(TOPIC, b"x" * 100, partition=0, on_delivery=self._answered(time.monotonic()))
            self._producer.poll(0)
        self._producer.flush(30)

    def _answered(self, sent_at: float) -> Callable[[object, Message], None]:
        def note(error: object, _: Message) -> None:
            if error is None:
                self._answers.append((sent_at, time.monotonic()))
            else:
                self.errors.append(str(error))

        return note

    def resumed_after(self, at: float) -> float:
        """How long after `at` the first message was answered that was sent after it. Waits for that."""
        end = at + RESUMED_WITHIN_S
        while time.monotonic() < end:
            later = [answered_at for sent_at, answered_at in self._answers if sent_at >= at]
            if later:
                return later[0] - at
            time.sleep(0.01)
        raise TimeoutError(f"nothing was acknowledged for {RESUMED_WITHIN_S:.0f} s; {self.errors[-3:]}")

    def longest_gap(self, since: float, until: float) -> float:
        """The longest time without an answer between the two."""
        times = [since, *(answered_at for _, answered_at in self._answers if since < answered_at < until), until]
        return max(later - earlier for earlier, later in pairwise(times))

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def sending(folder: Path) -> Iterator[tuple[Testbed, Sender]]:
    with Testbed(folder, settings=SETTINGS, with_network=False, with_disks=False) as bed:
        with Cluster(bed.cluster.bootstrap) as cluster:
            cluster.create_topic(TOPIC, partitions=1, replication_factor=3, settings={"min.insync.replicas": "2"})
        bed.cluster.await_in_sync()
        with Sender(bed.cluster.bootstrap) as sender:
            sender.resumed_after(time.monotonic())
            yield bed, sender


def percentiles(times_s: list[float]) -> str:
    ordered = sorted(times_s)
    marks = {"median": 0.5, "p90": 0.9, "p99": 0.99}
    parts = [f"{name} {ordered[min(len(ordered) - 1, int(len(ordered) * part))]:.2f} s" for name, part in marks.items()]
    return ", ".join([*parts, f"most {ordered[-1]:.2f} s"])


@pytest.mark.timeout(1800)
def test_producers_resume_after_a_leader_was_killed(tmp_path: Path, say: Callable[[str], None]) -> None:
    times_s = []
    with sending(tmp_path) as (bed, sender):
        for _ in range(KILLS):
            leader = bed.leader(TOPIC, 0)
            at = time.monotonic()
            bed.cluster.kill(leader)
            times_s.append(sender.resumed_after(at))
            bed.recover()
            sender.resumed_after(time.monotonic())
        assert not sender.errors
    say(f"{KILLS} kills of the leader, {SETTINGS}, client {PRODUCER}: resumed after {percentiles(times_s)}")


@pytest.mark.timeout(1800)
def test_producers_hardly_notice_a_planned_stop(tmp_path: Path, say: Callable[[str], None]) -> None:
    gaps_s = []
    with sending(tmp_path) as (bed, sender):
        for _ in range(STOPS):
            leader = bed.leader(TOPIC, 0)
            at = time.monotonic()
            assert bed.cluster.stop(leader) == 0
            stopped_at = time.monotonic()
            answered_at = stopped_at + sender.resumed_after(stopped_at)
            gaps_s.append(sender.longest_gap(at, answered_at))
            bed.recover()
            sender.resumed_after(time.monotonic())
        assert not sender.errors
    say(f"{STOPS} planned stops of the leader, {SETTINGS}: longest time without an answer {percentiles(gaps_s)}")
