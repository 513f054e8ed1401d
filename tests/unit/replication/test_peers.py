"""Connections between brokers, over real sockets to a broker that is made of a few lines."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from struct import Struct
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from kio.schema.errors import ErrorCode

from headrace.model.backoff import ExponentialDelay
from headrace.model.errors import PeerUnavailable
from headrace.model.ids import BrokerId
from headrace.model.image import BrokerInfo, Endpoint
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import (
    is_flexible,
    make,
    peek_api,
    read_request,
    read_request_header,
    response_schema,
    write_response,
)
from headrace.protocol.units import NO_THROTTLE
from headrace.replication import peers as peers_module
from headrace.replication.peers import Peers
from headrace.replication.transport import TcpTransport

LENGTH = Struct(">i")
PATIENCE_S = 30.0
FIND_COORDINATOR, LIST_GROUPS = 10, 16
OTHER = BrokerId(2)

Reply = Callable[[Any], Awaitable[Any]]


class FakeBroker:
    """Answers ApiVersions by itself and everything else as `reply` says; None closes the connection."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.connections = 0
        self.requests: list[Any] = []
        self.was_asked = asyncio.Event()
        self.raw_answer: bytes | None = None
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()
        """Held, so that one which never answers is not collected."""

    async def __aenter__(self) -> "FakeBroker":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    @property
    def endpoint(self) -> Endpoint:
        assert self._server is not None
        return Endpoint("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            while True:
                (size,) = LENGTH.unpack(await reader.readexactly(4))
                frame = await reader.readexactly(size)
                key, version, _ = peek_api(frame)
                header = read_request_header(frame, flexible=is_flexible(key, version))
                request = read_request(frame, header)
                if key == 18:
                    answer: Any = _versions(version)
                else:
                    self.requests.append(request)
                    self.was_asked.set()
                    answer = await self.reply(request)
                    if answer is None:
                        return
                data = write_response(header, answer)
                writer.write(LENGTH.pack(len(data)) + data if self.raw_answer is None else self.raw_answer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


def _versions(version: int) -> Any:
    schema = response_schema(18, version)
    return make(
        schema.ApiVersionsResponse,
        error_code=ErrorCode.none,
        api_keys=(schema.ApiVersion(api_key=LIST_GROUPS, min_version=0, max_version=5),),
        throttle_time=NO_THROTTLE,
        supported_features=(),
        finalized_features=(),
    )


class Cluster:
    """What `Peers` sees of the metadata."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.broker_id = BrokerId(1)
        self.image: Any = None
        self.move(endpoint)

    def move(self, endpoint: Endpoint) -> None:
        self.image = SimpleNamespace(brokers={OTHER: BrokerInfo(OTHER, endpoint)})


def list_groups(state: str = "") -> Any:
    return make(request_schema(LIST_GROUPS, 4).ListGroupsRequest, states_filter=(state,))


def groups(request: Any, name: str | None = None) -> Any:
    schema = response_schema(LIST_GROUPS, request.__version__)
    listed: Any = make(
        schema.ListedGroup, group_id=name or request.states_filter[0], protocol_type="", group_state="", group_type=""
    )
    return make(schema.ListGroupsResponse, throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=(listed,))


def named(answer: Any) -> str:
    return str(answer.groups[0].group_id)


async def echo(request: Any) -> Any:
    return groups(request)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scenario

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


def peers_of(cluster: Cluster, *, max_answer_bytes: int = 1 << 20) -> Peers:
    return Peers(TcpTransport(max_answer_bytes), cluster, Random(7))


def test_requests_on_a_lane_share_a_connection_and_do_not_wait_for_each_other() -> None:
    async def scenario() -> None:
        go_on = asyncio.Event()

        async def reply(request: Any) -> Any:
            await go_on.wait()
            return groups(request)

        async with FakeBroker(reply) as broker:
            peers = peers_of(Cluster(broker.endpoint))
            asked = [asyncio.ensure_future(peers.call(OTHER, list_groups(f"g{n}"))) for n in range(5)]
            await broker.was_asked.wait()
            go_on.set()
            assert [named(await answer) for answer in asked] == [f"g{n}" for n in range(5)]
            assert broker.connections == 1
            await peers.call(OTHER, list_groups(), lane="another")
            assert broker.connections == 2
            await peers.close()

    run(scenario())


def test_a_lost_connection_fails_what_waits_and_is_made_again() -> None:
    async def scenario() -> None:
        async def hang_up(_: Any) -> Any:
            return None

        async with FakeBroker(hang_up) as broker:
            peers = peers_of(Cluster(broker.endpoint))
            with pytest.raises(PeerUnavailable):
                await peers.call(OTHER, list_groups())
            broker.reply = echo
            assert named(await peers.call(OTHER, list_groups("back"))) == "back"
            await peers.close()

    run(scenario())


def test_a_broker_that_is_away_is_unavailable_until_it_is_back() -> None:
    async def scenario() -> None:
        async with FakeBroker(echo) as broker:
            gone = broker.endpoint
        cluster = Cluster(gone)
        peers = peers_of(cluster)
        for _ in range(3):
            with pytest.raises(PeerUnavailable) as away:
                await peers.call(OTHER, list_groups())
            assert not away.value.may_have_arrived
        with pytest.raises(PeerUnavailable, match="does not belong"):
            await peers.call(BrokerId(9), list_groups())
        async with FakeBroker(echo) as broker:
            cluster.move(broker.endpoint)
            assert named(await peers.call(OTHER, list_groups("back"))) == "back"
            await peers.close()

    run(scenario())


def test_brokers_of_another_cluster_are_called_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with FakeBroker(echo) as broker:
            cluster = Cluster(broker.endpoint)
            address = BrokerId(-2)
            peers = Peers(TcpTransport(1 << 20), cluster, Random(7), client_id="link-eu")
            schema = request_schema(FIND_COORDINATOR, 0)
            with pytest.raises(PeerUnavailable, match=r"broker \d of the source of link-eu .* Kafka 3\.1"):
                await peers.call(OTHER, make(schema.FindCoordinatorRequest, key="g"))
            with pytest.raises(PeerUnavailable, match="an address of link-eu does not belong"):
                await peers.call(address, list_groups())
            await peers.close()

    run(scenario())
    assert "an address of link-eu cannot be reached" in caplog.text


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its clock can be put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def test_a_broker_that_failed_long_ago_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "_RECONNECT_DELAY_S", ExponentialDelay(600.0, 600.0))

    async def scenario() -> None:
        async with FakeBroker(echo) as broker:
            gone = broker.endpoint
        cluster = Cluster(gone)
        peers = peers_of(cluster)
        with pytest.raises(PeerUnavailable):
            await asyncio.wait_for(peers.call(OTHER, list_groups()), PATIENCE_S)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        loop.ahead_s = 600.0
        async with FakeBroker(echo) as broker:
            cluster.move(broker.endpoint)
            answer = await asyncio.wait_for(peers.call(OTHER, list_groups("back")), PATIENCE_S)
            assert named(answer) == "back"
            await peers.close()

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(scenario())


def test_a_broker_that_moved_is_found_at_its_new_place() -> None:
    async def scenario() -> None:
        async with FakeBroker(echo) as old, FakeBroker(echo) as new:
            cluster = Cluster(old.endpoint)
            peers = peers_of(cluster)
            await peers.call(OTHER, list_groups())
            cluster.move(new.endpoint)
            await peers.call(OTHER, list_groups())
            assert (old.connections, new.connections) == (1, 1)
            await peers.close()

    run(scenario())


def test_no_answer_in_time_gives_the_connection_up() -> None:
    async def scenario() -> None:
        async def never(_: Any) -> Any:
            await asyncio.get_running_loop().create_future()

        async with FakeBroker(echo) as broker:
            peers = peers_of(Cluster(broker.endpoint))
            assert named(await peers.call(OTHER, list_groups("connected"))) == "connected"
            broker.reply = never
            slow = asyncio.ensure_future(peers.call(OTHER, list_groups()))
            with pytest.raises(PeerUnavailable, match="did not answer") as silent:
                await peers.call(OTHER, list_groups(), timeout_s=0.05)
            assert silent.value.may_have_arrived
            with pytest.raises(PeerUnavailable):
                await slow
            broker.reply = echo
            assert named(await peers.call(OTHER, list_groups("again"))) == "again"
            await peers.close()

    run(scenario())


def test_a_version_that_the_other_broker_does_not_have_is_not_sent() -> None:
    async def scenario() -> None:
        async with FakeBroker(echo) as broker:
            peers = peers_of(Cluster(broker.endpoint))
            schema = request_schema(FIND_COORDINATOR, 0)
            with pytest.raises(PeerUnavailable, match="upgrade all brokers"):
                await peers.call(OTHER, make(schema.FindCoordinatorRequest, key="g"))
            assert not broker.requests
            assert named(await peers.call(OTHER, list_groups("fine"))) == "fine"
            await peers.close()

    run(scenario())


def test_whoever_gives_up_waiting_takes_nothing_from_the_others() -> None:
    async def scenario() -> None:
        go_on = asyncio.Event()

        async def reply(request: Any) -> Any:
            await go_on.wait()
            return groups(request)

        async with FakeBroker(reply) as broker:
            peers = peers_of(Cluster(broker.endpoint))
            first = asyncio.ensure_future(peers.call(OTHER, list_groups("first")))
            second = asyncio.ensure_future(peers.call(OTHER, list_groups("second")))
            await broker.was_asked.wait()
            first.cancel()
            go_on.set()
            assert named(await second) == "second"
            assert named(await peers.call(OTHER, list_groups("third"))) == "third"
            assert broker.connections == 1
            await peers.close()

    run(scenario())


@pytest.mark.parametrize("answer", [LENGTH.pack(1 << 30), LENGTH.pack(-5), b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_an_answer_out_of_bounds_is_refused(answer: bytes) -> None:
    async def scenario() -> None:
        async with FakeBroker(echo) as broker:
            peers = peers_of(Cluster(broker.endpoint))
            await peers.call(OTHER, list_groups())
            broker.raw_answer = answer
            with pytest.raises(PeerUnavailable):
                await peers.call(OTHER, list_groups())
            broker.raw_answer = None
            await peers.call(OTHER, list_groups())
            await peers.close()

    run(scenario())


def test_a_large_answer_comes_whole() -> None:
    async def scenario() -> None:
        name = "g" * 30_000

        async def reply(request: Any) -> Any:
            answer = groups(request, name)
            return make(type(answer), throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=answer.groups * 100)

        async with FakeBroker(reply) as broker:
            peers = peers_of(Cluster(broker.endpoint), max_answer_bytes=8 << 20)
            for _ in range(3):
                answer = await peers.call(OTHER, list_groups())
                assert [group.group_id for group in answer.groups] == [name] * 100
            await peers.close()

    run(scenario())


def test_closing_answers_everybody() -> None:
    async def scenario() -> None:
        async def never(_: Any) -> Any:
            await asyncio.get_running_loop().create_future()

        async with FakeBroker(never) as broker:
            peers = peers_of(Cluster(broker.endpoint))
            waiting = asyncio.ensure_future(peers.call(OTHER, list_groups()))
            await broker.was_asked.wait()
            await peers.close()
            with pytest.raises(PeerUnavailable):
                await waiting

    run(scenario())
