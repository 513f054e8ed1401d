"""The load for NATS JetStream, RabbitMQ streams and Redis Streams through their usual Python clients, one line of JSON.

    client_peers.py nats|rabbitmq|redis produce|consume|latency ...

Each client is driven the way its documentation says is fast: many messages in flight, acknowledged by the server. Often
the client is the limit, not the server: `client_busy` near 1 says so.
"""

import argparse
import asyncio
import json
import sys
import threading
import time
from typing import Any

from client_kafka import cpu_s, percentiles

_WINDOW = 4000


class Counter:
    """Messages acknowledged or read, from the end of the warm-up on."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._size = args.message_bytes
        self._opens = time.perf_counter() + args.warmup
        self._seconds = args.seconds
        self._created, self._created_cpu = time.perf_counter(), cpu_s()
        self._begin = self._cpu = 0.0
        self._base = 0
        self.total = 0

    def add(self, messages: int) -> None:
        self.total += messages
        now = time.perf_counter()
        if not self._begin and now >= self._opens:
            self._begin, self._cpu, self._base = now, cpu_s(), self.total

    def is_over(self) -> bool:
        return bool(self._begin) and time.perf_counter() - self._begin >= self._seconds

    def result(self) -> dict[str, float]:
        if not self._begin:
            # Everything was done within the warm-up: then all of it counts.
            self._begin, self._cpu = self._created, self._created_cpu
        elapsed = time.perf_counter() - self._begin
        messages = self.total - self._base
        return {
            "seconds": elapsed,
            "messages": messages,
            "bytes": messages * self._size,
            "messages_total": self.total,
            "bytes_total": self.total * self._size,
            "client_busy": (cpu_s() - self._cpu) / elapsed,
        }


class Schedule:
    """The moments at which messages are due, and the latencies of those that came back."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.total = int(args.rate * (args.seconds + args.warmup))
        self._step_ns = 1e9 / args.rate
        self._begin_ns = time.monotonic_ns() + 300_000_000
        self._from_ns = self._begin_ns + int(args.warmup * 1e9)
        self._pad: bytes = b"x" * (args.message_bytes - 8)
        self._latencies_ns: list[int] = []
        self.seen = 0

    def due_ns(self, n: int) -> int:
        return self._begin_ns + int(n * self._step_ns)

    def message(self, due_ns: int) -> bytes:
        return due_ns.to_bytes(8, "big") + self._pad

    def arrived(self, message: bytes) -> None:
        now = time.monotonic_ns()
        due = int.from_bytes(message[:8], "big")
        self.seen += 1
        if due >= self._from_ns:
            self._latencies_ns.append(now - due)

    def wait_for(self, n: int) -> int:
        due = self.due_ns(n)
        while (wait := due - time.monotonic_ns()) > 0:
            time.sleep(wait / 1e9)
        return due

    def result(self) -> dict[str, float]:
        return percentiles(self._latencies_ns)


def entries_of(answer: Any) -> list[Any]:
    """The entries of the one stream in an answer to XREAD; newer clients give a mapping, older ones a list."""
    if isinstance(answer, dict):
        (chunks,) = answer.values()
        return [entry for chunk in chunks for entry in chunk]
    return list(answer[0][1])


def redis_run(args: argparse.Namespace) -> dict[str, float]:
    import redis

    client = redis.Redis(port=args.port)
    value = b"x" * args.message_bytes
    if args.what == "produce":
        counter = Counter(args)
        while not counter.is_over() and counter.total < args.max_messages:
            pipe = client.pipeline(transaction=False)
            for _ in range(500):
                pipe.xadd(args.topic, {b"v": value})
            counter.add(len(pipe.execute()))
        return counter.result()
    if args.what == "consume":
        counter = Counter(args)
        last: Any = "0"
        while not counter.is_over():
            answer = client.xread({args.topic: last}, count=1000)
            if not answer:
                last = "0"
                continue
            entries = entries_of(answer)
            last = entries[-1][0]
            counter.add(len(entries))
        return counter.result()

    schedule = Schedule(args)

    def read() -> None:
        reader = redis.Redis(port=args.port)
        last: Any = "$"
        while schedule.seen < schedule.total:
            answer = reader.xread({args.topic: last}, block=5000)
            if not answer:
                return
            entries = entries_of(answer)
            for key, fields in entries:
                last = key
                schedule.arrived(fields[b"v"])

    return threaded(schedule, read, lambda data: client.xadd(args.topic, {b"v": data}))


def threaded(schedule: Schedule, read: Any, send: Any) -> dict[str, float]:
    sys.setswitchinterval(1e-4)
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for n in range(schedule.total):
        due = schedule.wait_for(n)
        send(schedule.message(due))
    reader.join(20)
    return schedule.result()


async def _nats_produce(args: argparse.Namespace, client: Any) -> dict[str, float]:
    """Publish with an inbox for the acknowledgements, as JetStream clients do, with a window of them outstanding.

    nats-py's own `publish_async` makes one future and one task per message, and a tenth of the throughput.
    """
    counter = Counter(args)
    value = b"x" * args.message_bytes
    inbox = client.new_inbox()
    room = asyncio.Event()
    sent = 0

    async def acknowledged(message: Any) -> None:
        if b'"error"' in message.data:
            raise RuntimeError(message.data.decode())
        counter.add(1)
        if sent - counter.total < _WINDOW // 2:
            room.set()

    await client.subscribe(inbox, cb=acknowledged, pending_msgs_limit=-1, pending_bytes_limit=-1)
    while not counter.is_over() and counter.total < args.max_messages:
        while sent - counter.total < _WINDOW:
            await client.publish(args.topic, value, reply=inbox)
            sent += 1
        room.clear()
        await asyncio.wait_for(room.wait(), 30)
    result = counter.result()
    while counter.total < sent:
        room.clear()
        await asyncio.sleep(0.01)
    result["messages_total"], result["bytes_total"] = sent, sent * args.message_bytes
    return result


async def _nats_consume(args: argparse.Namespace, stream: Any) -> dict[str, float]:
    counter = Counter(args)
    done = asyncio.Event()

    async def take(_: Any) -> None:
        counter.add(1)
        if counter.total >= args.max_messages or counter.is_over():
            done.set()

    await stream.subscribe(args.topic, cb=take, ordered_consumer=True, pending_bytes_limit=1 << 30)
    await asyncio.wait_for(done.wait(), 60)
    return counter.result()


async def nats_run(args: argparse.Namespace) -> dict[str, float]:
    import nats
    from nats.errors import TimeoutError as NatsTimeout
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

    client = await nats.connect(f"nats://127.0.0.1:{args.port}", pending_size=64 << 20)
    stream = client.jetstream()
    subject = args.topic
    try:
        await stream.stream_info(subject)
    except nats.js.errors.NotFoundError:
        await stream.add_stream(name=subject, subjects=[subject])
    try:
        if args.what == "produce":
            return await _nats_produce(args, client)
        if args.what == "consume":
            return await _nats_consume(args, stream)
        schedule = Schedule(args)
        done = asyncio.Event()

        async def take(message: Any) -> None:
            schedule.arrived(message.data)
            if schedule.seen >= schedule.total:
                done.set()

        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.NEW)
        await stream.subscribe(subject, cb=take, config=config, manual_ack=True)
        for n in range(schedule.total):
            due = schedule.due_ns(n)
            await asyncio.sleep((due - time.monotonic_ns()) / 1e9)
            await stream.publish_async(subject, schedule.message(due), wait_stall=30)
        await asyncio.wait_for(done.wait(), 20)
        return schedule.result()
    except NatsTimeout:
        raise TimeoutError("NATS did not answer in time") from None
    finally:
        await client.close()


class RabbitClient:
    """A connection of pika's callback kind: the only one that lets publisher confirms be in flight. It publishes on the
    channel that it opens."""

    def __init__(self, args: argparse.Namespace) -> None:
        import pika

        self._pika = pika
        self._args = args
        self._counter = Counter(args)
        self._schedule: Schedule | None = None
        self._value = b"x" * args.message_bytes
        self._sent = self._confirmed = self._next = 0
        self._result: dict[str, float] | None = None
        self._failure: BaseException | None = None
        self._properties = pika.BasicProperties(delivery_mode=2)
        self._channel: Any = None

    def run(self) -> dict[str, float]:
        self._connection = self._pika.SelectConnection(
            self._pika.ConnectionParameters("127.0.0.1", self._args.port),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._open),
            on_open_error_callback=lambda _, error: self._fail(error),
            on_close_callback=lambda _, error: self._fail(error),
        )
        self._connection.ioloop.call_later(self._args.seconds + self._args.warmup + 60, self._too_late)
        self._connection.ioloop.start()
        if self._result is None:
            raise RuntimeError(f"RabbitMQ: {self._failure}")
        return self._result

    def _open(self, channel: Any) -> None:
        self._channel = channel
        self._opened()

    def _opened(self) -> None:
        raise NotImplementedError

    def _too_late(self) -> None:
        self._fail(TimeoutError("it took too long"))

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._connection.ioloop.stop()

    def _finish(self, result: dict[str, float]) -> None:
        self._result = result
        self._connection.ioloop.stop()

    def _publish(self, window: int) -> None:
        while self._sent - self._confirmed < window and self._sent < self._args.max_messages:
            self._channel.basic_publish("", self._args.topic, self._value, self._properties)
            self._sent += 1

    def _confirm(self, frame: Any) -> int:
        """How many messages a confirmation is about."""
        tag = frame.method.delivery_tag
        confirmed = max(tag - self._confirmed if frame.method.multiple else 1, 0)
        self._confirmed += confirmed
        return confirmed

    def _begin_schedule(self) -> None:
        self._schedule = Schedule(self._args)
        self._tick()

    def _tick(self) -> None:
        assert self._schedule is not None
        while self._next < self._schedule.total:
            due = self._schedule.due_ns(self._next)
            wait_s = (due - time.monotonic_ns()) / 1e9
            if wait_s > 0:
                self._connection.ioloop.call_later(wait_s, self._tick)
                return
            self._channel.basic_publish("", self._args.topic, self._schedule.message(due), self._properties)
            self._next += 1

    def _arrived(self, channel: Any, method: Any, body: bytes) -> bool:
        """Whether it is latencies that are measured; then the message is dealt with."""
        if self._schedule is None:
            return False
        self._schedule.arrived(body)
        channel.basic_ack(method.delivery_tag)
        if self._schedule.seen >= self._schedule.total:
            self._finish(self._schedule.result())
        return True


class RabbitRun(RabbitClient):
    """Streams."""

    def _opened(self) -> None:
        arguments = {"x-queue-type": "stream"}
        self._channel.queue_declare(self._args.topic, durable=True, arguments=arguments, callback=self._declared)

    def _declared(self, _: Any) -> None:
        if self._args.what == "produce":
            self._channel.confirm_delivery(self._on_confirm, callback=lambda _: self._publish(_WINDOW))
            return
        self._channel.basic_qos(prefetch_count=2000, callback=lambda _: self._subscribe())

    def _on_confirm(self, frame: Any) -> None:
        self._counter.add(self._confirm(frame))
        if self._counter.is_over() or self._confirmed >= self._args.max_messages:
            self._finish(self._counter.result())
        elif self._sent - self._confirmed < _WINDOW // 2:
            self._publish(_WINDOW)

    def _subscribe(self) -> None:
        latency = self._args.what == "latency"
        arguments = {"x-stream-offset": "next" if latency else "first"}
        self._channel.basic_consume(
            self._args.topic,
            self._on_message,
            arguments=arguments,
            callback=(lambda _: self._begin_schedule()) if latency else None,
        )

    def _on_message(self, channel: Any, method: Any, _: Any, body: bytes) -> None:
        if self._arrived(channel, method, body):
            return
        self._counter.add(1)
        if self._counter.total % 500 == 0:
            self._channel.basic_ack(method.delivery_tag, multiple=True)
        if self._counter.is_over() or self._counter.total >= self._args.max_messages:
            self._finish(self._counter.result())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=("nats", "rabbitmq", "redis"))
    parser.add_argument("what", choices=("produce", "consume", "latency"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--message-bytes", type=int, default=1024)
    parser.add_argument("--max-messages", type=int, default=1 << 62)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    if args.peer == "redis":
        result = redis_run(args)
    elif args.peer == "nats":
        result = asyncio.run(nats_run(args))
    else:
        result = RabbitRun(args).run()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
