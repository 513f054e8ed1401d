"""Queues that another broker leads: calls go there and back as bytes, and what waits keeps nobody else waiting."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from headrace.model.errors import (
    FeatureUpdateRefused,
    InvalidReceipt,
    NotLeader,
    PeerUnavailable,
    QueueElsewhere,
    QueueUnavailable,
    StaleQueueLeader,
    UnknownMove,
    UnknownQueue,
)
from headrace.model.features import LATEST_LEVEL
from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage
from headrace.model.queue_wire import Counts, Filter, OutgoingMessage
from headrace.protocol.codec import make, response_schema
from headrace.queues import remote, router
from headrace.queues.api import ReceiveOptions
from headrace.queues.router import QueueRouter
from headrace.queues.service import QueueService
from headrace.queues.state_machine import StatePage
from headrace.queues.state_store import OpenState, ReadState, WriteState
from headrace.replication.calls import ask, encode_call, read_answer
from tests.unit.queues.brokers import QueueBroker
from tests.waiting import until_async


class Network:
    """The other broker, which answers as a connection does: per lane, in the order of the requests."""

    def __init__(self, service: QueueService) -> None:
        self.service = service
        self.feature_level = LATEST_LEVEL
        self.problems: list[Exception] = []
        self.lanes: dict[str, asyncio.Lock] = {}
        self.forgotten: list[str] = []

    async def call(self, broker_id: BrokerId, request: Any, *, lane: str, timeout_s: float) -> Any:
        if self.problems:
            raise self.problems.pop(0)
        async with self.lanes.setdefault(lane, asyncio.Lock()):
            data = await self.service.serve(request.request_data)
        return make(response_schema(58, 0).EnvelopeResponse, response_data=data, error_code=ErrorCode.none)

    async def forget(self, broker_id: BrokerId, lane: str) -> None:
        self.forgotten.append(lane)


class Images:
    """The cluster as a broker sees it that leads nothing."""

    broker_id = BrokerId(99)

    def __init__(self, broker: QueueBroker) -> None:
        self._metadata = broker.services.metadata
        self._random = Random()

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image


class Elsewhere(QueueService):
    """A broker that leads nothing, beside one that leads everything."""

    def __init__(self, broker: QueueBroker) -> None:
        self.network = Network(broker.queues)
        self.catalog = broker.queues.catalog
        self._metadata = broker.services.metadata
        self._random = Random()
        peers: Any = self.network
        images: Any = Images(broker)
        self._router = QueueRouter(self.catalog, images, broker.services.clock, peers, self._nothing_here)

    def _nothing_here(self, *_: object) -> Any:
        raise NotLeader("nothing is led here")


@pytest.fixture
def other(broker: QueueBroker) -> Elsewhere:
    return Elsewhere(broker)


def test_everything_can_be_asked_of_any_broker(broker: QueueBroker, other: Elsewhere) -> None:
    dead = broker.create()
    name = broker.create(max_receives="1", dead_letter=dead)

    async def run() -> None:
        message = OutgoingMessage(b"\x00\xff", "one", priority=6, group="g", headers=(("h", None), ("i", b"\x80")))
        (sent,) = await other.send(name, [message])
        assert sent.id == "one"
        (seen,) = await other.peek(name, Filter(ids=["one"]))
        assert (seen.body, seen.headers) == (message.body, message.headers)
        (got,) = await other.receive(name, ReceiveOptions(10, visibility_ms=600_000))
        assert (got.body, got.priority, got.group, got.headers) == (b"\x00\xff", 6, "g", message.headers)
        assert (await other.counts(name)).in_flight == 1
        none, failure = await other.extend(name, [(got.receipt, 700_000), ("nonsense", 1)])
        assert none is None
        assert isinstance(failure, InvalidReceipt)
        assert await other.nack(name, [(got.receipt, None, "why")]) == [None]
        (letter,) = await other.receive(dead, ReceiveOptions(1, 20_000))
        assert await other.extend(dead, [(letter.receipt, 0)]) == [None]
        move = await other.start_move(dead, None, Filter(reason_contains="why"), per_second=100)
        (back,) = await other.receive(name, ReceiveOptions(1, 20_000))
        assert await other.acknowledge(name, [back.receipt]) == [None]
        assert [each.id for each in await other.moves(dead)] == [move.id]
        assert (await other.cancel_move(move.id)).id == move.id
        await other.purge(name)
        with pytest.raises(UnknownMove):
            await other.cancel_move(move.id + "0")
        with pytest.raises(UnknownQueue):
            await other.counts("nowhere")

    broker.run(run())


def test_receives_that_wait_elsewhere_keep_nobody_waiting(
    broker: QueueBroker, other: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_WAITING_LANES", 2)
    name = broker.create()

    async def run() -> None:
        waiting = [asyncio.ensure_future(other.receive(name, ReceiveOptions(1, 20_000))) for _ in range(4)]
        await until_async(lambda: sum(lane.startswith("queues-wait") for lane in other.network.lanes) == 2)
        await other.send(name, [OutgoingMessage(b"x", str(number)) for number in range(4)])
        assert [len(got) for got in await asyncio.gather(*waiting)] == [1, 1, 1, 1]
        # Their connections are used again.
        await other.send(name, [OutgoingMessage(b"y", "y")])
        assert len(await other.receive(name, ReceiveOptions(1, 20_000))) == 1
        assert sum(lane.startswith("queues-wait") for lane in other.network.lanes) == 2
        assert other.network.forgotten == []

    broker.run(run())


def test_a_receiver_that_goes_away_hangs_up(broker: QueueBroker, other: Elsewhere) -> None:
    name = broker.create()

    async def run() -> None:
        waiting = asyncio.ensure_future(other.receive(name, ReceiveOptions(1, 20_000)))
        await until_async(lambda: bool(other.network.lanes))
        waiting.cancel()
        await asyncio.wait([waiting])
        assert other.network.forgotten == list(other.network.lanes)

    broker.run(run())


def test_what_does_no_harm_is_asked_again_and_a_send_is_not(
    broker: QueueBroker, other: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = broker.create()

    async def run() -> None:
        other.network.problems = [PeerUnavailable("gone"), NotLeader("not yet"), QueueUnavailable("loading")]
        assert (await other.counts(name)).available == 0
        other.network.problems = [NotLeader("not yet")]
        assert len(await other.send(name, [OutgoingMessage(b"x", "x")])) == 1
        other.network.problems = [PeerUnavailable("gone")]
        with pytest.raises(QueueUnavailable, match="gone"):
            await other.send(name, [OutgoingMessage(b"y", "y")])
        assert (await other.counts(name)).available == 1
        monkeypatch.setattr(router, "_PATIENCE_MS", 50)
        other.network.problems = [NotLeader("never")] * 100
        with pytest.raises(QueueUnavailable, match="never"):
            await other.counts(name)

    broker.run(run())


def test_the_state_of_queues_is_kept_for_other_brokers(broker: QueueBroker, other: Elsewhere) -> None:
    # The first queue that is loaded makes the topic of the state.
    assert broker.receive(broker.create()) == []
    peers: Any = other.network

    async def run() -> None:
        async def asked(call: Any, result: type[Any]) -> Any:
            return await ask(peers, BrokerId(0), call, result, lane="state", timeout_s=10)

        term = await asked(OpenState("x:0:", 5), int)
        await asked(WriteState("x:0:", term, [(b"a", b"1"), (b"b", b"2"), (b"a", None)]), type(None))
        page = await asked(ReadState("x:0:", term, 0), StatePage)
        assert page.entries == [(b"b", b"2")]
        with pytest.raises(StaleQueueLeader):
            await asked(OpenState("x:0:", 4), int)

    broker.run(run())


def test_a_call_that_older_brokers_do_not_know_waits_for_the_feature_level(
    broker: QueueBroker, other: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = broker.create()
    monkeypatch.setattr(remote.CountCall, "level", LATEST_LEVEL)

    async def run() -> None:
        other.network.feature_level = LATEST_LEVEL - 1
        with pytest.raises(FeatureUpdateRefused, match="CountCall needs feature level"):
            await other.counts(name)
        other.network.feature_level = LATEST_LEVEL
        assert (await other.counts(name)).available == 0

    broker.run(run())


def test_a_call_of_a_newer_version_is_refused_and_harms_nobody(broker: QueueBroker) -> None:
    async def run() -> None:
        for unknown in (msgspec.msgpack.encode(["CallOfTomorrow", 1]), b"\xc1", b""):
            with pytest.raises(PeerUnavailable, match="another version"):
                read_answer(await broker.queues.serve(unknown), type(None))

    broker.run(run())


def test_a_call_for_a_queue_that_this_broker_does_not_know_yet_is_to_be_tried_again(broker: QueueBroker) -> None:
    """The caller may have an image that is newer by the creation of the queue."""

    async def run() -> None:
        answer = await broker.queues.serve(encode_call(remote.CountCall("of-tomorrow")))
        with pytest.raises(NotLeader, match="of-tomorrow, or not yet"):
            read_answer(answer, Counts)

    broker.run(run())


def test_a_call_for_a_queue_whose_home_is_another_cluster_is_refused_at_once(
    broker: QueueBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(name: str) -> None:
        raise QueueElsewhere(f"there is no queue {name} here: its home is another cluster")

    monkeypatch.setattr(broker.queues.catalog, "topic", moved)

    async def run() -> None:
        with pytest.raises(QueueElsewhere):
            read_answer(await broker.queues.serve(encode_call(remote.CountCall("moved"))), Counts)

    broker.run(run())
