"""Every workload: throughput and latency here, groups in `groups.py`, queues in `queues.py`, what a broker takes in
`footprint.py`, records as columns in `codec.py`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness import wire
from harness.codec import Avro, Codec, Protobuf
from harness.footprint import IdleConnections, MemoryFlat, OpenPartitions, RandomFetch, Ready, Restart
from harness.groups import ManyGroups, Rebalance, Transform
from harness.lab import (
    BARE,
    BARE_SOURCES,
    BARE_SYNC,
    HEADRACE_ACK,
    HEADRACE_OS,
    KAFKA,
    KAFKA_SYNC,
    Lab,
    Variant,
)
from harness.queues import queue_workloads
from harness.replicated import ClusterIdle, ClusterLatency, ClusterProduce
from harness.security import security_workloads
from harness.spark import SparkFloor, SparkKafka, SparkMemory, SparkRead, SparkSink, SparkTable
from harness.systems import Bare, evict
from harness.workload import (
    BATCH_BYTES,
    OTHERS,
    Metric,
    Result,
    Workload,
    batch_messages,
    drive_peer,
    partitions_text,
    preload,
    result_of,
    size_text,
)


class Produce(Workload):
    """Full batches as fast as they are acknowledged, two connections with five requests in flight each."""

    metric = Metric("mb_s", "MB/s")
    shown = (Metric("server_cpu_ms_per_gb", "ms CPU/GB", False), Metric("client_busy", "client busy", False))

    def __init__(self, name: str, message_bytes: int, partitions: int, batch_bytes: int = BATCH_BYTES) -> None:
        self.name = name
        self._message_bytes = message_bytes
        self._partitions = partitions
        self._batch = batch_messages(message_bytes, batch_bytes)
        size = f"{batch_bytes // 1024} KiB batches"
        self.title = f"Produce, {size_text(message_bytes)} messages in {size}, {partitions_text(partitions)}"
        others = OTHERS if partitions == 1 and batch_bytes == BATCH_BYTES else ()
        self.variants = (HEADRACE_OS, HEADRACE_ACK, KAFKA, KAFKA_SYNC, BARE, BARE_SYNC, *others)

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        sizes = lab.sizes
        with lab.topic(variant, self._partitions) as topic:
            if variant in OTHERS:
                return drive_peer(lab, variant, "produce", topic, self._message_bytes)
            return lab.measure(
                variant,
                "load.py",
                "produce",
                topic=topic,
                partitions=self._partitions,
                connections=2,
                depth=5,
                message_bytes=self._message_bytes,
                batch_messages=self._batch,
                seconds=sizes.seconds,
                warmup=sizes.warmup_s,
                max_bytes=sizes.max_bytes,
            )


class Single(Workload):
    """One message per request: the cost of a request. Four connections with 64 requests in flight each."""

    metric = Metric("requests_s", "requests/s")
    shown = (Metric("server_cpu_us_per_request", "µs CPU/request", False), Metric("client_busy", "client busy", False))
    variants = (HEADRACE_OS, HEADRACE_ACK, KAFKA, KAFKA_SYNC, BARE, BARE_SYNC)

    def __init__(self, name: str, message_bytes: int) -> None:
        self.name = name
        self._message_bytes = message_bytes
        self.title = f"One message of {size_text(message_bytes)} per request, pipelined, 1 partition"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        with lab.topic(variant, 1) as topic:
            return lab.measure(
                variant,
                "load.py",
                "produce",
                topic=topic,
                connections=4,
                depth=64,
                message_bytes=self._message_bytes,
                batch_messages=1,
                seconds=lab.sizes.seconds,
                warmup=lab.sizes.warmup_s,
            )


class Consume(Workload):
    """Fetches of 1 MiB per partition, two connections with one in flight each; the data is in the page cache."""

    metric = Metric("mb_s", "MB/s")
    shown = (Metric("server_cpu_ms_per_gb", "ms CPU/GB", False), Metric("client_busy", "client busy", False))

    def __init__(self, name: str, message_bytes: int, partitions: int) -> None:
        self.name = name
        self._message_bytes = message_bytes
        self._partitions = partitions
        self.title = f"Consume, {size_text(message_bytes)} messages in full batches, {partitions_text(partitions)}"
        self._messages: dict[str, int] = {}
        others = OTHERS if partitions == 1 else ()
        self.variants = (HEADRACE_OS, KAFKA, *BARE_SOURCES, *others)

    @contextmanager
    def prepared(self, lab: Lab, variant: Variant) -> Iterator[str]:
        with lab.topic(variant, self._partitions) as topic:
            if variant.is_bare:
                write_file(lab, variant, self._partitions, self._message_bytes, lab.sizes.preload_bytes)
            elif variant in OTHERS:
                filled = drive_peer(lab, variant, "produce", topic, self._message_bytes)
                self._messages[variant.label] = int(filled["messages_total"])
            else:
                preload(lab, variant, topic, self._partitions, self._message_bytes, lab.sizes.preload_bytes)
            yield topic
            if variant.is_bare:
                lab.made(variant.system).stop()
                lab.made(variant.system).clear()

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        if variant in OTHERS:
            messages = self._messages[variant.label]
            return drive_peer(lab, variant, "consume", topic, self._message_bytes, max_messages=messages)
        return lab.measure(
            variant,
            "load.py",
            "consume",
            topic=topic,
            partitions=self._partitions,
            connections=2,
            seconds=lab.sizes.seconds,
            warmup=lab.sizes.warmup_s,
            opaque=variant.is_bare,
        )


class ConsumeCold(Workload):
    """The whole topic once from the disk, one connection with one fetch of 1 MiB per partition in flight."""

    metric = Metric("mb_s", "MB/s")
    shown = (Metric("server_cpu_ms_per_gb", "ms CPU/GB", False), Metric("client_busy", "client busy", False))
    variants = (HEADRACE_OS, KAFKA, *BARE_SOURCES)

    def __init__(self, name: str, message_bytes: int, partitions: int) -> None:
        self.name = name
        self._message_bytes = message_bytes
        self._partitions = partitions
        size, count = size_text(message_bytes), partitions_text(partitions)
        self.title = f"Consume what is not in the page cache, {size} messages in full batches, {count}"

    @contextmanager
    def prepared(self, lab: Lab, variant: Variant) -> Iterator[str]:
        with lab.topic(variant, self._partitions) as topic:
            size = lab.sizes.cold_bytes
            if variant.is_bare:
                write_file(lab, variant, self._partitions, self._message_bytes, size)
            else:
                preload(lab, variant, topic, self._partitions, self._message_bytes, size)
            yield topic
            if variant.is_bare:
                lab.made(variant.system).stop()
                lab.made(variant.system).clear()

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        evict(lab.system(variant.system).dir)
        return lab.measure(
            variant,
            "load.py",
            "consume",
            topic=topic,
            partitions=self._partitions,
            seconds=3600,
            warmup=0,
            # It ends before the end, where a server would begin again with what is in the page cache by then.
            max_bytes=lab.sizes.cold_bytes * 9 // 10,
            opaque=variant.is_bare,
        )


def write_file(lab: Lab, variant: Variant, partitions: int, message_bytes: int, total_bytes: int) -> None:
    """Give a bare server a file with so many bytes of batches, and start it."""
    system = lab.made(variant.system)
    assert isinstance(system, Bare)
    system.stop()
    batch = wire.record_batch(message_bytes, batch_messages(message_bytes), int(time.time() * 1000))
    with system.file.open("wb") as file:
        for _ in range(total_bytes // len(batch) + 1):
            file.write(batch)
    system.piece_bytes = partitions << 20
    lab.system(variant.system)


class ClientProduce(Workload):
    metric = Metric("messages_s", "messages/s")
    shown = (Metric("server_cpu_ms_per_gb", "ms CPU/GB", False), Metric("client_busy", "client busy", False))
    variants = (HEADRACE_OS, HEADRACE_ACK, KAFKA)

    def __init__(self, name: str, message_bytes: int) -> None:
        self.name = name
        self._message_bytes = message_bytes
        self.title = f"Produce through confluent-kafka, {size_text(message_bytes)} messages, 1 partition, acks=all"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        with lab.topic(variant, 1) as topic:
            return lab.measure(
                variant,
                "client_kafka.py",
                "produce",
                topic=topic,
                message_bytes=self._message_bytes,
                seconds=lab.sizes.seconds,
                warmup=lab.sizes.warmup_s,
            )


class ClientConsume(Workload):
    metric = Metric("messages_s", "messages/s")
    shown = (Metric("server_cpu_ms_per_gb", "ms CPU/GB", False), Metric("client_busy", "client busy", False))
    variants = (HEADRACE_OS, KAFKA)

    def __init__(self, name: str, message_bytes: int) -> None:
        self.name = name
        self._message_bytes = message_bytes
        self.title = f"Consume through confluent-kafka, {size_text(message_bytes)} messages, 1 partition"
        self._messages: dict[str, int] = {}

    @contextmanager
    def prepared(self, lab: Lab, variant: Variant) -> Iterator[str]:
        with lab.topic(variant, 1) as topic:
            loaded = preload(lab, variant, topic, 1, self._message_bytes, lab.sizes.preload_bytes)
            self._messages[variant.label] = loaded
            yield topic

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        messages = min(self._messages[variant.label], 2_000_000)
        return lab.measure(variant, "client_kafka.py", "consume", topic=topic, messages=messages)


class Latency(Workload):
    """From the moment a message is due to the moment the consumer has it, at so many messages of 1 KiB a second."""

    metric = Metric("p99_ms", "ms p99", False)
    shown = (Metric("p50_ms", "ms p50", False), Metric("p999_ms", "ms p99.9", False), Metric("max_ms", "ms max", False))

    def __init__(self, name: str, rate: int, others: tuple[Variant, ...] = ()) -> None:
        self.name = name
        self._rate = rate
        self.title = f"End to end at {rate:,} messages/s of 1 KiB, from due to read"
        self.variants = (HEADRACE_OS, HEADRACE_ACK, KAFKA, KAFKA_SYNC, *others)

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        with lab.topic(variant, 1) as topic:
            options = {"topic": topic, "seconds": lab.sizes.latency_s, "warmup": 1.0, "rate": self._rate}
            if variant in OTHERS:
                return lab.measure(variant, "client_peers.py", variant.system, "latency", **options)
            return lab.measure(variant, "client_kafka.py", "latency", **options)


class CatchUp(Workload):
    """A consumer reads what is stored while a producer goes at full speed; both are counted."""

    name = "catch-up"
    title = "Catch-up read while producing, 1 KiB messages in full batches, 1 partition"
    metric = Metric("mb_s", "MB/s read")
    shown = (Metric("produce_mb_s", "MB/s produced"), Metric("server_cpu_s", "s CPU", False))
    variants = (HEADRACE_OS, HEADRACE_ACK, KAFKA)

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        sizes = lab.sizes
        with lab.topic(variant, 1) as topic:
            preload(lab, variant, topic, 1, 1024, sizes.preload_bytes)
            port = lab.system(variant.system).port
            options = {"message_bytes": 1024, "batch_messages": batch_messages(1024), "connections": 1}
            length_s = sizes.seconds + 1.0
            with lab.background(
                "load.py", "produce", port=port, topic=topic, seconds=length_s, warmup=sizes.warmup_s, **options
            ) as producer:
                result = lab.measure(
                    variant, "load.py", "consume", topic=topic, seconds=sizes.seconds, warmup=sizes.warmup_s
                )
                produced = result_of(producer)
            result["produce_mb_s"] = produced["bytes"] / produced["seconds"] / 1e6
            return result


def all_workloads(lab: Lab) -> list[Workload]:
    sizes = lab.sizes
    return [
        Ready(),
        Restart(),
        Produce("produce-1k-1p", 1024, 1),
        Produce("produce-1k-12p", 1024, 12),
        Produce("produce-100b-1p", 100, 1),
        Produce("produce-100b-12p", 100, 12),
        Produce("produce-1k-16k-batches", 1024, 1, 16 * 1024),
        Single("single-100b", 100),
        Single("single-1k", 1024),
        Consume("consume-1k-1p", 1024, 1),
        Consume("consume-1k-12p", 1024, 12),
        Consume("consume-100b-1p", 100, 1),
        Consume("consume-100b-12p", 100, 12),
        ConsumeCold("consume-cold-1k-1p", 1024, 1),
        ConsumeCold("consume-cold-1k-12p", 1024, 12),
        ClientProduce("client-produce-1k", 1024),
        ClientProduce("client-produce-100b", 100),
        ClientConsume("client-consume-1k", 1024),
        ClientConsume("client-consume-100b", 100),
        Latency("latency", 1000, OTHERS),
        Latency("latency-10k", 10_000),
        CatchUp(),
        Transform(),
        *queue_workloads(sizes.queue_backlogs, sizes.queue_messages),
        Rebalance("rebalance-classic", "classic", sizes.group_members),
        Rebalance("rebalance-consumer", "consumer", sizes.group_members),
        ManyGroups(sizes.groups),
        *security_workloads(sizes.secure_connections),
        IdleConnections(sizes.idle_connections),
        OpenPartitions(sizes.open_partitions),
        RandomFetch(sizes.large_bytes / 1e9),
        MemoryFlat(sizes.memory_bytes / 1e9),
        ClusterProduce("cluster-produce-1k", 1024, 6),
        ClusterProduce("cluster-produce-100b", 100, 6),
        ClusterProduce("cluster-produce-single", 1024, 6, batch_messages=1),
        ClusterLatency(),
        ClusterIdle(sizes.idle_partitions),
        SparkRead(100),
        SparkRead(1024),
        SparkTable(100),
        SparkTable(1024),
        SparkSink("copy"),
        SparkSink("count"),
        SparkFloor(),
        SparkMemory(sizes.memory_bytes / 1e9),
        SparkKafka("copy", "copied"),
        SparkKafka("count", "counted by key"),
        Codec("decode", 100),
        Codec("decode", 1024),
        Codec("encode", 100),
        Codec("encode", 1024),
        Avro(),
        Protobuf(),
    ]
