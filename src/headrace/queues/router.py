"""Asking the broker that leads a queue, whichever that is.

Here if this broker leads it; else by Envelope. While the leader changes, what was certainly not done, or does no harm
when it is done twice, is asked again for a while. A send whose outcome is not known is not: its sender decides.

Answers leave a broker in the order of the requests on a connection. So what waits for messages has a connection of its
own while it waits, of which there are a bounded number for each broker; when all are in use, it asks now and then.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from headrace.cluster.metadata import Metadata
from headrace.model.errors import HeadraceError, NotCoordinator, NotLeader, PeerUnavailable, QueueUnavailable
from headrace.model.ids import NO_LEADER, BrokerId
from headrace.model.image import TopicImage
from headrace.model.queue_wire import Filter, Headers, OutgoingMessage, Received
from headrace.queues.api import ReceiveOptions
from headrace.queues.catalog import QueueCatalog
from headrace.queues.rpc import Call, ask
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock

T = TypeVar("T")

_PATIENCE_MS = 10_000
_PAUSE_FIRST_S = 0.01
_PAUSE_MAX_S = 0.25
_TIMEOUT_S = 30.0
_WAITING_LANES = 64
_ASK_EVERY_S = 0.25


class QueueCall(Call, frozen=True):
    queue: str


class SendCall(QueueCall, frozen=True):
    messages: list[OutgoingMessage]


class RecordsCall(QueueCall, frozen=True):
    """A page of messages from another queue: time, key, value and headers of each record. It does no harm when it comes
    twice."""

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
    """New for each purge: one that is asked for again is done once."""


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

_NOT_REPEATED = (SendCall, StartMoveCall)
_LANES: dict[type, str] = {
    SendCall: "queues-send",
    RecordsCall: "queues-send",
    ReceiveCall: "queues-receive",
    AcknowledgeCall: "queues-settle",
    ExtendCall: "queues-settle",
    GiveBackCall: "queues-settle",
}


class QueueRouter:
    def __init__(
        self,
        catalog: QueueCatalog,
        metadata: Metadata,
        clock: Clock,
        peers: Peers | None,
        here: Callable[[TopicImage, AnyQueueCall], Awaitable[Any]],
    ) -> None:
        """`here` does what is asked of a queue that this broker leads; `NotLeader` if it does not."""
        self._catalog = catalog
        self._metadata = metadata
        self._clock = clock
        self._peers = peers
        self._here = here
        self._free: dict[BrokerId, list[str]] = defaultdict(list)
        self._lanes: dict[BrokerId, int] = defaultdict(int)

    async def ask(self, call: AnyQueueCall, result: type[T]) -> T:
        """The answer of the queue's leader. `UnknownQueue`, `QueueUnavailable` after a while, or what it says."""
        deadline_ms = self._clock.monotonic_ms() + _PATIENCE_MS
        pause_s = _PAUSE_FIRST_S
        while True:
            topic = self._catalog.topic(call.queue)
            try:
                return await self._ask_leader(topic, call, result)
            except (NotLeader, NotCoordinator) as error:
                problem: HeadraceError = error
            except (PeerUnavailable, QueueUnavailable) as error:
                if isinstance(call, _NOT_REPEATED):
                    raise _unavailable(error) from None
                problem = error
            if self._clock.monotonic_ms() >= deadline_ms:
                raise _unavailable(problem) from None
            await asyncio.sleep(pause_s)
            pause_s = min(_PAUSE_MAX_S, pause_s * 2)

    async def _ask_leader(self, topic: TopicImage, call: AnyQueueCall, result: type[T]) -> T:
        leader = topic.partitions[0].leader
        if leader == self._metadata.broker_id:
            answer: T = await self._here(topic, call)
            return answer
        if self._peers is None or leader == NO_LEADER or not self._metadata.image.is_alive(leader):
            raise NotLeader(f"nobody leads the queue {topic.name} now")
        if isinstance(call, ReceiveCall) and self._wait_ms(topic, call) > 0:
            waited: Any = await self._wait_at(leader, topic, call)
            return waited  # type: ignore[no-any-return]
        lane = _LANES.get(type(call), "queues")
        return await ask(self._peers, leader, call, result, lane=lane, timeout_s=_TIMEOUT_S)

    # -- waiting elsewhere

    def _wait_ms(self, topic: TopicImage, call: ReceiveCall) -> int:
        wait_ms = call.options.wait_ms
        return self._catalog.info(topic).settings.receive_wait_ms if wait_ms is None else wait_ms

    async def _wait_at(self, leader: BrokerId, topic: TopicImage, call: ReceiveCall) -> list[Received]:
        assert self._peers is not None
        wait_s = self._wait_ms(topic, call) / 1000
        lane = self._take_lane(leader)
        if lane is None:
            return await self._ask_now_and_then(leader, call, wait_s)
        is_usable = False
        try:
            answer = await ask(self._peers, leader, call, list[Received], lane=lane, timeout_s=wait_s + _TIMEOUT_S)
            is_usable = True
            return answer
        except HeadraceError:
            is_usable = True
            raise
        finally:
            if not is_usable:
                # Whoever asked has gone. Hanging up tells the leader, which gives to others what it had for this one.
                await self._peers.forget(leader, lane)
            self._free[leader].append(lane)

    def _take_lane(self, leader: BrokerId) -> str | None:
        if self._free[leader]:
            return self._free[leader].pop()
        if self._lanes[leader] == _WAITING_LANES:
            return None
        self._lanes[leader] += 1
        return f"queues-wait-{self._lanes[leader]}"

    async def _ask_now_and_then(self, leader: BrokerId, call: ReceiveCall, wait_s: float) -> list[Received]:
        assert self._peers is not None
        deadline_ms = self._clock.monotonic_ms() + wait_s * 1000
        at_once = ReceiveCall(call.queue, replace(call.options, wait_ms=0))
        while True:
            got = await ask(
                self._peers, leader, at_once, list[Received], lane=_LANES[ReceiveCall], timeout_s=_TIMEOUT_S
            )
            if got or self._clock.monotonic_ms() >= deadline_ms:
                return got
            await asyncio.sleep(_ASK_EVERY_S)


def _unavailable(error: HeadraceError) -> HeadraceError:
    return error if isinstance(error, QueueUnavailable) else QueueUnavailable(f"the queue cannot be asked now: {error}")
