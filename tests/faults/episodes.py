"""Faults one after the other while a workload runs, and the verdict in the end."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random

from headrace.testing.checkers import report
from headrace.testing.histories import Recorder
from headrace.wire import Cluster, WireError
from tests.faults.crowd import Crowd
from tests.faults.nemesis import FAULTS, ROLLING, Fault, Scene
from tests.faults.testbed import Testbed
from tests.faults.verdict import Verdict, conclude
from tests.faults.workload import PARTITIONS, TOPICS

PROGRESS, PROGRESS_WITHIN_S = 30, 180.0
PLACES = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
TOPIC_SETTINGS = {"segment.bytes": "262144", "min.insync.replicas": "2"}


def create_topics(bed: Testbed, settings: Mapping[str, str]) -> None:
    end = time.monotonic() + PROGRESS_WITHIN_S
    with Cluster(bed.cluster.bootstrap) as cluster:
        for topic in TOPICS:
            while True:
                try:
                    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3, settings=settings)
                    break
                except WireError:
                    # On a machine that is very busy a broker may have lost its lease for a moment.
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.2)
    bed.cluster.await_in_sync()


def await_progress(crowd: Crowd) -> None:
    """Wait until something more is acknowledged, on a cluster that has nothing wrong with it."""
    wanted, end = crowd.acked_count() + PROGRESS, time.monotonic() + PROGRESS_WITHIN_S
    while crowd.acked_count() < wanted:
        crowd.keep_running()
        assert time.monotonic() < end, f"nothing is acknowledged any more\n{crowd.what_they_said()}"
        time.sleep(0.05)


def run(
    bed: Testbed,
    folder: Path,
    faults: Iterable[str],
    *,
    seed: int,
    per_second: float,
    is_small: bool = False,
    topic_settings: Mapping[str, str] | None = None,
    others: Mapping[str, Fault] | None = None,
    check: Callable[[Testbed], None] | None = None,
    say: Callable[[str], None],
) -> Verdict:
    """These faults in this order, with rests between them in which all must come right again.

    `others` are faults of a test's own, by name; `check` is called after each fault.
    """
    known = {name: fault for name, (fault, _) in (FAULTS | ROLLING).items()} | dict(others or {})
    for need, reason in bed.lacks.items():
        say(f"without {need}: {reason}")
    create_topics(bed, {**TOPIC_SETTINGS, **(topic_settings or {})})
    with (
        Crowd(bed.cluster.bootstrap, folder, per_second=per_second, is_small=is_small) as crowd,
        Recorder(crowd.folder / "nemesis.jsonl", "nemesis") as record,
    ):
        scene = Scene(bed, crowd, PLACES, Random(seed), record)
        await_progress(crowd)
        for number, name in enumerate(faults, 1):
            fault = known[name]
            record.note("begin", name)
            began = time.monotonic()
            whom = fault(scene)
            lasted_s = time.monotonic() - began
            recovered_s = bed.recover()
            record.note("end", f"{name}: {whom}")
            await_progress(crowd)
            if check is not None:
                check(bed)
            say(f"{number}: {name} ({whom}) for {lasted_s:.1f} s, all in sync after {recovered_s:.1f} s")
        verdict = conclude(scene, crowd, say)
        say(str(verdict))
        if verdict.anomalies:
            say(f"{report(verdict.anomalies)}\n{crowd.what_they_said()}")
        return verdict
