"""A queue that another broker leads: its operations as calls to that broker, and those calls carried out there.

Answers leave a broker in the order of the requests on a connection. So a receive that waits for messages has a
connection of its own while it waits, of which there are a bounded number for each broker; when all are in use, it polls
instead.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from headrace.model.errors import HeadraceError, InvalidReceipt
from headrace.model.ids import BrokerId
from headrace.model.queue_wire import (
    AllReceived,
    Counts,
    Filter,
    Headers,
    Move,
    OutgoingMessage,
    Peeked,
    Received,
    Sent,
)
from headrace.queues.api import Failures, RangeAcks, RangeFailures, ReceiveOptions
from headrace.queues.host.receipts import Receipts
from headrace.queues.operations import QueueOperations
from headrace.records.reader import Record
from headrace.replication.calls import Call, CallRefused, ask, decoded_error, encoded_error
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock

T = TypeVar("T")

_TIMEOUT_S = 30.0
_WAITING_LANES = 64
_POLL_EVERY_S = 0.25


class QueueCall(Call, frozen=True):
    queue: str


class SendCall(QueueCall, frozen=True):
    messages: list[OutgoingMessage]


class RecordsCall(QueueCall, frozen=True):
    """Time, key, value and headers of each record of a page of messages from another queue."""

    records: list[tuple[int, bytes | None, bytes | None, Headers]]


class ReceiveCall(QueueCall, frozen=True):
    options: ReceiveOptions


class AcknowledgeCall(QueueCall, frozen=True):
    receipts: list[str]
    any_receipt: bool = False


class ExtendCall(QueueCall, frozen=True):
    wanted: list[tuple[str, int]]
    any_receipt: bool = False


class GiveBackCall(QueueCall, frozen=True):
    wanted: list[tuple[str, int | None, str]]


class PeekCall(QueueCall, frozen=True):
    wanted: Filter
    after_offset: int


class PurgeCall(QueueCall, frozen=True):
    asked: str
    """New for each purge: a purge that is repeated is done once."""


class CountCall(QueueCall, frozen=True): ...


class StartMoveCall(QueueCall, frozen=True):
    destination: str | None
    wanted: Filter
    per_second: int | None


class CancelMoveCall(QueueCall, frozen=True):
    move_id: str


class ListMovesCall(QueueCall, frozen=True): ...


AnyQueueCall = (
    SendCall
    | RecordsCall
    | ReceiveCall
    | AcknowledgeCall
    | ExtendCall
    | GiveBackCall
    | PeekCall
    | PurgeCall
    | CountCall
    | StartMoveCall
    | CancelMoveCall
    | ListMovesCall
)

_LANES: dict[type, str] = {
    SendCall: "queues-send",
    RecordsCall: "queues-send",
    ReceiveCall: "queues-receive",
    AcknowledgeCall: "queues-settle",
    ExtendCall: "queues-settle",
    GiveBackCall: "queues-settle",
}


async def perform(queue: QueueOperations, call: AnyQueueCall) -> Any:
    """Carry out the call of another broker; the answer as it is encoded."""
    match call:
        case SendCall(_, messages):
            return await queue.send(messages)
        case RecordsCall(_, records):
            return await queue.send_records([Record(0, *record) for record in records])
        case ReceiveCall(_, options):
            return await queue.receive(options)
        case AcknowledgeCall(_, receipts, any_receipt):
            return _encoded(await queue.acknowledge(receipts, any_receipt=any_receipt))
        case ExtendCall(_, extensions, any_receipt):
            return _encoded(await queue.extend(extensions, any_receipt=any_receipt))
        case GiveBackCall(_, returns):
            return _encoded(await queue.nack(returns))
        case PeekCall(_, wanted, after_offset):
            return await queue.peek(wanted, after_offset)
        case PurgeCall(_, asked):
            return await queue.purge(asked)
        case CountCall():
            return await queue.counts()
        case StartMoveCall(_, destination, wanted, per_second):
            return await queue.start_move(destination, wanted, per_second)
        case CancelMoveCall(_, move_id):
            return await queue.cancel_move(move_id)
        case ListMovesCall():
            return await queue.moves()


def _encoded(failures: Failures) -> list[CallRefused | None]:
    return [None if error is None else encoded_error(error) for error in failures]


class WaitingLanes:
    """Connections for receives that wait, to each broker."""

    def __init__(self) -> None:
        self._free: dict[BrokerId, list[str]] = defaultdict(list)
        self._made: dict[BrokerId, int] = defaultdict(int)

    def take(self, leader: BrokerId) -> str | None:
        """A connection that is not in use; None if there are as many as may be, and all are."""
        if self._free[leader]:
            return self._free[leader].pop()
        if self._made[leader] == _WAITING_LANES:
            return None
        self._made[leader] += 1
        return f"queues-wait-{self._made[leader]}"

    def release(self, leader: BrokerId, lane: str) -> None:
        self._free[leader].append(lane)


class RemoteQueue:
    """Implements `operations.QueueOperations`. `PeerUnavailable` if the leader does not answer."""

    __slots__ = ("_clock", "_default_wait_ms", "_lanes", "_leader", "_name", "_peers")

    def __init__(
        self, name: str, leader: BrokerId, peers: Peers, clock: Clock, lanes: WaitingLanes, *, default_wait_ms: int
    ) -> None:
        """`default_wait_ms` is how long a receive waits that does not say."""
        self._name = name
        self._leader = leader
        self._peers = peers
        self._clock = clock
        self._lanes = lanes
        self._default_wait_ms = default_wait_ms

    async def send(self, messages: Sequence[OutgoingMessage]) -> list[Sent]:
        return await self._ask(SendCall(self._name, list(messages)), list[Sent])

    async def send_records(self, records: Sequence[Record]) -> None:
        encoded = [(record.timestamp, record.key, record.value, record.headers) for record in records]
        await self._ask(RecordsCall(self._name, encoded), type(None))

    async def acknowledge(self, receipts: Sequence[str], *, any_receipt: bool) -> Failures:
        return await self._settle(AcknowledgeCall(self._name, list(receipts), any_receipt))

    async def receive_batches(self, options: ReceiveOptions) -> list[Received] | AllReceived:
        return await self.receive(options)

    async def acknowledge_ranges(self, acks: RangeAcks) -> RangeFailures:
        try:
            receipts = Receipts(UUID(acks.topic_id))
        except ValueError:
            raise InvalidReceipt("the messages are of another queue") from None
        offsets = [offset for first, last, _ in acks.ranges for offset in range(first, last + 1)]
        texts = [text for each in acks.ranges for text in receipts.write_all(*each)]
        failures = await self.acknowledge(texts, any_receipt=False)
        return [(offset, error) for offset, error in zip(offsets, failures, strict=True) if error is not None]

    async def extend(self, wanted: Sequence[tuple[str, int]], *, any_receipt: bool) -> Failures:
        return await self._settle(ExtendCall(self._name, list(wanted), any_receipt))

    async def nack(self, wanted: Sequence[tuple[str, int | None, str]]) -> Failures:
        return await self._settle(GiveBackCall(self._name, list(wanted)))

    async def peek(self, wanted: Filter, after_offset: int) -> list[Peeked]:
        return await self._ask(PeekCall(self._name, wanted, after_offset), list[Peeked])

    async def purge(self, purge_id: str) -> None:
        await self._ask(PurgeCall(self._name, purge_id), type(None))

    async def counts(self) -> Counts:
        return await self._ask(CountCall(self._name), Counts)

    async def start_move(self, destination: str | None, wanted: Filter, per_second: int | None) -> Move:
        return await self._ask(StartMoveCall(self._name, destination, wanted, per_second), Move)

    async def cancel_move(self, move_id: str) -> Move:
        return await self._ask(CancelMoveCall(self._name, move_id), Move)

    async def moves(self) -> list[Move]:
        return await self._ask(ListMovesCall(self._name), list[Move])

    async def _settle(self, call: AnyQueueCall) -> Failures:
        refused: list[CallRefused | None] = await self._ask(call, list[CallRefused | None])
        return [None if each is None else decoded_error(each) for each in refused]

    async def _ask(self, call: AnyQueueCall, result: type[T]) -> T:
        lane = _LANES.get(type(call), "queues")
        return await ask(self._peers, self._leader, call, result, lane=lane, timeout_s=_TIMEOUT_S)

    # -- receiving

    async def receive(self, options: ReceiveOptions) -> list[Received]:
        wait_ms = self._default_wait_ms if options.wait_ms is None else options.wait_ms
        if wait_ms <= 0:
            return await self._ask(ReceiveCall(self._name, options), list[Received])
        lane = self._lanes.take(self._leader)
        if lane is None:
            return await self._poll(options, wait_ms)
        return await self._wait(options, wait_ms, lane)

    async def _wait(self, options: ReceiveOptions, wait_ms: int, lane: str) -> list[Received]:
        call, timeout_s = ReceiveCall(self._name, options), wait_ms / 1000 + _TIMEOUT_S
        is_usable = False
        try:
            received = await ask(self._peers, self._leader, call, list[Received], lane=lane, timeout_s=timeout_s)
            is_usable = True
            return received
        except HeadraceError:
            is_usable = True
            raise
        finally:
            if not is_usable:
                # The receiver is gone. The leader sees that by the closed connection, and returns what it leased to it.
                await self._peers.forget(self._leader, lane)
            self._lanes.release(self._leader, lane)

    async def _poll(self, options: ReceiveOptions, wait_ms: int) -> list[Received]:
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        call = ReceiveCall(self._name, msgspec.structs.replace(options, wait_ms=0))
        while True:
            received = await self._ask(call, list[Received])
            if received or self._clock.monotonic_ms() >= deadline_ms:
                return received
            await asyncio.sleep(_POLL_EVERY_S)
