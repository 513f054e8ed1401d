"""The same load through a real client, librdkafka, for all that speak the Kafka protocol. Prints one line of JSON.

client_kafka.py produce ...    as fast as the client goes, acks=all, librdkafka's own batching
client_kafka.py consume ...    the whole topic from the first offset
client_kafka.py latency ...    a fixed rate; the time from the moment a message was due to the moment it was read
client_kafka.py transform ...  reads one topic and writes another, at least once or exactly once
"""

import argparse
import json
import resource
import sys
import threading
import time
from typing import Any
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from harness import wire


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def percentiles(latencies_ns: list[int]) -> dict[str, float]:
    ordered = sorted(latencies_ns)
    if not ordered:
        raise RuntimeError("no message came back")

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999), "max_ms": ordered[-1] / 1e6}


def _producer(args: argparse.Namespace, **more: Any) -> Producer:
    config = {
        "bootstrap.servers": f"127.0.0.1:{args.port}",
        "acks": "all",
        "socket.nagle.disable": True,
        "queue.buffering.max.messages": 1_000_000,
        **more,
    }
    return Producer(config)


def _consumer(args: argparse.Namespace, offset: int, **more: Any) -> Consumer:
    # No group is joined: partitions are assigned by hand, so only reading is measured. A full queue is looked at again
    # after 10 ms and not after a second, which would punish the broker that filled it first.
    config = {
        "bootstrap.servers": f"127.0.0.1:{args.port}",
        "group.id": "bench",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "fetch.queue.backoff.ms": 10,
        "socket.nagle.disable": True,
        **more,
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(args.topic, partition, offset) for partition in range(args.partitions)])
    return consumer


def produce(args: argparse.Namespace) -> dict[str, float]:
    limits: dict[str, Any] = {}
    if args.batch_messages:
        # Few enough under way that even a slow broker answers all of them at the end.
        limits = {"batch.num.messages": args.batch_messages, "linger.ms": 0, "queue.buffering.max.messages": 1000}
    producer = _producer(args, **limits)
    sizes = wire.varied_sizes(args.message_bytes, args.spread)
    values = [wire.framed_value(args.schema_id, size) for size in sizes] if args.schema_id else [b"x" * sizes[0]]
    block = [values[number % len(values)] for number in range(1000)]
    counts = {"good": 0, "bad": 0}

    def delivered(error: KafkaError | None, _: Any) -> None:
        counts["bad" if error else "good"] += 1

    def push(seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            try:
                for value in block:
                    producer.produce(args.topic, value, on_delivery=delivered)
                producer.poll(0)
            except BufferError:
                producer.poll(0.01)

    push(args.warmup)
    before, begin, cpu = counts["good"], time.perf_counter(), cpu_s()
    push(args.seconds)
    done, elapsed = counts["good"] - before, time.perf_counter() - begin
    busy = (cpu_s() - cpu) / elapsed
    left = producer.flush(60)
    if counts["bad"] or left:
        raise RuntimeError(f"{counts['bad']} messages failed and {left} were not answered")
    return {
        "seconds": elapsed,
        "messages": done,
        "bytes": done * args.message_bytes,
        "messages_total": counts["good"],
        "bytes_total": counts["good"] * args.message_bytes,
        "client_busy": busy,
    }


def consume(args: argparse.Namespace) -> dict[str, float]:
    consumer = _consumer(args, OFFSET_BEGINNING)
    messages = size = 0
    begin = cpu = 0.0
    deadline = time.perf_counter() + 60
    while messages < args.messages:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{messages} of {args.messages} messages were read in 60 s")
        for message in consumer.consume(num_messages=5000, timeout=1.0):
            if message.error():
                raise RuntimeError(str(message.error()))
            size += len(message.value() or b"")
            messages += 1
        if not begin and messages:
            begin, cpu, first, first_bytes = time.perf_counter(), cpu_s(), messages, size
    elapsed = time.perf_counter() - begin
    result = {
        "seconds": elapsed,
        "messages": messages - first,
        "bytes": size - first_bytes,
        "messages_total": messages,
        "bytes_total": size,
        "client_busy": (cpu_s() - cpu) / elapsed,
    }
    consumer.close()
    return result


def latency(args: argparse.Namespace) -> dict[str, float]:
    # Two threads share this process's interpreter: let them take turns quickly.
    sys.setswitchinterval(1e-4)
    consumer = _consumer(args, OFFSET_END)
    producer = _producer(args, **{"linger.ms": 0})
    pad = b"x" * (args.message_bytes - 8)
    latencies_ns: list[int] = []
    started = threading.Event()
    total = int(args.rate * (args.seconds + args.warmup))
    skip_until_ns = 0

    def read() -> None:
        seen = 0
        give_up = time.monotonic() + args.seconds + args.warmup + 40
        while seen < total and time.monotonic() < give_up:
            message = consumer.poll(0.5)
            if message is None or message.error():
                continue
            now = time.monotonic_ns()
            due = int.from_bytes((message.value() or b"")[:8], "big")
            if due == 0:
                started.set()
                continue
            seen += 1
            if due >= skip_until_ns:
                latencies_ns.append(now - due)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    # Messages until the first one arrives: then the consumer is at the end of the log and waiting.
    begin = time.monotonic()
    while not started.is_set():
        if time.monotonic() - begin > 30:
            raise TimeoutError("the consumer saw nothing in 30 s")
        producer.produce(args.topic, bytes(args.message_bytes), partition=0)
        producer.poll(0)
        started.wait(0.1)
    begin_ns = time.monotonic_ns() + 100_000_000
    skip_until_ns = begin_ns + int(args.warmup * 1e9)
    step_ns = 1e9 / args.rate
    cpu = cpu_s()
    for n in range(total):
        due = begin_ns + int(n * step_ns)
        while (wait := due - time.monotonic_ns()) > 0:
            time.sleep(wait / 1e9)
        producer.produce(args.topic, due.to_bytes(8, "big") + pad, partition=0)
        producer.poll(0)
    producer.flush(30)
    reader.join(40)
    wanted = int(args.rate * args.seconds)
    if len(latencies_ns) < wanted * 0.999:
        raise RuntimeError(f"{len(latencies_ns)} of {wanted} messages came back")
    busy = (cpu_s() - cpu) / (args.warmup + args.seconds)
    result = {**percentiles(latencies_ns), "client_busy": busy}
    consumer.close()
    return result


_NOT_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TIMED_OUT,
)


def _await_coordinator(consumer: Consumer, args: argparse.Namespace) -> None:
    """Wait until the offsets of the group can be asked for: the first group of all makes the internal topic."""
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.committed([TopicPartition(args.topic, n) for n in range(args.partitions)], 30)
            return
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def transform(args: argparse.Namespace) -> dict[str, float]:
    """Both ways do the same work: what was read is written, and every `--commit-ms` it is made sure that it was written
    and the offsets are committed; exactly once does it in a transaction, at least once with a flush and a commit."""
    group = f"bench-{uuid4()}"
    exactly = args.delivery == "exactly-once"
    isolation = "read_committed" if exactly else "read_uncommitted"
    consumer = _consumer(args, OFFSET_BEGINNING, **{"group.id": group, "isolation.level": isolation})
    producer = _producer(args, **({"transactional.id": group} if exactly else {"enable.idempotence": True}))
    bad = 0

    def delivered(error: KafkaError | None, _: Any) -> None:
        nonlocal bad
        bad += error is not None

    def push(value: bytes) -> None:
        while True:
            try:
                producer.produce(args.output, value, on_delivery=delivered)
                return
            except BufferError:
                producer.poll(0.01)

    def commit(at: dict[int, int]) -> None:
        offsets = [TopicPartition(args.topic, partition, offset) for partition, offset in at.items()]
        if exactly:
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
            producer.commit_transaction(30)
            producer.begin_transaction()
        else:
            if producer.flush(30):
                raise TimeoutError("some messages were not answered in 30 s")
            consumer.commit(offsets=offsets, asynchronous=False)

    _await_coordinator(consumer, args)
    if exactly:
        producer.init_transactions(60)
        producer.begin_transaction()
    messages = size = first = first_bytes = 0
    begin = cpu = 0.0
    at: dict[int, int] = {}
    commits_ns: list[int] = []
    opened = time.perf_counter()
    due = opened + args.commit_ms / 1e3
    while messages < args.messages:
        now = time.perf_counter()
        if not messages and now - opened > 60:
            raise TimeoutError("nothing was read in 60 s")
        for message in consumer.consume(num_messages=500, timeout=0.01):
            if message.error():
                raise RuntimeError(str(message.error()))
            value = message.value() or b""
            push(value)
            at[message.partition()] = message.offset() + 1
            messages += 1
            size += len(value)
        producer.poll(0)
        if (now := time.perf_counter()) < due and messages < args.messages:
            continue
        due = now + args.commit_ms / 1e3
        if not at:
            continue
        before_ns = time.perf_counter_ns()
        commit(at)
        at.clear()
        commits_ns.append(time.perf_counter_ns() - before_ns)
        now = time.perf_counter()
        if not begin and now - opened > args.warmup:
            # The window begins and ends with a commit.
            begin, cpu, first, first_bytes = now, cpu_s(), messages, size
            commits_ns.clear()
        elif begin and now - begin >= args.seconds:
            break
    if not begin or messages == first:
        raise RuntimeError(f"{messages} messages are too few to measure: they were done within the warm-up")
    elapsed = time.perf_counter() - begin
    busy = (cpu_s() - cpu) / elapsed
    if exactly:
        producer.abort_transaction(30)
    stored = consumer.committed([TopicPartition(args.topic, n) for n in range(args.partitions)], 30)
    if bad or sum(max(0, one.offset) for one in stored) != messages:
        raise RuntimeError(f"{bad} messages failed; the offsets committed are not of the {messages} that were read")
    consumer.close()
    return {
        "seconds": elapsed,
        "messages": messages - first,
        "bytes": size - first_bytes,
        "messages_total": messages,
        "bytes_total": size,
        "client_busy": busy,
        "commits": len(commits_ns),
        "commit_ms": percentiles(commits_ns)["p50_ms"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    for name, run in (("produce", produce), ("consume", consume), ("latency", latency), ("transform", transform)):
        mode = modes.add_parser(name)
        mode.set_defaults(run=run)
        mode.add_argument("--port", type=int, required=True)
        mode.add_argument("--topic", default="bench")
        mode.add_argument("--partitions", type=int, default=1)
        mode.add_argument("--message-bytes", type=int, default=1024)
        mode.add_argument("--messages", type=int, default=0)
        mode.add_argument("--batch-messages", type=int, default=0, help="at most so many in a request; 0: no limit")
        mode.add_argument("--schema-id", type=int, default=0, help="begin each value with the id of a schema")
        mode.add_argument("--spread", type=int, default=0, help="with --schema-id: sizes differ by so many bytes")
        mode.add_argument("--rate", type=float, default=1000)
        mode.add_argument("--warmup", type=float, default=0.5)
        mode.add_argument("--seconds", type=float, default=2.0)
    transform_args = modes.choices["transform"]
    transform_args.add_argument("--output", required=True, help="the topic to write to")
    transform_args.add_argument("--delivery", choices=("at-least-once", "exactly-once"), required=True)
    transform_args.add_argument("--commit-ms", type=float, default=100)
    args = parser.parse_args()
    print(json.dumps(args.run(args)), flush=True)


if __name__ == "__main__":
    main()
