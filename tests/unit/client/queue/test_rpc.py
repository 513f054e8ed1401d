"""The calls of queues against a server that does as each test says."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import msgspec
import pytest

from headrace.client.errors import ClientError, LeaseLost, NoSuchQueue, QueueFailed, Unreachable
from headrace.client.queue.acks import AckBatcher
from headrace.client.queue.range_decoder import messages_of
from headrace.client.queue.ranges import RangeMessage
from headrace.client.queue.rpc import QueueRpc
from headrace.model import queue_wire as wire
from headrace.records.builder import build_batch
from headrace.records.reader import Record

_ENOUGH_S = 30.0

Answer = msgspec.Struct | bytes | None
"""What is answered: 200 with this, `Problem` with 400, bytes as they are, None by hanging up."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer: Callable[[str, Any], Answer] = lambda name, call: wire.Nothing()
        self.calls: list[tuple[str, Any]] = []
        self.connections = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = self.headers["X-Amz-Target"].removeprefix(wire.TARGET_PREFIX)
        call = msgspec.msgpack.decode(body, type=getattr(wire, name))
        self.server.calls.append((name, call))
        answer = self.server.answer(name, call)
        if answer is None:
            self.close_connection = True
            return
        data = answer if isinstance(answer, bytes) else msgspec.msgpack.encode(answer)
        self.send_response(400 if isinstance(answer, wire.Problem) else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def door(server: _Server) -> Iterator[QueueRpc]:
    with closing(QueueRpc(lambda: [server.url])) as made:
        yield made


def test_one_connection_serves_calls_one_after_the_other(server: _Server, door: QueueRpc) -> None:
    for _ in range(5):
        door.call(wire.Purge("q"), wire.Nothing)
    assert len(server.calls) == 5
    assert server.connections == 1


def test_what_is_refused_is_told_in_the_broker_s_words(server: _Server, door: QueueRpc) -> None:
    server.answer = lambda name, call: wire.Problem("UnknownQueue", "there is no queue q")
    with pytest.raises(NoSuchQueue, match="there is no queue q"):
        door.call(wire.Count("q"), wire.Counts)
    server.answer = lambda name, call: wire.Problem("PurgeInProgress", "wait a minute")
    with pytest.raises(QueueFailed) as caught:
        door.call(wire.Purge("q"), wire.Nothing)
    assert caught.value.code == "PurgeInProgress"


def test_what_passes_is_waited_for(server: _Server, door: QueueRpc) -> None:
    problems: list[Answer] = [wire.Problem("QueueUnavailable", "loading"), None, wire.Problem("PeerUnavailable", "no")]
    server.answer = lambda name, call: problems.pop() if problems else wire.Nothing()
    door.call(wire.Purge("q"), wire.Nothing)
    assert len(server.calls) == 4


def test_a_broker_that_hangs_up_is_left_for_another(server: _Server) -> None:
    dead = _Server()
    dead.server_close()
    found: list[list[str]] = [[dead.url, server.url], [server.url]]
    with closing(QueueRpc(lambda: found.pop(0) if len(found) > 1 else found[0])) as door:
        door.call(wire.Purge("q"), wire.Nothing)
        door.call(wire.Purge("q"), wire.Nothing)
    assert len(server.calls) == 2


def test_brokers_that_cannot_be_found_yet_are_looked_for_again(server: _Server) -> None:
    asked: list[None] = []

    def find() -> list[str]:
        asked.append(None)
        if len(asked) < 3:
            raise Unreachable("starting")
        return [server.url]

    with closing(QueueRpc(find)) as door:
        door.call(wire.Purge("q"), wire.Nothing)
    assert len(asked) == 3
    asked.clear()
    with closing(QueueRpc(find)) as door, pytest.raises(Unreachable, match="starting"):
        door.call(wire.Purge("q"), wire.Nothing, patience_s=0.0)


def test_nobody_there_is_said_in_the_end() -> None:
    dead = _Server()
    dead.server_close()
    with closing(QueueRpc(lambda: [dead.url])) as door:
        with pytest.raises(Unreachable, match=f"no broker answers at {dead.url}"):
            door.call(wire.Purge("q"), wire.Nothing, patience_s=0.2)
        with pytest.raises(Unreachable):
            door.call(wire.Purge("q"), wire.Nothing, patience_s=float("inf"), is_over=lambda: True)


def test_a_move_that_may_have_begun_is_not_begun_again(server: _Server, door: QueueRpc) -> None:
    server.answer = lambda name, call: None
    with pytest.raises(Unreachable, match="may have been executed"):
        door.call(wire.StartMove("q"), wire.Move)
    assert len(server.calls) == 1


def test_another_kind_of_server_is_told_as_such(server: _Server, door: QueueRpc) -> None:
    server.answer = lambda name, call: b"<html>"
    with pytest.raises(ClientError, match="not a Headrace broker's address"):
        door.call(wire.Count("q"), wire.Counts)


def test_acknowledgements_go_out_together(server: _Server, door: QueueRpc) -> None:
    answering = threading.Event()

    def answer(name: str, call: Any) -> Answer:
        answering.wait(_ENOUGH_S)
        return wire.Outcomes([None] * len(call.receipts))

    server.answer = answer
    settler = AckBatcher("q", door)
    futures = [settler.ack(str(number)) for number in range(100)]
    answering.set()
    for each in futures:
        each.result(_ENOUGH_S)
    assert sum(len(call.receipts) for _, call in server.calls) == 100
    assert len(server.calls) <= 10
    settler.close()
    with pytest.raises(ClientError, match="closed"):
        settler.ack("1")


def test_a_second_call_of_acknowledgements_does_not_wait_for_the_first(server: _Server, door: QueueRpc) -> None:
    answering, second = threading.Event(), threading.Event()

    def answer(name: str, call: Any) -> Answer:
        if len(server.calls) > 1:
            second.set()
        answering.wait(_ENOUGH_S)
        return wire.Outcomes([None] * len(call.receipts))

    server.answer = answer
    settler = AckBatcher("q", door)
    results = [settler.ack(str(number)) for number in range(3_000)]
    try:
        assert second.wait(_ENOUGH_S), "the second call is sent while the first is not answered"
    finally:
        answering.set()
    for each in results:
        each.result(_ENOUGH_S)
    assert sorted(receipt for _, call in server.calls for receipt in call.receipts) == sorted(map(str, range(3_000)))
    settler.close()


def test_acknowledgements_of_many_threads_are_all_answered(server: _Server, door: QueueRpc) -> None:
    server.answer = lambda name, call: wire.Outcomes([None] * len(call.receipts))
    settler = AckBatcher("q", door)

    def work(first: int) -> None:
        for number in range(first, first + 300):
            result = settler.ack(str(number))
            if number % 50 == 0:
                result.result(_ENOUGH_S)

    threads = [threading.Thread(target=work, args=(300 * each,)) for each in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(_ENOUGH_S)
    settler.close()
    assert sorted(int(receipt) for _, call in server.calls for receipt in call.receipts) == list(range(1_800))


def test_a_callback_that_fails_does_not_end_the_acknowledgements(server: _Server, door: QueueRpc) -> None:
    server.answer = lambda name, call: wire.Outcomes([None] * len(call.receipts))
    settler = AckBatcher("q", door)
    called = threading.Event()

    def fail(_: object) -> None:
        called.set()
        raise RuntimeError("played")

    settler.ack("a").when_done(fail)
    assert called.wait(_ENOUGH_S)
    settler.ack("b").result(_ENOUGH_S)
    settler.close()


def test_an_answer_about_other_messages_fails_the_acknowledgements(server: _Server, door: QueueRpc) -> None:
    server.answer = lambda name, call: wire.Outcomes([])
    settler = AckBatcher("q", door)
    with pytest.raises(ClientError, match="not about the same messages"):
        settler.ack("a").result(_ENOUGH_S)
    settler.close()


TOPIC = str(UUID(int=9))


def messages(*ranges: tuple[int, int, int]) -> list[RangeMessage]:
    """Messages that were received as these ranges: first and last offset, and the attempt."""
    last = max(each[1] for each in ranges)
    log = build_batch([Record(0, 1000, None, b"%d" % offset) for offset in range(last + 1)])
    leased = [wire.LeasedRange(first, last, attempt, 5, 6) for first, last, attempt in ranges]
    found, unreadable = messages_of(wire.AllReceived([], leased, log, TOPIC))
    assert unreadable == []
    return found


def test_neighbours_are_acknowledged_as_ranges(server: _Server, door: QueueRpc) -> None:
    answering = threading.Event()

    def answer(name: str, call: Any) -> Answer:
        answering.wait(_ENOUGH_S)
        return wire.Outcomes([None] * len(call.receipts), [] if call.ranges else None)

    server.answer = answer
    settler = AckBatcher("q", door)
    first = settler.ack("receipt")
    found = messages((0, 9, 1), (20, 29, 1), (30, 31, 2))
    results = [settler.ack(each) for each in found if each.offset != 5]
    answering.set()
    for each in (first, *results):
        each.result(_ENOUGH_S)
    settler.close()
    ranges = [each for _, call in server.calls for each in call.ranges]
    assert sorted(offset for low, high, _ in ranges for offset in range(low, high + 1)) == [
        *range(5), *range(6, 10), *range(20, 32)
    ]  # fmt: skip
    assert len(ranges) <= 6
    assert {attempt for low, _, attempt in ranges if low >= 30} == {2}
    assert {call.topic_id for _, call in server.calls if call.ranges} == {TOPIC}


def test_one_message_of_a_range_fails_alone(server: _Server, door: QueueRpc) -> None:
    def answer(name: str, call: Any) -> Answer:
        mine = any(first <= 3 <= last for first, last, _ in call.ranges)
        return wire.Outcomes([], [(3, wire.Problem("NotInFlight", "received again"))] if mine else [])

    server.answer = answer
    settler = AckBatcher("q", door)
    results = [settler.ack(each) for each in messages((0, 9, 1))]
    errors = [each.exception(_ENOUGH_S) for each in results]
    assert [offset for offset, error in enumerate(errors) if error is not None] == [3]
    assert isinstance(errors[3], LeaseLost)
    settler.close()


@pytest.mark.parametrize("how", ["ignored", "refused"])
def test_a_broker_that_does_not_know_ranges_gets_receipts(server: _Server, door: QueueRpc, how: str) -> None:
    acknowledged: list[str] = []

    def answer(name: str, call: Any) -> Answer:
        if not call.receipts and how == "refused":
            return wire.Problem("InvalidParameterValue", "a call is about 1 to 1000 messages, and not 0")
        acknowledged.extend(call.receipts)
        return wire.Outcomes([None] * len(call.receipts))

    server.answer = answer
    settler = AckBatcher("q", door)
    found = messages((0, 9, 1))
    for each in [settler.ack(each) for each in found]:
        each.result(_ENOUGH_S)
    settler.close()
    assert sorted(acknowledged) == sorted(each.receipt for each in found)


def test_ranges_of_a_queue_that_is_gone_fail(server: _Server, door: QueueRpc) -> None:
    server.answer = lambda name, call: wire.Problem("UnknownQueue", "there is no queue q")
    settler = AckBatcher("q", door)
    with pytest.raises(NoSuchQueue):
        settler.ack(messages((0, 0, 1))[0]).result(_ENOUGH_S)
    settler.close()


def test_a_lease_that_is_lost_fails_the_acknowledgement_but_not_giving_back(server: _Server, door: QueueRpc) -> None:
    def answer(name: str, call: Any) -> Answer:
        count = len(call.receipts if name == "Acknowledge" else call.wanted)
        return wire.Outcomes([wire.Problem("NotInFlight", "its time is over")] * count)

    server.answer = answer
    settler = AckBatcher("q", door)
    with pytest.raises(LeaseLost, match="its time is over"):
        settler.ack("a").result(_ENOUGH_S)
    with pytest.raises(LeaseLost):
        settler.extend("a", 1000).result(_ENOUGH_S)
    settler.nack("a", None, "failed").result(_ENOUGH_S)
    settler.close()


def test_what_was_said_is_flushed_before_closing(server: _Server, door: QueueRpc) -> None:
    def answer(name: str, call: Any) -> Answer:
        time.sleep(0.05)
        return wire.Outcomes([None] * len(call.wanted))

    server.answer = answer
    settler = AckBatcher("q", door)
    settler.nack("a", 500, "busy")
    settler.close()
    assert server.calls == [("GiveBack", wire.GiveBack("q", [("a", 500, "busy")]))]
