"""What is to be reached: each target is a ratio within one run, or a figure that holds on any machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.lab import BARE_SOURCES

Rounds = Sequence[Mapping[str, float]]
"""The figures of one variant, one mapping per round; a round that failed has none of the keys."""


_QUALIFIERS = {
    "server_cpu_ms_per_gb": ", CPU per GB",
    "server_cpu_us_per_request": ", CPU per request",
    "messages_cpu_s": ", per CPU second",
    "p99_ms": ", p99",
    "p999_ms": ", p99.9",
}
"""What a ratio is of, where it is not throughput."""


@dataclass(frozen=True)
class Target:
    workload: str
    metric: str
    over: str
    under: str | tuple[str, ...] | None = None
    """What it is divided by; of several, the better one. None: the figure itself is judged."""
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"
    every_round: bool = False
    """Whether each round has to meet it, in place of their median."""

    @property
    def text(self) -> str:
        if self.under is None:
            return f"{self.over}, {self.metric}"
        under = "the fastest bare" if isinstance(self.under, tuple) else self.under
        return f"{self.over} / {under}" + _QUALIFIERS.get(self.metric, "")

    @property
    def bound(self) -> str:
        if self.at_least is None and self.at_most is None:
            return "for information"
        text = f"≤ {self.at_most:g}" if self.at_least is None else f"≥ {self.at_least:g}"
        return f"{text} {self.unit}" + (", every round" if self.every_round else "")

    def is_met(self, value: float) -> bool | None:
        if self.at_least is not None:
            return value >= self.at_least
        return value <= self.at_most if self.at_most is not None else None


@dataclass(frozen=True)
class Verdict:
    target: Target
    values: tuple[float, ...]
    """One per round: numerator and denominator come from the same round."""
    note: str = ""

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def is_met(self) -> bool | None:
        if self.target.every_round:
            met = [self.target.is_met(value) for value in self.values]
            return None if None in met else all(met)
        return self.target.is_met(self.value)

    @property
    def word(self) -> str:
        return {True: "met", False: "**missed**", None: ""}[self.is_met]


def _throughput(workloads: Sequence[str], metric: str = "mb_s") -> list[Target]:
    found = []
    for workload in workloads:
        found += [
            Target(workload, metric, "headrace os", "kafka", at_least=1.3),
            Target(workload, "server_cpu_ms_per_gb", "headrace os", "kafka"),
            Target(workload, metric, "headrace os", "bare", at_least=0.6),
            Target(workload, metric, "headrace ack", "bare fdatasync", at_least=0.6),
            Target(workload, metric, "headrace ack", "kafka flush.messages=1", at_least=5.0),
            Target(workload, metric, "headrace ack", "kafka"),
        ]
    return found


_PRODUCE = ("produce-1k-1p", "produce-1k-12p", "produce-100b-1p", "produce-100b-12p")
_CONSUME = ("consume-1k-1p", "consume-1k-12p", "consume-100b-1p", "consume-100b-12p")
_CONSUME_COLD = ("consume-cold-1k-1p", "consume-cold-1k-12p")
_BARE_SOURCES = tuple(variant.label for variant in BARE_SOURCES)

TARGETS: list[Target] = [
    Target("ready", "ready_s", "headrace", at_most=1.0, unit="s"),
    Target("ready", "rss_mb", "headrace", at_most=100, unit="MB"),
    Target("restart", "ready_s", "headrace", at_most=1.5, unit="s"),
    *_throughput(_PRODUCE),
    Target("produce-1k-16k-batches", "mb_s", "headrace os", "kafka"),
    Target("produce-1k-16k-batches", "mb_s", "headrace ack", "kafka flush.messages=1"),
    *(
        target
        for workload in ("single-100b", "single-1k")
        for target in (
            Target(workload, "requests_s", "headrace os", at_least=25_000, unit="requests/s"),
            Target(workload, "server_cpu_us_per_request", "headrace os", at_most=25, unit="µs"),
            Target(workload, "requests_s", "headrace ack", at_least=25_000, unit="requests/s"),
            Target(workload, "server_cpu_us_per_request", "headrace ack", at_most=35, unit="µs"),
            Target(workload, "server_cpu_us_per_request", "headrace os", "kafka"),
            Target(workload, "requests_s", "headrace os", "kafka"),
            Target(workload, "requests_s", "headrace ack", "kafka flush.messages=1", at_least=5.0),
        )
    ),
    *(
        target
        for workload in (*_CONSUME, *_CONSUME_COLD)
        for target in (
            Target(workload, "mb_s", "headrace os", "kafka", at_least=1.0),
            Target(workload, "server_cpu_ms_per_gb", "headrace os", "kafka"),
            Target(workload, "mb_s", "headrace os", _BARE_SOURCES, at_least=0.8),
        )
    ),
    *(
        target
        for workload in ("client-produce-1k", "client-produce-100b")
        for target in (
            Target(workload, "messages_s", "headrace os", "kafka", at_least=1.0),
            Target(workload, "messages_s", "headrace ack", "kafka"),
        )
    ),
    Target("client-consume-1k", "messages_s", "headrace os", "kafka", at_least=1.0),
    Target("client-consume-100b", "messages_s", "headrace os", "kafka", at_least=1.0),
    *(
        Target(workload, metric, over, "kafka", at_most=1.0, every_round=True)
        for workload in ("latency", "latency-10k")
        for metric in ("p99_ms", "p999_ms")
        for over in ("headrace os", "headrace ack")
    ),
    Target("latency", "p99_ms", "headrace ack", "kafka flush.messages=1", at_most=1.0),
    Target("catch-up", "mb_s", "headrace os", "kafka", at_least=1.0),
    Target("catch-up", "produce_mb_s", "headrace os", "kafka"),
    Target("exactly-once", "messages_s", "headrace ack, exactly once", "headrace ack, at least once", at_least=0.7),
    Target("exactly-once", "messages_s", "headrace os, exactly once", "headrace os, at least once", at_least=0.7),
    Target("exactly-once", "messages_s", "headrace os, exactly once", "kafka, exactly once", at_least=1.0),
    Target("exactly-once", "messages_s", "headrace ack, exactly once", "kafka, exactly once"),
    Target("exactly-once", "messages_s", "kafka, exactly once", "kafka, at least once"),
    *(
        target
        for workload in ("queue-sqs-1", "queue-sqs-10")
        for target in (
            Target(workload, "messages_s", "headrace", "elasticmq h2", at_least=3.0),
            Target(workload, "messages_s", "headrace", "elasticmq", at_least=1.0),
        )
    ),
    Target("queue-sqs-1", "server_cpu_us_per_message", "headrace", at_most=200, unit="µs"),
    Target("queue-sqs-10", "server_cpu_us_per_message", "headrace", at_most=50, unit="µs"),
    Target("queue-work", "messages_s", "headrace", "rabbitmq quorum", at_least=4.0),
    Target("queue-work", "messages_s", "headrace", "redis appendfsync=always", at_least=2.0),
    Target("queue-memory", "mb_of_10m", "headrace", at_most=100, unit="MB"),
    Target("queue-memory", "fifo_mb_of_10m", "headrace", at_most=100, unit="MB"),
    Target("queue-memory", "many_groups_mb_of_10m", "headrace", at_most=250, unit="MB"),
    Target("queue-latency-sqs", "p99_ms", "headrace", at_most=10, unit="ms"),
    Target("queue-latency-client", "p99_ms", "headrace", at_most=5, unit="ms"),
    Target("queue-latency-client", "p99_ms", "headrace", "rabbitmq quorum"),
    Target("queue-backlog", "cpu_ratio", "headrace", at_most=1.2),
    *(
        target
        for workload in ("secure-produce", "secure-consume")
        for target in (
            Target(workload, "mb_s", "headrace tls", "kafka tls", at_least=1.0),
            Target(workload, "mb_s", "headrace scram+tls", "kafka scram+tls", at_least=1.0),
            Target(workload, "mb_s", "headrace tls", "headrace plain"),
            Target(workload, "mb_s", "kafka tls", "kafka plain"),
            Target(workload, "server_cpu_ms_per_gb", "headrace tls", "kafka tls"),
        )
    ),
    *(
        Target(workload, "server_cpu_us_per_request", "headrace acls on", "headrace acls off", at_most=1.03)
        for workload in ("secure-acls-produce", "secure-acls-consume")
    ),
    Target("secure-handshakes", "handshakes_s", "headrace tls", "kafka tls"),
    Target("secure-handshakes", "handshakes_s", "headrace scram+tls", "kafka scram+tls"),
    Target("secure-connections", "kb_per_connection", "headrace tls", "kafka tls"),
    Target("rebalance-classic", "beyond_s", "headrace", at_most=3.0, unit="s"),
    Target("rebalance-consumer", "beyond_s", "headrace", at_most=3.0, unit="s"),
    Target("groups", "load_s", "headrace", at_most=5.0, unit="s"),
    Target("groups", "rss_mb", "headrace", at_most=500, unit="MB"),
    *(
        target
        for workload in ("cluster-produce-1k", "cluster-produce-100b", "cluster-produce-single")
        for target in (
            Target(workload, "messages_cpu_s", "headrace os", "kafka", at_least=1.5),
            Target(workload, "messages_s", "headrace os", "kafka", at_least=1.0),
            Target(workload, "messages_s", "headrace ack", "kafka flush.messages=1", at_least=5.0),
            Target(workload, "messages_s", "headrace ack", "kafka"),
        )
    ),
    Target("cluster-latency", "p99_ms", "headrace os", "kafka", at_most=0.5),
    Target("cluster-latency", "p99_ms", "headrace ack", "kafka flush.messages=1"),
    Target("cluster-idle", "core_share", "headrace os", at_most=0.05, unit="cores"),
    Target("connections", "rss_mb", "headrace", at_most=200, unit="MB"),
    Target("open", "open_s", "headrace", at_most=5.0, unit="s"),
    Target("random-fetch", "cpu_ratio", "headrace os", at_most=1.5),
    Target("random-fetch", "p50_ratio", "headrace os", at_most=1.5),
    Target("memory", "growth", "headrace ack", at_most=1.1),
    *(
        target
        for workload in ("spark-read-100b", "spark-read-1k")
        for target in (
            Target(workload, "over_parquet", "headrace os", at_least=0.6),
            Target(workload, "over_tuples", "headrace os", at_least=4.0),
        )
    ),
    *(Target(f"spark-table-{size}", "over_parquet", "headrace os", at_least=0.6) for size in ("100b", "1k")),
    *(
        Target(f"spark-exactly-once-{what}", "over_at_least_once", "headrace ack", at_least=0.7)
        for what in ("copy", "count")
    ),
    Target("spark-floor", "over_rate", "headrace os", at_most=2.0),
    Target("spark-memory", "growth", "headrace os", at_most=1.2),
    Target("spark-kafka-copy", "over_jvm", "headrace os", at_least=0.8),
    Target("spark-kafka-count", "over_jvm", "headrace os", at_least=0.9),
    *(
        target
        for workload in ("decode-100b", "decode-1k")
        for target in (
            Target(workload, "messages_cpu_s", "columns", "aiokafka", at_least=2.0),
            Target(workload, "messages_s", "columns", "confluent", at_least=5.0),
            Target(workload, "messages_s", "fetch + columns", "confluent"),
        )
    ),
    *(
        target
        for workload in ("encode-100b", "encode-1k")
        for target in (
            Target(workload, "messages_cpu_s", "columns", "aiokafka"),
            Target(workload, "messages_s", "columns", "confluent"),
        )
    ),
    Target("avro", "messages_cpu_s", "blocks", "fastavro", at_least=8.0),
    Target("avro", "messages_cpu_s", "blocks", "fastavro to Arrow"),
    Target("protobuf", "messages_cpu_s", "blocks", "google.protobuf to Arrow", at_least=5.0),
    Target("protobuf", "messages_cpu_s", "blocks", "google.protobuf", at_least=3.0),
]


def judge(results: Mapping[str, Mapping[str, Rounds]]) -> list[Verdict]:
    """The verdicts that these results allow; `results` is by workload, then by variant."""
    verdicts = []
    for target in TARGETS:
        rows = results.get(target.workload, {})
        values = _values(target, rows)
        if values:
            verdicts.append(Verdict(target, values, _note(target, rows)))
    return verdicts


def _values(target: Target, rows: Mapping[str, Rounds]) -> tuple[float, ...]:
    over = rows.get(target.over, ())
    if target.under is None:
        return tuple(one[target.metric] for one in over if target.metric in one)
    names = target.under if isinstance(target.under, tuple) else (target.under,)
    values = []
    for number, one in enumerate(over):
        others = [rows[name][number] for name in names if len(rows.get(name, ())) > number]
        found = [other[target.metric] for other in others if other.get(target.metric)]
        if found and target.metric in one:
            values.append(one[target.metric] / max(found))
    return tuple(values)


def _note(target: Target, rows: Mapping[str, Rounds]) -> str:
    """Whether the load generator was the limit: then a rate says less about the server than its CPU time does."""
    busy = [one["client_busy"] for one in rows.get(target.over, ()) if "client_busy" in one]
    return "the client was the limit" if busy and median(busy) > 0.9 else ""
