"""Workloads of queues: over the SQS API beside ElasticMQ, and through the SDK beside RabbitMQ and Redis."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import ClassVar

from harness.lab import ELASTICMQ, ELASTICMQ_H2, HEADRACE, RABBITMQ_QUORUM, REDIS_ALWAYS, Lab, Variant
from harness.workload import Metric, Result, Workload

_CONNECTIONS = 64
_FILLED_BY = 100
_WARM_UP_S = 3.0
_FASTER = 1.05
_TARGET_MESSAGES = 10_000_000
"""The targets for memory are for so many; fewer are measured for information."""

_numbers = count(1)


def _name() -> str:
    return f"queue-{next(_numbers):06d}"


class SqsCycle(Workload):
    """Sixty-four connections, each of which sends, receives and deletes, one request at a time."""

    metric = Metric("messages_s", "messages/s")
    shown = (
        Metric("requests_s", "requests/s"),
        Metric("server_cpu_us_per_message", "µs CPU/message", False),
        Metric("client_busy", "client busy", False),
    )
    variants = (HEADRACE, ELASTICMQ_H2, ELASTICMQ)

    def __init__(self, name: str, batch: int) -> None:
        self.name = name
        self._batch = batch
        how = "one at a time" if batch == 1 else f"{batch} to a request"
        self.title = f"Send, receive and delete through the SQS API, 100 B messages, {how}"

    @contextmanager
    def prepared(self, lab: Lab, variant: Variant) -> Iterator[str]:
        """The same load before it counts, until it gets no faster: a JIT compiler needs half a minute and more."""
        name = _name()
        options = {"topic": name, "batch": self._batch, "warmup": 0, "seconds": _WARM_UP_S, "connections": _CONNECTIONS}
        best, no_faster = 0.0, 0
        for _ in range(lab.sizes.queue_warm_ups):
            rate = lab.measure(variant, "queue_load.py", "cycle", over_http=True, **options)["messages_s"]
            no_faster = 0 if rate > best * _FASTER else no_faster + 1
            best = max(best, rate)
            if no_faster == 2:
                break
        yield name

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        sizes = lab.sizes
        options = {"topic": topic, "batch": self._batch, "connections": _CONNECTIONS}
        options |= {"seconds": sizes.seconds, "warmup": sizes.warmup_s}
        return lab.measure(variant, "queue_load.py", "cycle", over_http=True, **options)


class QueueWork(Workload):
    """Sent with a confirmation, received, acknowledged, all in one process through each system's Python client."""

    name = "queue-work"
    title = "Work through a queue with the Python client: confirmed, received, acknowledged; 100 B messages"
    metric = Metric("messages_s", "messages/s")
    shown = (Metric("server_cpu_us_per_message", "µs CPU/message", False), Metric("client_busy", "client busy", False))
    variants = (HEADRACE, RABBITMQ_QUORUM, REDIS_ALWAYS)

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        peer = variant.system.partition("-")[0]
        options = {"topic": _name(), "seconds": lab.sizes.seconds, "warmup": lab.sizes.warmup_s}
        return lab.measure(variant, "client_queues.py", peer, "work", **options)


class QueueLatency(Workload):
    """From the moment a message is due to the moment a receiver that waits has it, at 100 messages a second."""

    metric = Metric("p99_ms", "ms p99", False)
    shown = (Metric("p50_ms", "ms p50", False), Metric("p999_ms", "ms p99.9", False), Metric("max_ms", "ms max", False))

    def __init__(self, name: str, variants: tuple[Variant, ...], *, over_http: bool) -> None:
        self.name = name
        self.variants = variants
        self._over_http = over_http
        how = "the SQS API" if over_http else "the Python client"
        self.title = f"From send to a receiver that waits, 100 messages/s of 100 B, through {how}"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        options = {"topic": _name(), "seconds": lab.sizes.latency_s, "warmup": 1.0, "rate": 100}
        if self._over_http:
            return lab.measure(variant, "queue_load.py", "latency", over_http=True, **options)
        peer = variant.system.partition("-")[0]
        return lab.measure(variant, "client_queues.py", peer, "latency", **options)


class QueueBacklog(Workload):
    """The same cycle in queues with more and more messages: what one costs is what size costs."""

    name = "queue-backlog"
    metric = Metric("cpu_ratio", "x CPU, largest to smallest", False)
    variants = (HEADRACE,)
    rounds = 3

    def __init__(self, backlogs: tuple[int, ...]) -> None:
        self._backlogs = backlogs
        shown = ", ".join(f"{size:,}" for size in backlogs)
        self.title = f"Send, receive and delete, 10 to a request, with {shown} messages in the backlog"
        self.shown = (
            Metric("rate_ratio", "x messages/s, largest to smallest"),
            *(Metric(f"cpu_us_{size}", f"µs CPU, {size:,}", False) for size in backlogs),
            *(Metric(f"messages_s_{size}", f"messages/s, {size:,}") for size in backlogs),
            Metric("rss_mb", "MB in the end", False),
        )

    @contextmanager
    def prepared(self, lab: Lab, variant: Variant) -> Iterator[str]:
        """A queue of each size, filled by a Kafka producer, which is quicker than any API of queues."""
        lab.fresh(variant.system)
        system = lab.system(variant.system)
        prefix = _name()
        for size in self._backlogs:
            name = f"{prefix}-{size}"
            lab.run("queue_load.py", "create", port=system.http_port, topic=name)
            # In batches of the same size, for whole ones are read when their first message is received.
            wanted = {"message_bytes": 100, "batch_messages": _FILLED_BY, "max_bytes": (size - _FILLED_BY // 2) * 100}
            depth = min(64, max(1, size // _FILLED_BY // 2))
            lab.run("load.py", "produce", port=system.port, topic=name, warmup=0, seconds=3600, depth=depth, **wanted)
        yield prefix

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        result: Result = {}
        sizes = lab.sizes
        # The first pass of each brings the pages in; the second is the one that counts.
        for size in self._backlogs * 2:
            options = {"topic": f"{topic}-{size}", "seconds": sizes.seconds, "warmup": sizes.warmup_s}
            one = lab.measure(variant, "queue_load.py", "cycle", over_http=True, **options)
            result[f"cpu_us_{size}"] = one["server_cpu_us_per_message"]
            result[f"messages_s_{size}"] = one["messages_s"]
        smallest, largest = self._backlogs[0], self._backlogs[-1]
        result["cpu_ratio"] = result[f"cpu_us_{largest}"] / result[f"cpu_us_{smallest}"]
        result["rate_ratio"] = result[f"messages_s_{largest}"] / result[f"messages_s_{smallest}"]
        result["rss_mb"] = lab.system(variant.system).rss_bytes() / 1e6
        return result


class QueueMemory(Workload):
    """What the messages of one queue cost in memory, by `queue_memory.py`, which needs no broker."""

    name = "queue-memory"
    metric = Metric("mb", "MB, delays, TTLs and priorities", False)
    shown = (
        Metric("fifo_mb", "MB, 10,000 FIFO groups", False),
        Metric("many_groups_mb", "MB, 1,000,000 groups", False),
    )
    variants = (HEADRACE,)
    rounds = 1
    _kinds: ClassVar = {
        "mb": "delays, ttls, priorities",
        "fifo_mb": "fifo, 10,000 groups",
        "many_groups_mb": "fifo, 1,000,000 groups",
    }

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self.title = f"Memory of a queue with {messages:,} messages"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        result: Result = {}
        for key, kind in self._kinds.items():
            result[key] = lab.run("queue_memory.py", "--json", only=kind, messages=self._messages)["mb"]
            if self._messages >= _TARGET_MESSAGES:
                result[f"{key}_of_10m"] = result[key]
        return result


def queue_workloads(backlogs: tuple[int, ...], messages: int) -> list[Workload]:
    return [
        SqsCycle("queue-sqs-1", 1),
        SqsCycle("queue-sqs-10", 10),
        QueueWork(),
        QueueLatency("queue-latency-sqs", (HEADRACE, ELASTICMQ_H2, ELASTICMQ), over_http=True),
        QueueLatency("queue-latency-client", (HEADRACE, RABBITMQ_QUORUM, REDIS_ALWAYS), over_http=False),
        QueueBacklog(backlogs),
        QueueMemory(messages),
    ]
