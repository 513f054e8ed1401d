"""Workloads about what a broker takes: memory, time to start, connections, many partitions, large ones."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.lab import HEADRACE_ACK, HEADRACE_OS, KAFKA, Lab, MeasurementFailed, Variant, await_served
from harness.workload import OTHERS, Metric, Result, Workload, batch_messages, last_line, preload, result_of


class Ready(Workload):
    """From the start of the process on an empty data dir to the first answer, and its idle memory."""

    name = "ready"
    title = "Time to ready on an empty data dir, and idle memory"
    metric = Metric("ready_s", "s", False)
    shown = (Metric("rss_mb", "MB resident", False), Metric("idle_cpu_percent", "% CPU idle", False))
    variants = (Variant("headrace", "headrace"), KAFKA, *OTHERS)
    _settle_s = 3.0

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        system = lab.fresh(variant.system)
        time.sleep(1.0)
        cpu = system.cpu_s()
        time.sleep(self._settle_s)
        result = {
            "ready_s": system.ready_s,
            "rss_mb": system.rss_bytes() / 1e6,
            "idle_cpu_percent": (system.cpu_s() - cpu) / self._settle_s * 100,
        }
        system.stop()
        return result


class Restart(Workload):
    """From `kill -9` with 1,000 partitions, 20 of them written to, to ready again, by `restart.py`."""

    name = "restart"
    title = "Time to ready after kill -9, 1,000 partitions with 100 kB each, 20 of them written to"
    metric = Metric("ready_s", "s", False)
    shown = (Metric("cpu_s", "s CPU", False), Metric("clean_ready_s", "s after a clean stop", False))
    variants = (Variant("headrace", "headrace"),)
    rounds = 1

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        options = {"partitions": 1000, "written": 20, "rounds": lab.sizes.rounds}
        found: Any = lab.run("restart.py", "--work-dir", str(lab.work_dir), **options)
        # Each figure is a median with the least and the most.
        killed, clean = found["killed"], found["clean"]
        return {"ready_s": killed["ready_s"][0], "cpu_s": killed["cpu_s"][0], "clean_ready_s": clean["ready_s"][0]}


class MemoryFlat(Workload):
    """Resident memory while data passes through, produced and read at once: the last third against the first."""

    name = "memory"
    metric = Metric("growth", "x, last third to first", False)
    shown = (
        Metric("rss_mb_first", "MB in the first third", False),
        Metric("rss_mb_max", "MB at most", False),
        Metric("mb_s", "MB/s"),
    )
    variants = (HEADRACE_ACK, KAFKA)
    rounds = 1

    def __init__(self, gigabytes: float) -> None:
        self.title = f"Resident memory while {gigabytes:g} GB pass through, 12 partitions"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        total = lab.sizes.memory_bytes
        system = lab.fresh(variant.system)
        where = {"port": system.port, "partitions": 12, "seconds": 3600}
        with lab.topic(variant, 12) as topic:
            options = {"message_bytes": 1024, "batch_messages": batch_messages(1024), "connections": 2}
            with (
                lab.background("load.py", "consume", topic=topic, follow=True, **where),
                lab.background(
                    "load.py", "produce", topic=topic, max_bytes=total, warmup=0, **where, **options
                ) as load,
            ):
                samples = []
                while load.poll() is None:
                    samples.append(system.rss_bytes())
                    time.sleep(0.1)
                result = result_of(load)
        third = max(1, len(samples) // 3)
        first, last = samples[:third], samples[-third:]
        lab.fresh(variant.system)
        return {
            "growth": max(last) / max(first),
            "rss_mb_first": max(first) / 1e6,
            "rss_mb_max": max(samples) / 1e6,
            "mb_s": result["bytes"] / result["seconds"] / 1e6,
        }


class IdleConnections(Workload):
    metric = Metric("rss_mb", "MB resident", False)
    name = "connections"
    shown = (Metric("kb_per_connection", "kB/connection", False), Metric("alive", "answered afterwards"))
    variants = (Variant("headrace", "headrace"), KAFKA)
    rounds = 1

    def __init__(self, connections: int) -> None:
        self.title = f"Memory with {connections:,} idle connections"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        system = lab.fresh(variant.system)
        connections = lab.sizes.idle_connections
        before = system.rss_bytes()
        with lab.background("connections.py", "idle", port=system.port, connections=connections) as holder:
            assert holder.stdout is not None
            opened = holder.stdout.readline()
            if not opened:
                raise MeasurementFailed(f"connections: {last_line(holder)}")
            during = system.rss_bytes()
            alive = result_of(holder)["alive"]
        return {"rss_mb": during / 1e6, "kb_per_connection": (during - before) / connections / 1e3, "alive": alive}


class OpenPartitions(Workload):
    """A clean stop, then a start: the time until every partition can be read from again."""

    name = "open"
    metric = Metric("open_s", "s", False)
    shown = (Metric("stop_s", "s to stop", False), Metric("rss_mb", "MB resident", False))
    variants = (Variant("headrace", "headrace"), KAFKA)
    rounds = 1

    def __init__(self, partitions: int) -> None:
        self.title = f"Opening a data dir of {partitions:,} partitions after a clean stop"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        system = lab.fresh(variant.system)
        partitions = lab.sizes.open_partitions
        with lab.topic(variant, partitions) as topic:
            options = {"depth": 64, "batch_messages": 1, "warmup": 0, "max_bytes": partitions * 10 * 1024}
            lab.run("load.py", "produce", port=system.port, topic=topic, partitions=partitions, **options)
            stop_s = system.stop()
            begin = time.perf_counter()
            system.start()
            await_served(system.port, topic, partitions)
            open_s = time.perf_counter() - begin
            rss = system.rss_bytes()
        lab.fresh(variant.system)
        return {"open_s": open_s, "stop_s": stop_s, "rss_mb": rss / 1e6}


class RandomFetch(Workload):
    """The same fetch at random offsets of a large and of a small partition: the ratio is what size costs."""

    name = "random-fetch"
    metric = Metric("cpu_ratio", "x CPU, large to small", False)
    shown = (
        Metric("p50_ratio", "x time, large to small", False),
        Metric("large_cpu_us", "µs CPU, large", False),
        Metric("small_cpu_us", "µs CPU, small", False),
        Metric("large_p50_us", "µs p50, large", False),
        Metric("small_p50_us", "µs p50, small", False),
    )
    variants = (HEADRACE_OS, KAFKA)
    _batch = 60

    def __init__(self, gigabytes: float) -> None:
        self.title = f"A fetch of 64 KiB at random offsets of a {gigabytes:g} GB partition against a 64 MB one"

    @contextmanager
    def prepared(self, lab: Lab, variant: Variant) -> Iterator[str]:
        with lab.topic(variant, 1) as small, lab.topic(variant, 1) as large:
            ends = [
                preload(lab, variant, topic, 1, 1024, size, self._batch)
                for topic, size in ((small, 64_000_000), (large, lab.sizes.large_bytes))
            ]
            yield json.dumps([small, ends[0], large, ends[1]])

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        small, small_end, large, large_end = json.loads(topic)
        options = {"fetch_bytes": 65536, "count": 3000}
        result: Result = {}
        # The first pass of each brings the pages in; the second is the one that counts.
        for name, where, end in (("small", small, small_end), ("large", large, large_end)) * 2:
            one = lab.measure(variant, "load.py", "random", topic=where, end_offset=end, **options)
            result[f"{name}_cpu_us"] = one["server_cpu_us_per_request"]
            result[f"{name}_p50_us"] = one["p50_us"]
        result["cpu_ratio"] = result["large_cpu_us"] / max(result["small_cpu_us"], 0.1)
        result["p50_ratio"] = result["large_p50_us"] / result["small_p50_us"]
        return result
