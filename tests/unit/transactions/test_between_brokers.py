"""Markers and joins that go to other brokers: what is asked, and what becomes of each answer."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from tests.entities import build

from headrace.model.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    FencedCoordinator,
    FencedProducer,
    HeadraceError,
    NotCoordinator,
    NotLeader,
    PeerUnavailable,
    TransactionAbortable,
    UnknownTopic,
)
from headrace.model.ids import NO_LEADER, BrokerId, ProducerIdAndEpoch
from headrace.records.markers import Marker
from headrace.runtime.deferred import Deferred
from headrace.transactions.add_partitions import PartitionAdder, Problems
from headrace.transactions.marker_guard import MarkerGuards
from headrace.transactions.marker_sender import MarkerSender
from headrace.transactions.records import Place

OWN, OTHER = BrokerId(1), BrokerId(2)
COMMIT = Marker(True, 7)
SOMEBODY = ProducerIdAndEpoch(40, 3)


class FakePeers:
    """Answers each request with the codes that it was given, by place; what has none is fine."""

    def __init__(self) -> None:
        self.codes: dict[Place, ErrorCode] = {}
        self.is_away = False
        self.refusal = ErrorCode.none
        self.may_have_arrived = False
        self.requests: list[tuple[BrokerId, str, Any]] = []
        self.was_asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def call(self, broker_id: BrokerId, request: Any, *, lane: str, timeout_s: float) -> Any:
        self.requests.append((broker_id, lane, request))
        self.was_asked.set()
        await self.go_on.wait()
        if self.is_away:
            away = PeerUnavailable("away")
            away.may_have_arrived = self.may_have_arrived
            raise away
        return build(load_response_schema(request.__api_key__, request.__version__), self._answer(request))

    def _answer(self, request: Any) -> dict[str, Any]:
        if request.__api_key__ == 27:
            return {
                "markers": [
                    {
                        "producer_id": marker.producer_id,
                        "topics": [
                            {
                                "name": topic.name,
                                "partitions": [
                                    {"partition_index": index, "error_code": self._code(topic.name, index)}
                                    for index in topic.partition_indexes
                                ],
                            }
                            for topic in marker.topics
                        ],
                    }
                    for marker in request.markers
                ]
            }
        if self.refusal is not ErrorCode.none:
            return {"error_code": self.refusal}
        return {
            "results_by_transaction": [
                {
                    "transactional_id": asked.transactional_id,
                    "topic_results": [
                        {
                            "name": topic.name,
                            "results_by_partition": [
                                {"partition_index": index, "partition_error_code": self._code(topic.name, index)}
                                for index in topic.partitions
                            ],
                        }
                        for topic in asked.topics
                    ],
                }
                for asked in request.transactions
            ]
        }

    def _code(self, topic: str, index: int) -> ErrorCode:
        return self.codes.get((topic, index), ErrorCode.none)


class LocalWriter:
    def __init__(self) -> None:
        self.written: list[Place] = []

    def write(self, place: Place, producer: ProducerIdAndEpoch, marker: Marker) -> Deferred[HeadraceError | None]:
        self.written.append(place)
        done: Deferred[HeadraceError | None] = Deferred()
        done.resolve(None)
        return done


def metadata(*leaders: int) -> Any:
    """A topic `t` with partitions that these brokers lead."""
    partitions = [SimpleNamespace(leader=BrokerId(leader)) for leader in leaders]
    image = SimpleNamespace(topics={"t": SimpleNamespace(partitions=partitions)})
    return SimpleNamespace(image=image, broker_id=OWN)


async def settled(done: Deferred[HeadraceError | None]) -> HeadraceError | None:
    future: asyncio.Future[HeadraceError | None] = asyncio.get_running_loop().create_future()
    done.then(future.set_result)
    return await asyncio.wait_for(future, 30)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_a_marker_goes_where_its_partition_is_led() -> None:
    async def scenario() -> None:
        local, peers = LocalWriter(), FakePeers()
        router = MarkerSender(local, metadata(OWN, OTHER, NO_LEADER), peers)  # type: ignore[arg-type]
        assert await settled(router.write(("t", 0), SOMEBODY, COMMIT)) is None
        assert await settled(router.write(("t", 1), SOMEBODY, COMMIT)) is None
        assert isinstance(await settled(router.write(("t", 2), SOMEBODY, COMMIT)), NotLeader)
        assert isinstance(await settled(router.write(("t", 3), SOMEBODY, COMMIT)), UnknownTopic)
        assert isinstance(await settled(router.write(("gone", 0), SOMEBODY, COMMIT)), UnknownTopic)
        assert local.written == [("t", 0)]
        ((broker, _, request),) = peers.requests
        (marker,) = request.markers
        assert broker == OTHER
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (40, 3, True)
        assert (marker.coordinator_epoch, marker.topics[0].name, marker.topics[0].partition_indexes) == (7, "t", (1,))
        await router.stop()

    run(scenario)


def test_markers_for_one_broker_go_together() -> None:
    async def scenario() -> None:
        peers = FakePeers()
        router = MarkerSender(LocalWriter(), metadata(*[OTHER] * 10), peers)  # type: ignore[arg-type]
        peers.go_on.clear()
        waiting = [router.write(("t", 0), SOMEBODY, COMMIT)]
        await peers.was_asked.wait()
        for number in range(40):
            waiting.append(router.write(("t", number % 10), ProducerIdAndEpoch(100 + number // 10, 0), COMMIT))
        peers.go_on.set()
        assert [await settled(one) for one in waiting] == [None] * 41
        assert len(peers.requests) == 2
        assert [len(marker.topics[0].partition_indexes) for marker in peers.requests[1][2].markers] == [10] * 4
        await router.stop()

    run(scenario)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.not_leader_or_follower, NotLeader),
        (ErrorCode.unknown_topic_or_partition, NotLeader),
        (ErrorCode.invalid_producer_epoch, FencedProducer),
        (ErrorCode.transaction_coordinator_fenced, FencedCoordinator),
        (ErrorCode.unknown_server_error, PeerUnavailable),
    ],
)
def test_what_another_broker_says_of_a_marker(code: ErrorCode, error: type[HeadraceError]) -> None:
    async def scenario() -> None:
        peers = FakePeers()
        router = MarkerSender(LocalWriter(), metadata(OTHER, OTHER), peers)  # type: ignore[arg-type]
        peers.codes["t", 0] = code
        failed, fine = router.write(("t", 0), SOMEBODY, COMMIT), router.write(("t", 1), SOMEBODY, COMMIT)
        assert type(await settled(failed)) is error
        assert await settled(fine) is None
        peers.is_away = True
        for may_have_arrived in (False, True):
            peers.may_have_arrived = may_have_arrived
            silence = await settled(router.write(("t", 1), SOMEBODY, COMMIT))
            assert isinstance(silence, PeerUnavailable)
            assert silence.may_have_arrived is may_have_arrived
        await router.stop()

    run(scenario)


def test_a_partition_that_is_slow_does_not_keep_others_waiting() -> None:
    async def scenario() -> None:
        peers = FakePeers()
        router = MarkerSender(LocalWriter(), metadata(OTHER, OTHER), peers)  # type: ignore[arg-type]
        peers.codes["t", 0] = ErrorCode.request_timed_out
        assert await settled(router.write(("t", 0), SOMEBODY, COMMIT)) is not None
        peers.codes.clear()
        assert await settled(router.write(("t", 0), SOMEBODY, COMMIT)) is None
        assert await settled(router.write(("t", 1), SOMEBODY, COMMIT)) is None
        assert await settled(router.write(("t", 0), SOMEBODY, COMMIT)) is None
        lanes = [lane for _, lane, _ in peers.requests]
        assert lanes[0] == lanes[2] == lanes[3] != lanes[1]
        await router.stop()

    run(scenario)


class FakeTransactions:
    def __init__(self, *, is_here: bool = False) -> None:
        self.here = is_here
        self.added: list[Place] = []

    def is_here(self, transactional_id: str) -> bool:
        return self.here

    def leader_for(self, transactional_id: str) -> BrokerId:
        if transactional_id == "nobody":
            raise CoordinatorNotAvailable("nobody leads")
        return OTHER

    async def add(self, transactional_id: str, producer: ProducerIdAndEpoch, places: Iterable[Place]) -> None:
        self.added.extend(places)

    def verify(self, transactional_id: str, producer: ProducerIdAndEpoch, place: Place) -> None:
        if place not in self.added:
            raise TransactionAbortable("not part of it")


def joining(peers: FakePeers | None, *, is_here: bool = False) -> tuple[PartitionAdder, FakeTransactions]:
    transactions = FakeTransactions(is_here=is_here)
    return PartitionAdder(transactions, metadata(), peers), transactions  # type: ignore[arg-type]


@pytest.mark.parametrize("is_single_node", [True, False])
def test_a_coordinator_on_this_broker_is_asked_without_a_request(is_single_node: bool) -> None:
    async def scenario() -> None:
        peers = FakePeers()
        join, transactions = joining(None if is_single_node else peers, is_here=not is_single_node)
        assert await join.join("id", SOMEBODY, [("t", 0)], adds=True) == {}
        assert transactions.added == [("t", 0)]
        problems = await join.join("id", SOMEBODY, [("t", 0), ("t", 1)], adds=False)
        assert list(problems) == [("t", 1)]
        assert not peers.requests

    run(scenario)


def test_many_transactions_are_asked_about_at_once() -> None:
    async def scenario() -> None:
        peers = FakePeers()
        join, _ = joining(peers)
        peers.codes["t", 3] = ErrorCode.transaction_abortable
        asked = [
            asyncio.ensure_future(join.join(f"id-{n}", ProducerIdAndEpoch(n, 0), [("t", n), ("u", 0)], adds=n % 2 == 0))
            for n in range(6)
        ]
        asked.append(asyncio.ensure_future(join.join("id-0", ProducerIdAndEpoch(0, 0), [("v", 0)], adds=True)))
        problems = [await one for one in asked]
        assert [list(each) for each in problems] == [[], [], [], [("t", 3)], [], [], []]
        assert isinstance(problems[3]["t", 3], TransactionAbortable)
        (_, _, first), (_, _, second) = peers.requests
        assert [one.transactional_id for one in first.transactions] == [f"id-{n}" for n in range(6)]
        assert [one.verify_only for one in first.transactions] == [False, True] * 3
        assert [one.transactional_id for one in second.transactions] == ["id-0"], "an id is named once in a request"
        await join.stop()

    run(scenario)


def test_a_transaction_that_is_being_completed_is_waited_for() -> None:
    async def scenario() -> None:
        peers = FakePeers()
        join, _ = joining(peers)
        peers.codes["t", 0] = ErrorCode.concurrent_transactions
        waiting = asyncio.ensure_future(join.join("id", SOMEBODY, [("t", 0)], adds=True))
        await peers.was_asked.wait()
        peers.codes.clear()
        assert await waiting == {}
        peers.codes["t", 0] = ErrorCode.concurrent_transactions
        problems = await join.join("id", SOMEBODY, [("t", 0)], adds=True)
        assert isinstance(problems["t", 0], ConcurrentTransactions)
        await join.stop()

    run(scenario)


def test_a_coordinator_that_cannot_be_asked_is_not_available() -> None:
    async def scenario() -> None:
        peers = FakePeers()
        join, _ = joining(peers)
        peers.is_away = True

        async def problem(name: str) -> HeadraceError:
            problems: Problems = await join.join(name, SOMEBODY, [("t", 0)], adds=True)
            return problems["t", 0]

        assert isinstance(await problem("id"), CoordinatorNotAvailable)
        assert isinstance(await problem("nobody"), CoordinatorNotAvailable)
        peers.is_away = False
        peers.codes["t", 0] = ErrorCode.not_coordinator
        assert isinstance(await problem("id"), NotCoordinator)
        peers.codes["t", 0] = ErrorCode.unknown_server_error
        assert isinstance(await problem("id"), CoordinatorNotAvailable)
        peers.refusal = ErrorCode.cluster_authorization_failed
        refused = await problem("id")
        assert isinstance(refused, CoordinatorNotAvailable)
        assert "CLUSTER_AUTHORIZATION_FAILED" in str(refused)
        await join.stop()

    run(scenario)


def test_a_marker_or_another_leader_breaks_the_guard() -> None:
    class Led:
        leader_epoch = 3

    partition: Any = Led()
    guards = MarkerGuards()
    first, other = guards.hold(partition, 40), guards.hold(partition, 41)
    guards.note_marker(partition, 40)
    assert (first.is_broken, other.is_broken) == (True, False)
    partition.leader_epoch = 4
    assert other.is_broken
    guards.release(first, partition, 40)
    guards.release(other, partition, 41)
    guards.note_marker(partition, 40)
