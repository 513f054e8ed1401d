"""A load generator that costs next to nothing: frames are built once and sent over plain sockets, many in flight.

It is a process of its own, so that neither the harness nor a client library is what gets measured. It prints one line
of JSON: what was acknowledged or read inside the measured window, the totals, and its own CPU time, by which one sees
whether it was the limit itself.

    load.py produce ...      batches in a closed loop with a fixed number of requests in flight per connection
    load.py consume ...      one fetch in flight per connection, over and over from the first offset to the last
    load.py random ...       fetches at random offsets, one at a time, with the time of each

With --tls-ca and --user they connect over TLS and log in with SCRAM.
"""

import argparse
import json
import random
import resource
import select
import time
from collections.abc import Callable

from harness import wire
from harness.secure_wire import Connector, add_security, connector_of

_RECEIVE_BYTES = 1 << 20
_STALL_S = 60.0


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Window:
    """Counts from the end of the warm-up to the end of the run, beside the totals."""

    def __init__(self, warmup_s: float, seconds: float, max_bytes: int) -> None:
        self._opens = time.perf_counter() + warmup_s
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._base: tuple[int, int, int] | None = None
        self._begin = self._cpu = 0.0
        self.requests = self.messages = self.bytes = 0

    def open_if_due(self) -> None:
        now = time.perf_counter()
        if self._base is None and now >= self._opens:
            self._base = (self.requests, self.messages, self.bytes)
            self._begin, self._cpu = now, cpu_s()

    def is_over(self) -> bool:
        if self._base is None:
            return False
        return time.perf_counter() - self._begin >= self._seconds or self.bytes - self._base[2] >= self._max_bytes

    def result(self) -> dict[str, float]:
        elapsed = time.perf_counter() - self._begin
        requests, messages, size = self._base or (0, 0, 0)
        return {
            "seconds": elapsed,
            "requests": self.requests - requests,
            "messages": self.messages - messages,
            "bytes": self.bytes - size,
            "requests_total": self.requests,
            "messages_total": self.messages,
            "bytes_total": self.bytes,
            "client_busy": (cpu_s() - self._cpu) / elapsed if elapsed else 0.0,
        }


class ProduceConnection:
    """Sends a block of equal requests round and round and counts the equal responses."""

    def __init__(
        self, connector: Connector, port: int, block: bytes, request_bytes: int, depth: int, error_at: int
    ) -> None:
        self.sock = connector.connect(port)
        # A TLS socket that could not send must be given the same bytes again, so none are of two requests.
        self._one_by_one = connector.uses_tls
        self._block = memoryview(block)
        self._limit = depth * request_bytes
        self._request_bytes = request_bytes
        self._chunk = min(self._limit, max(request_bytes, self._limit // 4))
        self._error_at = error_at
        self._position = 0
        self._sent = 0
        self.acked = 0
        # The first request alone: it shows the length that every response will have.
        self.sock.sendall(self._block[:request_bytes])
        first = wire.receive_frame(self.sock)
        self._answer_bytes = len(first)
        self._rest = b""
        self._check(first)
        self._position = request_bytes % len(block)
        self._sent, self.acked = request_bytes, 1
        self.sock.setblocking(False)
        self._buffer = bytearray(_RECEIVE_BYTES)

    def wants_to_send(self) -> bool:
        return self.acked * self._request_bytes + self._limit - self._sent >= self._chunk

    def is_idle(self) -> bool:
        return self._sent == self.acked * self._request_bytes

    def send(self, *, only_finish: bool = False) -> None:
        """Fill the socket. With `only_finish` no new request is begun, but a half-sent one is completed."""
        room = self.acked * self._request_bytes + self._limit - self._sent
        if only_finish:
            room = -self._sent % self._request_bytes
        while room > 0:
            most = self._request_bytes - self._sent % self._request_bytes if self._one_by_one else room
            part = self._block[self._position : self._position + min(room, most)]
            try:
                done = self.sock.send(part)
            except BlockingIOError:
                return
            self._position = (self._position + done) % len(self._block)
            self._sent += done
            room -= done

    def receive(self) -> int:
        """Take what has arrived; return how many responses became whole."""
        try:
            count = self.sock.recv_into(self._buffer)
        except BlockingIOError:
            return 0
        if not count:
            raise ConnectionError("the server closed the connection")
        data = self._rest + bytes(memoryview(self._buffer)[:count])
        whole = len(data) // self._answer_bytes
        cut = whole * self._answer_bytes
        if whole:
            self._check(data[:cut])
        self._rest = data[cut:]
        self.acked += whole
        return whole

    def half_sent(self) -> bool:
        return self._sent % self._request_bytes != 0

    def _check(self, answers: bytes) -> None:
        """Every response has the expected length and error code 0, looked at by strides and not one by one."""
        step, at = self._answer_bytes, self._error_at
        count = len(answers) // step
        wrong_length = answers[3::step].count((step - 4) & 0xFF) != count
        if wrong_length or answers[at::step].count(0) != count or answers[at + 1 :: step].count(0) != count:
            code = int.from_bytes(answers[at : at + 2], "big", signed=True)
            raise RuntimeError(f"a produce request was refused, the first response here has error code {code}")


def produce(args: argparse.Namespace) -> dict[str, float]:
    sizes = wire.varied_sizes(args.message_bytes, args.spread)
    values = [wire.framed_value(args.schema_id, size) for size in sizes] if args.schema_id else ()
    batch = wire.record_batch(args.message_bytes, args.batch_messages, int(time.time() * 1000), values)
    requests = max(args.partitions, (1 << 16) // len(batch), args.depth if len(batch) < 1 << 14 else 1)
    requests += -requests % args.partitions
    frames = [
        wire.produce_request(args.topic, n % args.partitions, batch, acks=args.acks, correlation_id=n)
        for n in range(requests)
    ]
    block = b"".join(frames)
    error_at = wire.produce_error_at(args.topic)
    connector = connector_of(args)
    connections = [
        ProduceConnection(connector, args.port, block, len(frames[0]), args.depth, error_at)
        for _ in range(args.connections)
    ]
    window = Window(args.warmup, args.seconds, args.max_bytes)
    window.requests, window.messages, window.bytes = (
        args.connections,
        args.connections * args.batch_messages,
        args.connections * args.batch_messages * args.message_bytes,
    )

    def count(answers: int) -> None:
        window.requests += answers
        window.messages += answers * args.batch_messages
        window.bytes += answers * args.batch_messages * args.message_bytes

    pace = Pace(args.rate_mb) if args.rate_mb else None
    _pump(connections, window, count, pace)
    result = window.result()
    _drain(connections, count)
    result["requests_total"], result["messages_total"] = window.requests, window.messages
    result["bytes_total"] = window.bytes
    return result


class Pace:
    """Holds a producer to so many MB a second; without one it goes as fast as the answers come."""

    def __init__(self, rate_mb: float) -> None:
        self._bytes_per_s = rate_mb * 1e6
        self._begin = time.perf_counter()

    def allows(self, sent_bytes: int) -> bool:
        return sent_bytes < (time.perf_counter() - self._begin) * self._bytes_per_s


def _pump(
    connections: list[ProduceConnection], window: Window, count: Callable[[int], None], pace: Pace | None
) -> None:
    poller = select.epoll()
    by_fd = {connection.sock.fileno(): connection for connection in connections}
    writing = {}
    for fd in by_fd:
        poller.register(fd, select.EPOLLIN)
        writing[fd] = False
    while not window.is_over():
        may_send = pace is None or pace.allows(window.bytes)
        for fd, connection in by_fd.items():
            if may_send and connection.wants_to_send():
                connection.send()
            wants = (may_send and connection.wants_to_send()) or connection.half_sent()
            if wants != writing[fd]:
                poller.modify(fd, select.EPOLLIN | (select.EPOLLOUT if wants else 0))
                writing[fd] = wants
        events = poller.poll(0.005 if pace is not None else _STALL_S)
        if not events and pace is None:
            raise TimeoutError(f"no answer for {_STALL_S:.0f} s")
        for fd, event in events:
            if event & ~select.EPOLLOUT:
                count(by_fd[fd].receive())
            elif not may_send:
                by_fd[fd].send(only_finish=True)
        window.open_if_due()


def _drain(connections: list[ProduceConnection], count: Callable[[int], None]) -> None:
    """Wait for what is in flight, so that the totals are exact and the next run finds a quiet server."""
    deadline = time.monotonic() + _STALL_S
    for connection in connections:
        while not connection.is_idle():
            if time.monotonic() > deadline:
                raise TimeoutError("requests in flight were not answered")
            half = connection.half_sent()
            readable, writable, _ = select.select([connection.sock], [connection.sock] if half else [], [], 1.0)
            if writable:
                connection.send(only_finish=True)
            if readable:
                count(connection.receive())
        connection.sock.close()


class ConsumeConnection:
    """One fetch in flight; at the end of the log it begins again, or follows if `follow` is set."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.sock = connector_of(args).connect(args.port)
        self.sock.setblocking(False)
        partitions = list(range(args.partitions))
        self._opaque = args.opaque
        self._follow = args.follow
        self._request = wire.FetchRequest(
            args.topic, partitions, partition_max_bytes=args.fetch_bytes, max_wait_ms=500 if args.follow else 0
        )
        self._next = dict.fromkeys(partitions, 0)
        self._buffer = bytearray(args.fetch_bytes * args.partitions * 2 + (2 << 20))
        self._view = memoryview(self._buffer)
        self._have, self._need = 0, 4
        self.messages = self.bytes = self.requests = 0
        self.ask()

    def ask(self) -> None:
        self.sock.send(self._request.frame)

    def receive(self) -> None:
        try:
            count = self.sock.recv_into(self._view[self._have : self._need if self._need > 4 else len(self._buffer)])
        except BlockingIOError:
            return
        if not count:
            raise ConnectionError("the server closed the connection")
        self._have += count
        if self._need == 4 and self._have >= 4:
            self._need = 4 + int.from_bytes(self._buffer[:4], "big")
            if self._need > len(self._buffer):
                raise RuntimeError(f"a fetch response of {self._need} bytes is larger than what was asked for")
        if self._have == self._need:
            self.requests += 1
            self._take(self._view[4 : self._need])
            self._have, self._need = 0, 4
            self.ask()

    def _take(self, frame: memoryview) -> None:
        if self._opaque:
            self.bytes += len(frame)
            return
        got = 0
        for answer in wire.fetch_answer(frame):
            if answer.error:
                raise RuntimeError(f"partition {answer.partition} was answered with error {answer.error}")
            next_offset, messages, size = wire.walk_batches(frame, answer.records_at, answer.records_bytes)
            if next_offset >= 0:
                self._next[answer.partition] = next_offset
                self._request.seek(answer.partition, next_offset)
            self.messages += messages
            got += size
        self.bytes += got
        if not got and not self._follow:
            for partition in self._next:
                self._request.seek(partition, 0)


def consume(args: argparse.Namespace) -> dict[str, float]:
    connections = [ConsumeConnection(args) for _ in range(args.connections)]
    by_fd = {connection.sock.fileno(): connection for connection in connections}
    poller = select.epoll()
    for fd in by_fd:
        poller.register(fd, select.EPOLLIN)
    window = Window(args.warmup, args.seconds, args.max_bytes)
    while not window.is_over():
        events = poller.poll(_STALL_S)
        if not events:
            raise TimeoutError(f"no answer for {_STALL_S:.0f} s")
        for fd, _ in events:
            by_fd[fd].receive()
        window.requests = sum(connection.requests for connection in connections)
        window.messages = sum(connection.messages for connection in connections)
        window.bytes = sum(connection.bytes for connection in connections)
        window.open_if_due()
    return window.result()


def random_fetches(args: argparse.Namespace) -> dict[str, float]:
    sock = wire.connect(args.port)
    request = wire.FetchRequest(args.topic, [0], partition_max_bytes=args.fetch_bytes, max_wait_ms=0)
    chance = random.Random(args.seed)
    times_us: list[float] = []
    for n in range(args.count + 50):
        offset = chance.randrange(args.end_offset)
        request.seek(0, offset)
        begin = time.perf_counter()
        sock.sendall(request.frame)
        frame = memoryview(wire.receive_frame(sock))[4:]
        elapsed = time.perf_counter() - begin
        (answer,) = wire.fetch_answer(frame)
        next_offset, _, _ = wire.walk_batches(frame, answer.records_at, answer.records_bytes)
        if answer.error or next_offset <= offset:
            raise RuntimeError(f"a fetch at offset {offset} gave error {answer.error}, next offset {next_offset}")
        if n >= 50:
            times_us.append(elapsed * 1e6)
    times_us.sort()
    return {
        "requests_total": args.count + 50,
        "p50_us": times_us[len(times_us) // 2],
        "p99_us": times_us[len(times_us) * 99 // 100],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    for name, run in (("produce", produce), ("consume", consume), ("random", random_fetches)):
        mode = modes.add_parser(name)
        mode.set_defaults(run=run)
        mode.add_argument("--port", type=int, required=True)
        mode.add_argument("--topic", default="bench")
        mode.add_argument("--partitions", type=int, default=1)
        mode.add_argument("--connections", type=int, default=1)
        mode.add_argument("--warmup", type=float, default=0.3)
        mode.add_argument("--seconds", type=float, default=2.0)
        mode.add_argument("--max-bytes", type=int, default=1 << 62)
        mode.add_argument("--fetch-bytes", type=int, default=1 << 20)
        add_security(mode)
    produce_args = modes.choices["produce"]
    produce_args.add_argument("--message-bytes", type=int, default=1024)
    produce_args.add_argument("--batch-messages", type=int, default=1)
    produce_args.add_argument("--schema-id", type=int, default=0, help="begin each value with the id of a schema")
    produce_args.add_argument("--spread", type=int, default=0, help="with --schema-id: sizes differ by so many bytes")
    produce_args.add_argument("--acks", type=int, default=-1)
    produce_args.add_argument("--depth", type=int, default=5)
    produce_args.add_argument("--rate-mb", type=float, default=0.0, help="MB/s to hold to; 0 means as fast as it goes")
    consume_args = modes.choices["consume"]
    consume_args.add_argument("--opaque", action="store_true", help="count the bytes of responses, do not read them")
    consume_args.add_argument("--follow", action="store_true", help="at the end wait for more, do not begin again")
    random_args = modes.choices["random"]
    random_args.add_argument("--count", type=int, default=2000)
    random_args.add_argument("--end-offset", type=int, required=True)
    random_args.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(json.dumps(args.run(args)), flush=True)


if __name__ == "__main__":
    main()
