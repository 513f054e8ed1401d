"""Work through queues as a program does it: sent with a confirmation, received, acknowledged. Prints one line of JSON.

    client_queues.py headrace|rabbitmq|redis work|latency ...

Headrace through its SDK, RabbitMQ through pika with publisher confirms on a durable quorum queue, Redis through
redis-py with a stream and a consumer group. One process each, many messages in flight, which is what each library's
documentation calls fast. A message counts when its acknowledgement was sent after its sending was confirmed.
"""

import argparse
import json
import threading
from collections import deque
from typing import Any

from client_peers import Counter, RabbitClient, Schedule, entries_of, threaded

_WINDOW = 8000
_AT_ONCE = 500
_STALL_S = 60.0


def headrace_run(args: argparse.Namespace) -> dict[str, float]:
    from headrace import Client

    with Client(f"127.0.0.1:{args.port}") as client:
        queue = client.queue(args.topic).create(visibility=600)
        return _headrace_work(args, queue) if args.what == "work" else _headrace_latency(args, queue)


def _headrace_work(args: argparse.Namespace, queue: Any) -> dict[str, float]:
    """Two threads send, two receive and acknowledge, so that neither waits for the disk alone."""
    counter = Counter(args)
    value = b"x" * args.message_bytes
    books = threading.Condition()
    open_count = 0
    over = threading.Event()
    failures: list[BaseException] = []

    def send() -> None:
        nonlocal open_count
        while not counter.is_over() and not failures:
            with books:
                if open_count >= _WINDOW:
                    books.wait(1.0)
                    continue
                open_count += _AT_ONCE
            queue.send_many([value] * _AT_ONCE)

    def receive() -> None:
        nonlocal open_count
        under_way: deque[list[Any]] = deque()
        while not counter.is_over() and not failures:
            if found := queue.receive(max=2 * _AT_ONCE, wait=1):
                under_way.append([message.ack() for message in found])
            while under_way and (len(under_way) > 1 or not found or under_way[0][-1].done()):
                settled = under_way.popleft()
                for each in settled:
                    each.result(_STALL_S)
                with books:
                    counter.add(len(settled))
                    open_count -= len(settled)
                    books.notify_all()

    def guarded(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
        finally:
            over.set()

    threads = [threading.Thread(target=guarded, args=(each,), daemon=True) for each in (send, send, receive, receive)]
    for each in threads:
        each.start()
    over.wait(args.warmup + args.seconds + _STALL_S)
    result = counter.result()
    for each in threads:
        each.join(_STALL_S)
    if failures:
        raise failures[0]
    return result


def _headrace_latency(args: argparse.Namespace, queue: Any) -> dict[str, float]:
    queue.send(b"0")  # The first message pays for finding the broker.
    for message in queue.receive():
        message.ack()
    queue.flush()
    schedule = Schedule(args)

    def read() -> None:
        while schedule.seen < schedule.total:
            found = queue.receive(max=100, wait=5)
            if not found:
                return
            for message in found:
                schedule.arrived(message.body)
                message.ack()

    return threaded(schedule, read, queue.send_soon)


def redis_run(args: argparse.Namespace) -> dict[str, float]:
    import redis

    client = redis.Redis(port=args.port)
    client.xgroup_create(args.topic, "workers", mkstream=True)
    reader = redis.Redis(port=args.port)

    def entries(block_ms: int) -> list[Any]:
        answer: Any = reader.xreadgroup("workers", "one", {args.topic: ">"}, count=_AT_ONCE, block=block_ms)
        return entries_of(answer) if answer else []

    def settle(keys: list[Any]) -> None:
        pipe = reader.pipeline(transaction=False)
        pipe.xack(args.topic, "workers", *keys)
        pipe.xdel(args.topic, *keys)
        pipe.execute()

    if args.what == "work":
        return _redis_work(args, client, entries, settle)
    schedule = Schedule(args)

    def read() -> None:
        while schedule.seen < schedule.total:
            found = entries(5000)
            if not found:
                return
            for _, fields in found:
                schedule.arrived(fields[b"v"])
            settle([key for key, _ in found])

    return threaded(schedule, read, lambda data: client.xadd(args.topic, {b"v": data}))


def _redis_work(args: argparse.Namespace, client: Any, entries: Any, settle: Any) -> dict[str, float]:
    counter = Counter(args)
    value = b"x" * args.message_bytes
    stopping = threading.Event()
    failures: list[BaseException] = []

    def send() -> None:
        try:
            while not stopping.is_set():
                pipe = client.pipeline(transaction=False)
                for _ in range(_AT_ONCE):
                    pipe.xadd(args.topic, {b"v": value})
                pipe.execute()
        except BaseException as error:
            failures.append(error)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    while not counter.is_over() and not failures:
        if found := entries(1000):
            settle([key for key, _ in found])
            counter.add(len(found))
    result = counter.result()
    stopping.set()
    sender.join(_STALL_S)
    if failures:
        raise failures[0]
    return result


class RabbitRun(RabbitClient):
    """A quorum queue. Publishes and consumes on a channel each."""

    def _opened(self) -> None:
        self._channel.queue_declare(
            self._args.topic,
            durable=True,
            arguments={"x-queue-type": "quorum"},
            callback=lambda _: self._connection.channel(on_open_callback=self._consume),
        )

    def _consume(self, channel: Any) -> None:
        channel.basic_qos(
            prefetch_count=_WINDOW,
            callback=lambda _: channel.basic_consume(
                self._args.topic, self._on_message, callback=lambda _: self._ask_for_confirms()
            ),
        )

    def _ask_for_confirms(self) -> None:
        self._channel.confirm_delivery(self._on_confirm, callback=lambda _: self._begin())

    def _begin(self) -> None:
        if self._args.what == "latency":
            self._begin_schedule()
        else:
            self._publish(_WINDOW)

    def _on_confirm(self, frame: Any) -> None:
        self._confirm(frame)
        if self._schedule is None and self._sent - self._confirmed < _WINDOW // 2:
            self._publish(_WINDOW)

    def _on_message(self, channel: Any, method: Any, _: Any, body: bytes) -> None:
        if self._arrived(channel, method, body):
            return
        self._counter.add(1)
        if self._counter.total % _AT_ONCE == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
            if self._counter.is_over():
                self._finish(self._counter.result())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=("headrace", "rabbitmq", "redis"))
    parser.add_argument("what", choices=("work", "latency"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--message-bytes", type=int, default=100)
    parser.add_argument("--max-messages", type=int, default=1 << 62)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    if args.peer == "redis":
        result = redis_run(args)
    elif args.peer == "headrace":
        result = headrace_run(args)
    else:
        result = RabbitRun(args).run()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
