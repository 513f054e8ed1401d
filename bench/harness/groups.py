"""Workloads about groups and transactions: exactly once against at least once, rebalances, many groups."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

from harness.lab import HEADRACE_ACK, HEADRACE_OS, KAFKA, Lab, Variant
from harness.workload import Metric, Result, Workload, preload


def _both(variant: Variant) -> tuple[Variant, Variant]:
    at_least_once = replace(variant, label=f"{variant.label}, at least once")
    return at_least_once, replace(variant, label=f"{variant.label}, exactly once")


class Transform(Workload):
    """One client reads a topic and writes another; every 100 ms it commits, in a transaction or without one."""

    name = "exactly-once"
    title = "Consume, transform, produce through confluent-kafka, 1 KiB messages, 4 partitions, a commit every 100 ms"
    metric = Metric("messages_s", "messages/s")
    shown = (
        Metric("commit_ms", "ms p50 of a commit", False),
        Metric("server_cpu_ms_per_gb", "ms CPU/GB", False),
        Metric("client_busy", "client busy", False),
    )
    variants = (*_both(HEADRACE_OS), *_both(HEADRACE_ACK), *_both(KAFKA))
    _partitions = 4

    def __init__(self) -> None:
        self._inputs: dict[str, str] = {}

    @contextmanager
    def prepared(self, lab: Lab, variant: Variant) -> Iterator[str]:
        """At least once and exactly once of one system read the same topic; the first of them fills it."""
        which = variant.label.partition(",")[0]
        if which in self._inputs:
            self._warm(lab, variant, self._inputs[which])
            yield self._inputs[which]
            return
        with lab.topic(variant, self._partitions) as topic:
            # The sixteenth part of a full batch: as producers make them that do not wait for full ones.
            loaded = preload(lab, variant, topic, self._partitions, 1024, 2 * lab.sizes.preload_bytes, batch=60)
            self._inputs[which] = json.dumps([topic, loaded])
            self._warm(lab, variant, self._inputs[which])
            yield self._inputs[which]

    def _warm(self, lab: Lab, variant: Variant, where: str) -> None:
        """No system is measured while it makes its internal topics and compiles what it has never done."""
        self._transform(lab, variant, where, 1.0)

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        return self._transform(lab, variant, topic, lab.sizes.seconds)

    def _transform(self, lab: Lab, variant: Variant, where: str, seconds: float) -> Result:
        source, messages = json.loads(where)
        with lab.topic(variant, self._partitions) as output:
            return lab.measure(
                variant,
                "client_kafka.py",
                "transform",
                topic=source,
                output=output,
                partitions=self._partitions,
                messages=messages,
                delivery="exactly-once" if variant.label.endswith("exactly once") else "at-least-once",
                seconds=seconds,
                warmup=lab.sizes.warmup_s,
            )


class Rebalance(Workload):
    """A tenth of a group leaves, then as many come. The figure is the worse of both, less the heartbeats waited for."""

    metric = Metric("beyond_s", "s beyond the delays", False)
    shown = (
        Metric("leave_s", "s after leaves", False),
        Metric("join_s", "s after joins", False),
        Metric("form_s", "s to form", False),
        Metric("server_cpu_s", "s CPU", False),
    )
    variants = (Variant("headrace", "headrace"), KAFKA)

    def __init__(self, name: str, protocol: str, members: int) -> None:
        self.name = name
        self._protocol = protocol
        self._members = members
        self._numbers = count(1)
        which = "classic" if protocol == "classic" else "consumer (KIP-848)"
        self.title = f"A rebalance of {members} members (raw connections that beat once a second), {which} protocol"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        partitions = 2 * self._members
        with lab.topic(variant, partitions) as topic:
            return lab.measure(
                variant,
                "groups.py",
                "rebalance",
                topic=topic,
                partitions=partitions,
                group=f"{self.name}-{next(self._numbers)}",
                protocol=self._protocol,
                members=self._members,
            )


class ManyGroups(Workload):
    """Groups of one member, each with offsets of its own; a clean stop; then from the start of the process until the
    coordinator knows all of them. Memory is the most of before and after."""

    name = "groups"
    metric = Metric("load_s", "s from start to loaded", False)
    shown = (
        Metric("ready_s", "s of these to ready", False),
        Metric("rss_mb", "MB resident", False),
        Metric("rss_mb_empty", "MB without groups", False),
        Metric("groups_s", "groups made/s"),
    )
    variants = (Variant("headrace", "headrace"), KAFKA)
    rounds = 1
    _partitions = 3

    def __init__(self, groups: int) -> None:
        self.title = f"{groups:,} groups of one member and {self._partitions} offsets each: memory, and time to load"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        system = lab.fresh(variant.system)
        empty = system.rss_bytes()
        with lab.topic(variant, self._partitions) as topic:
            what = {"topic": topic, "partitions": self._partitions, "groups": lab.sizes.groups}
            filled = lab.run("groups.py", "fill", port=system.port, **what)
            full = system.rss_bytes()
            system.stop()
            begin = time.perf_counter()
            system.start()
            lab.run("groups.py", "loaded", port=system.port, **what)
            load_s = time.perf_counter() - begin
            ready_s, loaded = system.ready_s, system.rss_bytes()
        lab.fresh(variant.system)
        return {
            "load_s": load_s,
            "ready_s": ready_s,
            "rss_mb": max(full, loaded) / 1e6,
            "rss_mb_empty": empty / 1e6,
            "groups_s": filled["groups_s"],
        }
