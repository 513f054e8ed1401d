"""The work of `headrace bench`.

Payloads are random bytes, so that compression has nothing to win unless the client is asked to try. Latency is from
the call of the producer to the message in the consumer's hands, both in this process and on one clock.
"""

import os
import struct
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from headrace.cli.admin import REQUEST_TIMEOUT_S, Admin, cli_config, explain
from headrace.cli.errors import CommandFailed
from headrace.cli.output import human_bytes, human_duration, per_time, print_json, table
from headrace.cli.progress import ProgressLine

_STALLED_S = 30.0
_STAMP = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class BenchPlan:
    messages: int
    size_bytes: int
    batch_messages: int
    acks: str
    partitions: int
    compression: str
    rate: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Throughput:
    messages: int
    size_bytes: int
    seconds: float

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds

    @property
    def megabytes_per_s(self) -> float:
        return self.messages * self.size_bytes / self.seconds / 1e6


@dataclass(frozen=True, slots=True)
class Latency:
    messages: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


def run_bench(bootstrap: str, wanted: tuple[str, ...], plan: BenchPlan, topic: str | None, *, as_json: bool) -> None:
    broker = Admin(bootstrap)
    known = broker.cluster().topics
    name = topic or f"headrace-bench-{os.getpid()}"
    if name not in known:
        new = NewTopic(name, plan.partitions, replication_factor=-1)
        broker.wait(broker.call(broker.admin.create_topics, [new], operation_timeout=REQUEST_TIMEOUT_S)[name])
    results: dict[str, Throughput | Latency] = {}
    try:
        if "produce" in wanted or ("consume" in wanted and topic is None):
            produced = _produce(bootstrap, name, plan)
            if "produce" in wanted:
                results["produce"] = produced
        if "consume" in wanted:
            results["consume"] = _consume(broker, name, plan)
        if "latency" in wanted:
            results["latency"] = _latency(broker, name, plan)
    finally:
        if topic is None:
            broker.wait(broker.call(broker.admin.delete_topics, [name], operation_timeout=REQUEST_TIMEOUT_S)[name])
    _report(results, plan, as_json=as_json)


def _producer(bootstrap: str, plan: BenchPlan, linger_ms: float) -> Producer:
    return Producer(
        cli_config(
            bootstrap,
            acks=plan.acks,
            compression_type=plan.compression,
            linger_ms=linger_ms,
            batch_num_messages=plan.batch_messages,
            batch_size=max(1_000_000, min(plan.batch_messages * (plan.size_bytes + 64), 100_000_000)),
            queue_buffering_max_messages=200_000,
            queue_buffering_max_kbytes=512 * 1024,
            # Messages without a key go round-robin, so that every partition gets its share.
            sticky_partitioning_linger_ms=0,
            **({"message_max_bytes": plan.size_bytes + 4096} if plan.size_bytes > 900_000 else {}),
        )
    )


class _Failures:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.done = 0
        self.first: KafkaError | None = None

    def delivered(self, error: KafkaError | None, _: Any) -> None:
        self.done += 1
        self.first = self.first or error

    def check(self) -> None:
        if self.first is not None:
            raise CommandFailed(f"the broker did not take a message: {explain(self.first, self._bootstrap)}")


def _produce(bootstrap: str, topic: str, plan: BenchPlan) -> Throughput:
    producer = _producer(bootstrap, plan, linger_ms=20)
    failures = _Failures(bootstrap)
    payload = os.urandom(plan.size_bytes)
    # Callbacks cost as much as sending: only the last message of each batch, and the last of all, has one.
    with ProgressLine("sent", total=plan.messages) as progress:
        started = time.perf_counter()
        for number in range(1, plan.messages + 1):
            watched = number % plan.batch_messages == 0 or number == plan.messages
            callback = failures.delivered if watched else None
            while True:
                try:
                    producer.produce(topic, payload, on_delivery=callback)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % 10_000 == 0:
                producer.poll(0)
                progress.update(number, number * plan.size_bytes)
                failures.check()
        deadline = time.perf_counter() + _STALLED_S
        while (left := producer.flush(0.2)) and time.perf_counter() < deadline:
            progress.update(plan.messages - left, (plan.messages - left) * plan.size_bytes)
        seconds = time.perf_counter() - started
    failures.check()
    if left:
        raise CommandFailed(f"the broker did not acknowledge {left} messages within {_STALLED_S:.0f} s")
    return Throughput(plan.messages, plan.size_bytes, seconds)


def _consumer(bootstrap: str, **more: Any) -> Consumer:
    return Consumer(
        cli_config(
            bootstrap,
            group_id="headrace-cli-bench",
            enable_auto_commit=False,
            auto_offset_reset="error",
            queued_min_messages=500_000,
            queued_max_messages_kbytes=256 * 1024,
            fetch_message_max_bytes=10 * 1024 * 1024,
            **more,
        )
    )


def _consume(broker: Admin, topic: str, plan: BenchPlan) -> Throughput:
    partitions = broker.partitions(topic)
    first = broker.offsets(topic, partitions, OffsetSpec.earliest())
    end = broker.offsets(topic, partitions, OffsetSpec.latest())
    there = min(plan.messages, sum(end.values()) - sum(first.values()))
    if not there:
        raise CommandFailed(f"{topic} is empty: there is nothing to read")
    consumer = _consumer(broker.bootstrap)
    got = got_bytes = 0
    with ProgressLine("read", total=there) as progress:
        try:
            started = latest = time.perf_counter()
            consumer.assign([TopicPartition(topic, index, first[index]) for index in partitions])
            while got < there:
                batch = consumer.consume(10_000, 0.1)
                for message in batch:
                    if (error := message.error()) is not None:
                        raise CommandFailed(explain(error, broker.bootstrap))
                    got_bytes += len(message)
                got += len(batch)
                now = time.perf_counter()
                latest = now if batch else latest
                if now - latest > _STALLED_S:
                    raise CommandFailed(f"nothing came for {_STALLED_S:.0f} s after {got} of {there} messages")
                progress.update(got, got_bytes)
            seconds = time.perf_counter() - started
        finally:
            consumer.close()
    return Throughput(got, got_bytes // got, seconds)


def _latency(broker: Admin, topic: str, plan: BenchPlan) -> Latency:
    partitions = broker.partitions(topic)
    total = int(plan.rate * plan.seconds)
    producer = _producer(broker.bootstrap, plan, linger_ms=0)
    # A first message each way sets up connections and the producer's id: they are not part of what is measured.
    producer.produce(topic, b"")
    producer.flush(_STALLED_S)
    end = broker.offsets(topic, partitions, OffsetSpec.latest())
    consumer = _consumer(broker.bootstrap, fetch_wait_max_ms=500)
    consumer.assign([TopicPartition(topic, index, end[index]) for index in partitions])
    latencies_ms: list[float] = []
    failures = _Failures(broker.bootstrap)
    sender = threading.Thread(target=_send_at_rate, args=(producer, topic, plan, total, failures), daemon=True)
    with ProgressLine("back", total=total) as progress:
        try:
            consumer.poll(1.0)
            sender.start()
            deadline = time.perf_counter() + plan.seconds + _STALLED_S
            while len(latencies_ms) < total and time.perf_counter() < deadline:
                message = consumer.poll(0.1)
                failures.check()
                if message is None:
                    continue
                if (error := message.error()) is not None:
                    raise CommandFailed(explain(error, broker.bootstrap))
                (sent_ns,) = _STAMP.unpack_from(message.value())
                latencies_ms.append((time.perf_counter_ns() - sent_ns) / 1e6)
                if len(latencies_ms) % 200 == 0:
                    progress.update(len(latencies_ms), len(latencies_ms) * plan.size_bytes)
        finally:
            consumer.close()
    if len(latencies_ms) < total:
        raise CommandFailed(f"only {len(latencies_ms)} of {total} messages came back in time")
    return summarize(latencies_ms)


def _send_at_rate(producer: Producer, topic: str, plan: BenchPlan, total: int, failures: _Failures) -> None:
    rest = os.urandom(plan.size_bytes - _STAMP.size)
    started = time.perf_counter()
    for number in range(total):
        while (ahead_s := started + number / plan.rate - time.perf_counter()) > 0:
            producer.poll(min(ahead_s, 0.01))
        producer.produce(topic, _STAMP.pack(time.perf_counter_ns()) + rest, on_delivery=failures.delivered)
    producer.flush(_STALLED_S)


def summarize(latencies_ms: list[float]) -> Latency:
    ordered = sorted(latencies_ms)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    return Latency(len(ordered), at(0.5), at(0.99), at(0.999), ordered[-1])


def _report(results: dict[str, Throughput | Latency], plan: BenchPlan, *, as_json: bool) -> None:
    if as_json:
        print_json({"plan": asdict(plan), "results": {name: _as_dict(result) for name, result in results.items()}})
        return
    flows = [
        (
            name,
            f"{flow.messages:,}",
            human_duration(flow.seconds),
            *_speed(flow),
        )
        for name, flow in results.items()
        if isinstance(flow, Throughput)
    ]
    if flows:
        heads = ("", "MESSAGES", "TIME", "RATE", "THROUGHPUT")
        table(None, [(head, "right" if head else "left") for head in heads], flows)
    for result in results.values():
        if isinstance(result, Latency):
            print(
                f"latency at {per_time(plan.rate, 1, 'messages')}: p50 {result.p50_ms:.2f} ms, "
                f"p99 {result.p99_ms:.2f} ms, p99.9 {result.p999_ms:.2f} ms, max {result.max_ms:.2f} ms"
            )


def _speed(flow: Throughput) -> tuple[str, str]:
    """Messages and bytes in a second; a single message has no speed."""
    if flow.messages < 2:
        return "-", "-"
    size = human_bytes(flow.messages * flow.size_bytes / flow.seconds)
    return per_time(flow.messages, flow.seconds, "messages"), f"{size}/s"


def _as_dict(result: Throughput | Latency) -> dict[str, float]:
    rates = {}
    if isinstance(result, Throughput):
        rates = {"messages_per_s": result.messages_per_s, "megabytes_per_s": result.megabytes_per_s}
    return {**asdict(result), **rates}
