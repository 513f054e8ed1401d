"""The simulated network: order within a connection, cuts, breaks, late arrivals."""

import asyncio

import pytest

from headrace.model.image import Endpoint
from headrace.testing.sim.network import Network, ServerEnd, SimChannel, SimTransport
from headrace.testing.sim.world import World

HERE = Endpoint("b1", 9092)


class Echo:
    """Answers each frame with itself."""

    def __init__(self, end: ServerEnd, heard: list[bytes]) -> None:
        self.end = end
        self.heard = heard
        self.is_closed = False

    def received(self, frame: bytes) -> None:
        self.heard.append(frame)
        self.end.send(frame)

    def closed(self) -> None:
        self.is_closed = True


class Pair:
    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.server, self.client = self.world.process("b1"), self.world.process("c1")
        self.heard: list[bytes] = []
        self.sessions: list[Echo] = []
        self.network.listen(self.server, HERE, self._accept)

    def _accept(self, end: ServerEnd) -> Echo:
        self.sessions.append(Echo(end, self.heard))
        return self.sessions[-1]

    def connect(self) -> SimChannel:
        return self.world.run(self.client, SimTransport(self.network, self.client).connect(HERE))

    def ask(self, channel: SimChannel, frame: bytes, timeout_s: float = 30.0) -> bytes:
        return bytes(self.world.run(self.client, channel.exchange(frame, timeout_s)))


def test_an_answer_comes_after_a_while() -> None:
    pair = Pair()
    assert pair.ask(pair.connect(), b"hello") == b"hello"
    assert 0 < pair.world.now_s < 1


def test_frames_of_a_connection_keep_their_order_whatever_the_delays() -> None:
    pair = Pair()
    pair.network.usual.slow_share = 0.5
    channel = pair.connect()

    async def many() -> list[bytes]:
        return [bytes(answer) for answer in await asyncio.gather(*[channel.exchange(b"%d" % n, 60) for n in range(50)])]

    assert pair.world.run(pair.client, many()) == pair.heard == [b"%d" % n for n in range(50)]


def test_nobody_listens() -> None:
    pair = Pair()
    pair.server.die()
    with pytest.raises(ConnectionRefusedError):
        pair.connect()


def test_a_cut_holds_frames_back_and_mending_lets_them_go_on_or_breaks_the_connection() -> None:
    ends = set()
    for seed in range(20):
        pair = Pair(seed)
        channel = pair.connect()
        pair.network.cut("c1", "b1")
        answer = pair.client.enter(lambda channel=channel: channel.send(b"late"))  # type: ignore[misc]
        pair.world.run_for(20)
        assert pair.heard == []
        pair.network.mend()
        pair.world.run_for(20)
        ends.add("broken" if answer.exception() is not None else bytes(answer.result()))
    assert ends == {"broken", b"late"}


def test_a_cut_in_one_direction_lets_the_request_through() -> None:
    pair = Pair()
    channel = pair.connect()
    pair.network.cut("b1", "c1")
    with pytest.raises(TimeoutError):
        pair.ask(channel, b"only there", timeout_s=2)
    assert pair.heard == [b"only there"]
    assert channel.is_closed


def test_one_cannot_connect_through_a_cut() -> None:
    pair = Pair()
    pair.network.cut("b1", "c1")
    with pytest.raises(TimeoutError):
        pair.connect()


def test_a_lost_frame_breaks_its_connection_and_may_arrive_all_the_same() -> None:
    arrived = []
    for seed in range(30):
        pair = Pair(seed)
        channel = pair.connect()
        pair.network.usual.loss = 1.0
        with pytest.raises(ConnectionResetError):
            pair.ask(channel, b"x")
        pair.world.run_for(10)
        arrived.append(pair.heard == [b"x"])
        assert pair.sessions[0].is_closed
    assert True in arrived
    assert False in arrived


def test_a_request_that_was_given_up_may_arrive_after_the_one_that_replaced_it() -> None:
    orders = set()
    for seed in range(40):
        pair = Pair(seed)
        first = pair.connect()
        pair.network.usual.loss = 1.0
        with pytest.raises(ConnectionResetError):
            pair.ask(first, b"one")
        pair.network.usual.loss = 0.0
        pair.ask(pair.connect(), b"two")
        pair.world.run_for(10)
        orders.add(tuple(pair.heard))
    assert (b"two", b"one") in orders


def test_who_dies_closes_its_connections() -> None:
    pair = Pair()
    channel = pair.connect()
    pair.server.die()
    pair.world.run_for(1)
    assert channel.is_closed

    pair = Pair()
    pair.connect()
    pair.client.die()
    pair.world.run_for(1)
    assert pair.sessions[0].is_closed


def test_what_is_sent_to_a_paused_process_waits_for_it() -> None:
    pair = Pair()
    channel = pair.connect()
    pair.server.pause()
    answer = pair.client.enter(lambda: channel.send(b"wake up"))
    pair.world.run_for(5)
    assert not answer.done()
    pair.server.resume()
    pair.world.run_for(5)
    assert bytes(answer.result()) == b"wake up"


def test_a_closed_channel_takes_nothing_more() -> None:
    pair = Pair()
    channel = pair.connect()
    pair.client.enter(channel.close)
    with pytest.raises(ConnectionResetError):
        pair.ask(channel, b"x")
    pair.world.run_for(1)
    assert pair.sessions[0].is_closed


def test_answers_of_a_server_that_stops_listening_are_not_lost_on_the_way() -> None:
    pair = Pair()
    channel = pair.connect()
    answer = pair.client.enter(lambda: channel.send(b"last"))
    pair.world.run_until(lambda: bool(pair.heard))
    pair.network.unlisten(pair.server, HERE)
    pair.world.run_for(5)
    assert bytes(answer.result()) == b"last"
    assert channel.is_closed
