"""Queues in a dictionary, as little as the endpoint needs to be tested without a broker; and a client of it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlencode
from xml.etree import ElementTree

from headrace.config.queue import queue_settings
from headrace.model.errors import (
    HeadraceError,
    InvalidReceipt,
    LeaseTooLong,
    NotInFlight,
    QueueExists,
    QueueUnavailable,
    UnknownQueue,
)
from headrace.model.queue_wire import AllReceived, LeasedRange
from headrace.queues.api import (
    Counts,
    Failures,
    Filter,
    Move,
    OutgoingMessage,
    Peeked,
    QueueEdit,
    QueueInfo,
    RangeAcks,
    RangeFailures,
    Received,
    ReceiveOptions,
    Sent,
)
from headrace.security.security import Security
from headrace.sqs.access import QueueAccess
from headrace.sqs.access_keys import AccessKeys
from headrace.sqs.audit import SqsAudit
from headrace.sqs.bodies import BodyBudget
from headrace.sqs.calls import Realm
from headrace.sqs.deletions import RecentDeletions
from headrace.sqs.endpoint import SqsEndpoint

NOW_MS = 1_760_000_000_000
ACCOUNT = "000000000000"


@dataclass
class One:
    message: OutgoingMessage
    offset: int
    attempt: int = 0


@dataclass
class FakeQueue:
    info: QueueInfo
    texts: dict[str, str]
    messages: list[One] = field(default_factory=list)
    sent: list[OutgoingMessage] = field(default_factory=list)


class FakeQueues:
    def __init__(self) -> None:
        self.by_name: dict[str, FakeQueue] = {}
        self.failure: HeadraceError | None = None
        """Raised by whatever is asked next about messages."""
        self.asked: list[tuple[Any, ...]] = []
        self.tasks: list[Move] = []
        self.arrived = asyncio.Event()
        self.somebody_waits = asyncio.Event()
        self.somebody_gave_up = asyncio.Event()

    async def create(self, name: str, edit: QueueEdit) -> QueueInfo:
        if name in self.by_name:
            raise QueueExists(f"{name} is there")
        return self._set(name, {"type": "standard"}, {}, edit)

    def _set(self, name: str, texts: Mapping[str, str], kept: Mapping[str, str], edit: QueueEdit) -> QueueInfo:
        texts, kept = dict(texts), dict(kept)
        for into, changes in ((texts, edit.settings), (kept, edit.attributes)):
            for key, value in changes.items():
                if value is None:
                    into.pop(key, None)
                else:
                    into[key] = value
        settings = queue_settings({f"queue.{key}": value for key, value in texts.items()})
        info = QueueInfo(name, "id", settings, kept)
        known = self.by_name.get(name)
        if known is None:
            self.by_name[name] = FakeQueue(info, texts)
        else:
            known.info, known.texts = info, texts
        return info

    async def delete(self, name: str) -> None:
        self.find(name)
        del self.by_name[name]

    def queues(self, prefix: str = "") -> list[QueueInfo]:
        return [self.by_name[name].info for name in sorted(self.by_name) if name.startswith(prefix)]

    def find(self, name: str) -> QueueInfo:
        if name not in self.by_name:
            raise UnknownQueue(f"there is no queue {name}")
        return self.by_name[name].info

    async def alter(self, name: str, edit: QueueEdit) -> None:
        known = self.by_name[name]
        if any(known.info.attributes.get(key) != value for key, value in edit.expected.items()):
            raise QueueUnavailable("changed at the same time")
        self._set(name, known.texts, known.info.attributes, edit)

    def _fail(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    async def send(self, name: str, messages: Sequence[OutgoingMessage]) -> list[Sent]:
        self._fail()
        queue = self.by_name[name]
        sent = []
        for message in messages:
            queue.messages.append(One(message, len(queue.sent)))
            sent.append(Sent(message.id, len(queue.sent)))
            queue.sent.append(message)
        self.arrived.set()
        return sent

    async def receive(self, name: str, options: ReceiveOptions) -> list[Received]:
        self._fail()
        self.asked.append(("receive", options))
        queue = self.by_name[name]
        if not queue.messages and options.wait_ms:
            self.arrived.clear()
            self.somebody_waits.set()
            try:
                await asyncio.wait_for(self.arrived.wait(), options.wait_ms / 1000)
            except TimeoutError:
                return []
            except asyncio.CancelledError:
                self.somebody_gave_up.set()
                raise
        found = []
        for one in queue.messages[: options.max_messages]:
            one.attempt += 1
            message = one.message
            found.append(
                Received(
                    message.id,
                    f"{one.offset}-{one.attempt}",
                    message.body,
                    one.offset,
                    NOW_MS,
                    one.attempt,
                    NOW_MS + 1,
                    NOW_MS + 30_000,
                    group=message.group,
                    dedupe=message.dedupe,
                    headers=message.headers,
                )
            )
        return found

    async def acknowledge(self, name: str, receipts: Sequence[str], *, any_receipt: bool = False) -> Failures:
        self._fail()
        self.asked.append(("acknowledge", any_receipt))
        queue = self.by_name[name]
        failures: Failures = []
        for receipt in receipts:
            offset, _, attempt = receipt.partition("-")
            if not offset.isdigit():
                failures.append(InvalidReceipt("no receipt"))
            elif attempt == "old" and not any_receipt:
                failures.append(NotInFlight("old"))
            else:
                queue.messages = [one for one in queue.messages if str(one.offset) != offset]
                failures.append(None)
        return failures

    begin_send, begin_receive, begin_acknowledge = send, receive, acknowledge

    async def begin_receive_batches(self, name: str, options: ReceiveOptions) -> list[Received] | AllReceived:
        self.asked.append(("batches", options.max_messages))
        return AllReceived([], [LeasedRange(0, 19, 1, NOW_MS, NOW_MS)], b"batches", "topic")

    async def begin_acknowledge_ranges(self, name: str, acks: RangeAcks) -> RangeFailures:
        self.asked.append(("ranges", acks.ranges))
        return [(3, NotInFlight("again"))]

    async def extend(self, name: str, wanted: Sequence[tuple[str, int]], *, any_receipt: bool = False) -> Failures:
        self._fail()
        self.asked.append(("extend", list(wanted)))
        return [_refusal(receipt) for receipt, _ in wanted]

    async def nack(self, name: str, wanted: Sequence[tuple[str, int | None, str]]) -> Failures:
        self.asked.append(("nack", list(wanted)))
        return [None for _ in wanted]

    async def peek(self, name: str, wanted: Filter, after_offset: int = -1) -> list[Peeked]:
        self.asked.append(("peek", wanted, after_offset))
        return [
            Peeked(one.message.id, one.message.body, one.offset, NOW_MS, one.attempt, "available")
            for one in self.by_name[name].messages
        ]

    async def purge(self, name: str) -> None:
        self._fail()
        self.by_name[name].messages.clear()

    async def counts(self, name: str) -> Counts:
        return Counts(len(self.by_name[name].messages), 2, 3)

    async def start_move(
        self, source: str, destination: str | None, wanted: Filter, per_second: int | None = None
    ) -> Move:
        self.asked.append(("start_move", wanted))
        move = Move(f"move{len(self.tasks)}", source, destination, "RUNNING", NOW_MS, 1, 7, per_second)
        self.tasks.insert(0, move)
        return move

    async def cancel_move(self, move_id: str) -> Move:
        (found,) = [each for each in self.tasks if each.id == move_id]
        done = Move(found.id, found.source, found.destination, "CANCELLED", NOW_MS, 5, 7)
        self.tasks[self.tasks.index(found)] = done
        return done

    def source_of(self, move_id: str) -> str:
        (found,) = [each for each in self.tasks if each.id == move_id]
        return found.source

    async def moves(self, source: str) -> list[Move]:
        return [move for move in self.tasks if move.source == source]


def _refusal(receipt: str) -> HeadraceError | None:
    if not receipt[0].isdigit():
        return InvalidReceipt("no receipt")
    if receipt.endswith("-gone"):
        return NotInFlight("gone")
    return LeaseTooLong("12 hours") if receipt.endswith("-long") else None


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def xml(self) -> ElementTree.Element:
        """Without the namespace, for shorter tests."""
        return ElementTree.fromstring(self.body.replace(b' xmlns="http://queue.amazonaws.com/doc/2012-11-05/"', b""))

    @property
    def error(self) -> tuple[int, str, str]:
        """Status, code of the query protocol and sentence, of either protocol."""
        if self.headers["content-type"] == "text/xml":
            root = self.xml
            return self.status, root.findtext("Error/Code") or "", root.findtext("Error/Message") or ""
        return self.status, self.headers["x-amzn-query-error"].partition(";")[0], self.json["message"]


class Client:
    """Talks to an endpoint without sockets."""

    def __init__(self, keys: Mapping[str, str] | None = None) -> None:
        self.queues = FakeQueues()
        self.now_ms = NOW_MS
        self.mono_ms = 0.0
        self.recreate_wait_ms = 0
        self.deletions = RecentDeletions(lambda: self.mono_ms, lambda: self.recreate_wait_ms)
        self.security = Security()
        access = QueueAccess(self.security, ACCOUNT, "us-east-1", lambda: self.now_ms)
        audit = SqsAudit(self.security.audit)
        realm = Realm(self.queues, ACCOUNT, "us-east-1", self.deletions, lambda: self.now_ms, access, audit)
        self.bodies = BodyBudget(1024 * 1024 * 1024)
        self.endpoint = SqsEndpoint(realm, AccessKeys(keys or {}, self.security, is_open=True), self.bodies)
        self.disconnected = asyncio.Event()

    async def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | Sequence[bytes] = b"", query: str = ""
    ) -> Answer:
        pieces = [body] if isinstance(body, bytes) else list(body)
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            if pieces:
                piece = pieces.pop(0)
                return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
            await self.disconnected.wait()
            return {"type": "http.disconnect"}

        async def send(event: Any) -> None:
            sent.append(event)

        scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "server": ("127.0.0.1", 9324),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
        await self.endpoint(scope, receive, send)
        if not sent:
            raise ConnectionError("no answer")
        start, content = sent
        told = {name.decode(): value.decode() for name, value in start["headers"]}
        assert int(told["content-length"]) == len(content["body"])
        return Answer(start["status"], told, content["body"])

    async def json(self, action: str, /, *, more: Any = None, **parameters: Any) -> Answer:
        """`more` is what the request has of other headers."""
        headers = {
            "Host": "queues.test:9324",
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"AmazonSQS.{action}",
            **(more or {}),
        }
        return await self.request("POST", "/", headers, json.dumps(parameters).encode())

    async def query(
        self,
        action: str,
        fields: Mapping[str, object] | None = None,
        path: str = "/",
        more: Mapping[str, str] | None = None,
    ) -> Answer:
        headers = {
            "Host": "queues.test:9324",
            "Content-Type": "application/x-www-form-urlencoded",
            **(more or {}),
        }
        form = urlencode({"Action": action, "Version": "2012-11-05", **(fields or {})}, doseq=True)
        return await self.request("POST", path, headers, form.encode())

    async def queue(self, name: str = "work", **attributes: str) -> str:
        """Make one, and its URL."""
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        answer = await self.json("CreateQueue", QueueName=name, Attributes=attributes)
        assert answer.status == 200, answer
        url: str = answer.json["QueueUrl"]
        return url


def run(test: Callable[[Client], Awaitable[None]], **arguments: Any) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(Client(**arguments)), 60)

    asyncio.run(bounded())
