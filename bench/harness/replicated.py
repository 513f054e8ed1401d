"""What three brokers do: everything is replicated three times and acknowledged by all in sync, at least two of them.

The machine has to do all of it three times over, so the brokers' CPU time is compared as much as the clock.
"""

import time

from harness.clusters import BROKERS
from harness.lab import Lab, Variant
from harness.workload import Metric, Result, Workload, partitions_text, size_text

_IN_SYNC = {"min.insync.replicas": "2"}
_SETTLING_S = 5.0

HEADRACE_OS = Variant("headrace os", "headrace-3", {"flush.policy": "os", **_IN_SYNC}, replicas=BROKERS)
HEADRACE_ACK = Variant("headrace ack", "headrace-3", {"flush.policy": "ack", **_IN_SYNC}, replicas=BROKERS)
KAFKA = Variant("kafka", "kafka-3", _IN_SYNC, replicas=BROKERS)
KAFKA_SYNC = Variant("kafka flush.messages=1", "kafka-3", {"flush.messages": "1", **_IN_SYNC}, replicas=BROKERS)


class ClusterProduce(Workload):
    """As fast as one client goes with acks=all."""

    metric = Metric("messages_s", "messages/s")
    shown = (
        Metric("messages_cpu_s", "messages per CPU s, all brokers"),
        Metric("server_cpu_ms_per_gb", "ms CPU/GB, all brokers", False),
        Metric("client_busy", "client busy", False),
    )
    variants = (HEADRACE_OS, HEADRACE_ACK, KAFKA, KAFKA_SYNC)

    def __init__(self, name: str, message_bytes: int, partitions: int, batch_messages: int = 0) -> None:
        """`batch_messages` bounds what the client puts into a batch; 0: as much as it likes."""
        self.name = name
        self._message_bytes = message_bytes
        self._partitions = partitions
        self._batch_messages = batch_messages
        self.title = (
            f"Three brokers, three replicas: produce through confluent-kafka, {size_text(message_bytes)} messages, "
            f"{partitions_text(partitions)}, acks=all"
        ) + (f", {batch_messages} to a batch" if batch_messages else "")

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        with lab.topic(variant, self._partitions) as topic:
            return lab.measure(
                variant,
                "client_kafka.py",
                "produce",
                topic=topic,
                message_bytes=self._message_bytes,
                batch_messages=self._batch_messages,
                seconds=lab.sizes.seconds,
                warmup=lab.sizes.warmup_s,
            )


class ClusterLatency(Workload):
    name = "cluster-latency"
    title = "Three brokers, three replicas: end to end at 1,000 messages/s of 1 KiB, acks=all, from due to read"
    metric = Metric("p99_ms", "ms p99", False)
    shown = (Metric("p50_ms", "ms p50", False), Metric("p999_ms", "ms p99.9", False), Metric("max_ms", "ms max", False))
    variants = (HEADRACE_OS, HEADRACE_ACK, KAFKA, KAFKA_SYNC)

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        with lab.topic(variant, 1) as topic:
            options = {"topic": topic, "seconds": lab.sizes.latency_s, "warmup": 1.0, "rate": 1000}
            return lab.measure(variant, "client_kafka.py", "latency", **options)


class ClusterIdle(Workload):
    """What partitions cost when nothing flows: CPU time of all brokers over the time that passes."""

    name = "cluster-idle"
    metric = Metric("core_share", "of a core", False)
    shown = (Metric("rss_mb", "MB resident, all", False),)
    variants = (HEADRACE_OS, KAFKA)
    rounds = 1

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self.title = f"Three brokers with {partitions:,} partitions, three replicas each, when nothing flows"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        system = lab.system(variant.system)
        half = self._partitions // 2
        with lab.topic(variant, half), lab.topic(variant, self._partitions - half):
            time.sleep(_SETTLING_S)
            before, begin = system.cpu_s(), time.perf_counter()
            time.sleep(max(10.0, lab.sizes.latency_s))
            share = (system.cpu_s() - before) / (time.perf_counter() - begin)
            return {"core_share": share, "rss_mb": system.rss_bytes() / 1e6}
