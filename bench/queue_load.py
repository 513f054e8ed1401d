"""The load of queues over the SQS API: requests are written to plain sockets, so that no client library is measured.

    queue_load.py cycle ...      each connection sends, receives and deletes, over and over
    queue_load.py latency ...    a fixed rate; the time from when a message was due to when a waiting receiver has it
    queue_load.py create ...     make a queue
    queue_load.py fill ...       send so many messages and end

Prints one line of JSON. The protocol is SQS's JSON 1.0, unsigned: all that is measured here listens on loopback only.
"""

import argparse
import asyncio
import json
import re
import time
from typing import Any

import uvloop

from client_kafka import cpu_s, percentiles
from load import Window

RECEIPT = re.compile(rb'"ReceiptHandle"\s*:\s*"((?:[^"\\]|\\.)*)"')
_BODY = re.compile(rb'"Body"\s*:\s*"(\d+) ')
_STALL_S = 60.0


class Connection(asyncio.Protocol):
    """One request at a time, over one connection that is kept."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._data += data
        whole = whole_answer(self._data)
        if whole is not None and self._answer is not None:
            self._data.clear()
            self._answer.set_result(whole)

    async def ask(self, request: bytes) -> bytes:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        self._answer = None
        self._transport.close()


def whole_answer(data: bytearray) -> bytes | None:
    """The body of the answer, if all of it is here."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(data[:end]).lower()
    at = head.find(b"content-length:")
    if at >= 0:
        length = int(head[at + 15 :].split(b"\r\n", 1)[0])
        if len(data) < end + 4 + length:
            return None
        body = bytes(data[end + 4 : end + 4 + length])
    elif b"transfer-encoding: chunked" in head:
        if not data.endswith(b"0\r\n\r\n"):
            return None
        body = _joined(bytes(data[end + 4 :]))
    else:
        raise ConnectionError(f"an answer without a length: {head[:200]!r}")
    if not head.startswith(b"http/1.1 200"):
        raise ConnectionError(f"{head.splitlines()[0].decode()}: {body[:300].decode(errors='replace')}")
    return body


def _joined(chunks: bytes) -> bytes:
    found = bytearray()
    while True:
        size, _, rest = chunks.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return bytes(found)
        found += rest[:length]
        chunks = rest[length + 2 :]


class Requests:
    """What is asked of one queue."""

    def __init__(self, args: argparse.Namespace, url: str) -> None:
        self._host = b"127.0.0.1:%d" % args.port
        self._url = url
        body = "x" * args.message_bytes
        if args.batch == 1:
            self.send = self._request("SendMessage", {"QueueUrl": url, "MessageBody": body})
        else:
            entries = [{"Id": str(number), "MessageBody": body} for number in range(args.batch)]
            self.send = self._request("SendMessageBatch", {"QueueUrl": url, "Entries": entries})
        self.receive = self.receiving(args.batch, 0)

    def receiving(self, maximum: int, wait_s: int) -> bytes:
        wanted = {"QueueUrl": self._url, "MaxNumberOfMessages": maximum, "WaitTimeSeconds": wait_s}
        return self._request("ReceiveMessage", wanted)

    def sending(self, body: str) -> bytes:
        return self._request("SendMessage", {"QueueUrl": self._url, "MessageBody": body})

    def deleting(self, receipts: list[bytes]) -> bytes:
        # They go back as they came, escapes and all.
        if len(receipts) == 1:
            return self._raw(
                "DeleteMessage", b'{"QueueUrl":"%s","ReceiptHandle":"%s"}' % (self._url.encode(), receipts[0])
            )
        entries = b",".join(b'{"Id":"%d","ReceiptHandle":"%s"}' % each for each in enumerate(receipts))
        return self._raw("DeleteMessageBatch", b'{"QueueUrl":"%s","Entries":[%s]}' % (self._url.encode(), entries))

    def _request(self, action: str, parameters: dict[str, Any]) -> bytes:
        return self._raw(action, json.dumps(parameters, separators=(",", ":")).encode())

    def _raw(self, action: str, body: bytes) -> bytes:
        return (
            b"POST / HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-amz-json-1.0\r\n"
            b"X-Amz-Target: AmazonSQS.%s\r\nContent-Length: %d\r\n\r\n%s"
        ) % (self._host, action.encode(), len(body), body)


async def _connected(args: argparse.Namespace) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", args.port)
    return connection


async def _created(args: argparse.Namespace) -> str:
    """The URL of the queue, which is made if it is not there."""
    connection = await _connected(args)
    answer = await connection.ask(create_request(args))
    connection.close()
    return queue_url(answer)


def create_request(args: argparse.Namespace) -> bytes:
    body = json.dumps({"QueueName": args.topic, "Attributes": {"VisibilityTimeout": "600"}}).encode()
    return (
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/x-amz-json-1.0\r\n"
        b"X-Amz-Target: AmazonSQS.CreateQueue\r\nContent-Length: %d\r\n\r\n%s"
    ) % (args.port, len(body), body)


def queue_url(answer: bytes) -> str:
    url: str = json.loads(answer)["QueueUrl"]
    return url


async def create(args: argparse.Namespace) -> dict[str, float]:
    await _created(args)
    return {"queues": 1}


async def fill(args: argparse.Namespace) -> dict[str, float]:
    requests = Requests(args, await _created(args))
    left = -(-args.messages // args.batch)

    async def send() -> None:
        nonlocal left
        connection = await _connected(args)
        while left > 0:
            left -= 1
            await connection.ask(requests.send)
        connection.close()

    await asyncio.gather(*(send() for _ in range(args.connections)))
    return {"messages_total": args.messages}


async def cycle(args: argparse.Namespace) -> dict[str, float]:
    requests = Requests(args, await _created(args))
    window = Window(args.warmup, args.seconds, 1 << 62)

    async def go_round() -> None:
        connection = await _connected(args)
        while not window.is_over():
            await connection.ask(requests.send)
            receipts = RECEIPT.findall(await connection.ask(requests.receive))
            window.requests += 2
            if receipts:
                await connection.ask(requests.deleting(receipts))
                window.requests += 1
                window.messages += len(receipts)
                window.bytes += len(receipts) * args.message_bytes
            window.open_if_due()
        connection.close()

    async with asyncio.timeout(args.warmup + args.seconds + _STALL_S):
        await asyncio.gather(*(go_round() for _ in range(args.connections)))
    return window.result()


async def latency(args: argparse.Namespace) -> dict[str, float]:
    requests = Requests(args, await _created(args))
    receiving = requests.receiving(10, 5)
    total = int(args.rate * (args.seconds + args.warmup))
    step_ns = 1e9 / args.rate
    begin_ns = time.monotonic_ns() + 300_000_000
    counted_from_ns = begin_ns + int(args.warmup * 1e9)
    latencies_ns: list[int] = []
    pad = "x" * max(0, args.message_bytes - 20)
    seen = 0
    cpu = cpu_s()

    async def receive() -> None:
        nonlocal seen
        waiting, deleting = await _connected(args), await _connected(args)
        deleted: asyncio.Task[bytes] | None = None
        while seen < total:
            answer = await waiting.ask(receiving)
            now_ns = time.monotonic_ns()
            for due in map(int, _BODY.findall(answer)):
                seen += 1
                if due >= counted_from_ns:
                    latencies_ns.append(now_ns - due)
            receipts = RECEIPT.findall(answer)
            if deleted is not None:
                await deleted
            if receipts:
                deleted = asyncio.create_task(deleting.ask(requests.deleting(receipts)))
        if deleted is not None:
            await deleted
        waiting.close()
        deleting.close()

    async def send() -> None:
        # A few connections, so that a message does not wait for the one before it.
        free: asyncio.Queue[Connection] = asyncio.Queue()
        for _ in range(8):
            free.put_nowait(await _connected(args))
        under_way: set[asyncio.Task[None]] = set()

        async def one(request: bytes) -> None:
            connection = await free.get()
            await connection.ask(request)
            free.put_nowait(connection)

        for number in range(total):
            due_ns = begin_ns + int(number * step_ns)
            await asyncio.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
            task = asyncio.create_task(one(requests.sending(f"{due_ns} {pad}")))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)

    async with asyncio.timeout(args.warmup + args.seconds + _STALL_S):
        await asyncio.gather(receive(), send())
    return {**percentiles(latencies_ns), "client_busy": (cpu_s() - cpu) / (args.warmup + args.seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("create", "fill", "cycle", "latency"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--message-bytes", type=int, default=100)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    work = {"create": create, "fill": fill, "cycle": cycle, "latency": latency}[args.what]
    print(json.dumps(uvloop.run(work(args))), flush=True)


if __name__ == "__main__":
    main()
