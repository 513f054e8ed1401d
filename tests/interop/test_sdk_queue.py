"""The SDK's queues against a real broker, which the tests of this module share; it has keys, so all is signed."""

import asyncio
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace import Client, LeaseLost, NewMessage, NoSuchQueue, Queue, QueueFailed, QueueMessage, Reject, Retry, aio
from headrace.client.queue.message import PeekedMessage
from headrace.testing.process import BrokerProcess

from .subject import SELDOM

_ENOUGH_S = 60.0
KEY = "alice:secret"
KEYS = {"sqs.access.keys": KEY}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=SELDOM | KEYS) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.bootstrap, access_key=KEY) as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"q-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def queue(client: Client, name: str) -> Queue:
    return client.queue(name).create()


def _wait_for(condition: Callable[[], bool]) -> None:
    give_up_at_s = time.monotonic() + _ENOUGH_S
    while not condition():
        assert time.monotonic() < give_up_at_s
        time.sleep(0.05)


def _lease_end_ms(queue: Queue, body: str) -> int:
    (found,) = (each for each in queue.peek() if each.text == body)
    assert found.state == "in flight"
    return found.until_ms or 0


def _failure(letter: PeekedMessage) -> tuple[str | None, str | None, str, bool, str | None]:
    kind, message, file, line, attempts = (
        letter.header(f"headrace-{each}")
        for each in ("exception-type", "exception-message", "exception-file", "exception-line", "attempts")
    )
    return kind, message, Path(file or "").name, (line or "").isdecimal(), attempts


def _bodies(messages: list[QueueMessage]) -> list[str]:
    return [each.text for each in messages]


def test_a_message_is_sent_received_and_done(queue: Queue) -> None:
    sent = queue.send({"to": "alice"}, headers={"tenant": "7"})
    (message,) = queue.receive(wait=_ENOUGH_S)
    assert (message.id, message.json(), message.header("tenant"), message.attempt) == (sent.id, {"to": "alice"}, "7", 1)
    assert message.header("content-type") == "application/json"
    assert queue.counts().in_flight == 1
    message.ack().result(_ENOUGH_S)
    assert (queue.counts().available, queue.counts().in_flight) == (0, 0)
    assert queue.receive(wait=0) == []


def test_many_go_and_come_in_batches(queue: Queue) -> None:
    sent = queue.send_many(str(number) for number in range(2_000))
    assert len({each.id for each in sent}) == 2_000
    seen: list[str] = []
    while len(seen) < 2_000:
        found = queue.receive(max=1_000, wait=_ENOUGH_S)
        assert found
        seen += _bodies(found)
        for each in found:
            each.ack()
    queue.flush()
    assert seen == [str(number) for number in range(2_000)]


def test_what_is_given_back_comes_again_with_its_attempts(queue: Queue) -> None:
    queue.send("work")
    (first,) = queue.receive(wait=_ENOUGH_S)
    first.nack(delay=0, reason="busy").result(_ENOUGH_S)
    (second,) = queue.receive(wait=_ENOUGH_S)
    assert (second.id, second.attempt) == (first.id, 2)
    with pytest.raises(LeaseLost):
        first.extend(10)
    second.extend(timedelta(minutes=5))
    second.ack()


def test_a_lease_that_ends_lets_others_have_the_message(queue: Queue) -> None:
    queue.send("work")
    (first,) = queue.receive(wait=_ENOUGH_S, visibility=0.2)
    (second,) = queue.receive(wait=_ENOUGH_S)
    assert (second.id, second.attempt) == (first.id, 2)


def test_priorities_delays_and_ends(queue: Queue) -> None:
    begun_s = time.monotonic()
    queue.send_many(
        [
            NewMessage("at a time", at=datetime.now(UTC) + timedelta(days=30)),
            NewMessage("too late", ttl=0.05, delay=0.2),
            NewMessage("normal"),
            NewMessage("urgent", priority=9),
            NewMessage("low", priority=0),
            NewMessage("later", delay=1.0, priority=0),
        ]
    )
    assert _bodies(queue.receive(max=3, wait=_ENOUGH_S)) == ["urgent", "normal", "low"]
    assert _bodies(queue.receive(max=10, wait=_ENOUGH_S)) == ["later"]
    assert time.monotonic() - begun_s >= 1.0
    assert queue.counts().delayed == 1


def test_a_waiting_receiver_is_woken(queue: Queue) -> None:
    found: list[QueueMessage] = []
    receiver = threading.Thread(target=lambda: found.extend(queue.receive(wait=_ENOUGH_S)))
    receiver.start()
    queue.send("now")
    receiver.join(_ENOUGH_S)
    assert _bodies(found) == ["now"]


def test_fifo_keeps_the_order_of_groups_and_no_duplicates(client: Client, name: str) -> None:
    orders = client.queue(f"{name}.fifo").create(type="fifo", dedupe_by_content=True)
    with pytest.raises(ValueError, match="say to which group"):
        orders.send("nobody's")
    orders.send_many(["1", "2", "2"], group="alice")
    orders.send("3", group="bob", dedupe="x")
    orders.send("4", group="bob", dedupe="x")
    (first,) = orders.receive(max=1, wait=_ENOUGH_S)
    (other,) = orders.receive(max=10, wait=_ENOUGH_S)
    assert [(first.text, first.group), (other.text, other.group)] == [("1", "alice"), ("3", "bob")]
    assert orders.receive(max=10, wait=0) == []
    first.ack().result(_ENOUGH_S)
    assert _bodies(orders.receive(max=10, wait=_ENOUGH_S)) == ["2"]


def test_a_message_of_a_whole_mebibyte(queue: Queue) -> None:
    body = b"x" * 1_048_576
    queue.send(body)
    (message,) = queue.receive()
    assert message.body == body
    message.ack()


def test_a_move_of_nothing_is_refused(queue: Queue) -> None:
    with pytest.raises(ValueError, match="rate must be 1 or more"):
        queue.redrive(rate=0)
    with pytest.raises(ValueError, match="limit must be 1 or more"):
        queue.redrive(limit=-1)


def test_a_queue_that_is_not_there_is_said_and_not_made(client: Client, name: str) -> None:
    with pytest.raises(NoSuchQueue, match="headrace queue create"):
        client.queue(name).send("lost")
    with pytest.raises(NoSuchQueue):
        client.queue(name).receive(wait=0)
    assert not any(each.name == name for each in client.queues())


def test_settings_are_kept_and_changed(client: Client, name: str) -> None:
    queue = client.queue(name).create(visibility=5, max_receives=3, dead_letter=f"{name}-dead")
    queue.create(visibility=5, max_receives=3, dead_letter=f"{name}-dead")
    with pytest.raises(QueueFailed, match=name):
        queue.create(visibility=6)
    queue.alter(visibility=7, dead_letter=f"{name}-dead-too", unset=["queue.max.receives"])
    found = queue.describe().settings
    assert (found["visibility_timeout_ms"], found["max_receives"]) == (7_000, 0)
    assert {each.name for each in client.queues(name)} == {name, f"{name}-dead", f"{name}-dead-too"}
    queue.delete()
    assert [each.name for each in client.queues(name)] == [f"{name}-dead", f"{name}-dead-too"]


def test_a_worker_handles_retries_and_dead_letters(client: Client, name: str) -> None:
    queue = client.queue(name).create(max_receives=2, dead_letter=f"{name}-dead")
    dead = client.queue(f"{name}-dead")
    queue.send_many([*map(str, range(100)), "poison", "hopeless", "later"])
    done: list[str] = []

    @queue.worker(concurrency=4)
    def work(message: QueueMessage) -> None:
        if message.text == "poison":
            raise ValueError("no")
        if message.text == "hopeless":
            raise Reject("never")
        if message.text == "later" and message.attempt == 1:
            raise Retry("not yet", delay=0.1)
        done.append(message.text)

    runner = threading.Thread(target=client.run)
    runner.start()
    try:
        _wait_for(lambda: len(done) == 101 and dead.counts().available == 2)
    finally:
        client.stop()
        runner.join(_ENOUGH_S)
    assert sorted(done) == sorted([*map(str, range(100)), "later"])
    letters = {each.text: each for each in dead.peek()}
    place = rf"\(.*{Path(__file__).name}:\d+\)"
    assert re.fullmatch(rf"ValueError: no {place}", letters["poison"].reason or "")
    assert re.fullmatch(rf"Reject: never {place}", letters["hopeless"].reason or "")
    assert (letters["poison"].attempts_before, letters["hopeless"].attempts_before) == (2, 1)
    assert {each.came_from for each in letters.values()} == {name}
    assert _failure(letters["poison"]) == ("ValueError", "no", Path(__file__).name, True, "2")
    assert _failure(letters["hopeless"]) == ("headrace.client.errors.Reject", "never", Path(__file__).name, True, "1")
    assert letters["poison"].header("headrace-reason") == letters["poison"].reason
    moved = dead.redrive(body_contains="poison").wait(_ENOUGH_S)
    assert (moved.status, moved.moved) == ("COMPLETED", 1)
    back = queue.receive(max=10, wait=_ENOUGH_S)
    assert (_bodies(back), back[0].header("headrace-attempts")) == (["poison"], None)
    assert [each.text for each in dead.peek()] == ["hopeless"]
    dead.purge()
    assert dead.peek() == []


def test_a_queue_is_a_context_manager_that_flushes(client: Client, broker: BrokerProcess, name: str) -> None:
    with client.queue(name).create() as queue:
        queue.send_many(["a", "b"])
        queue.receive(wait=_ENOUGH_S)[0].ack()
    assert [each.text for each in queue.peek()] == ["b"]

    async def receive() -> int:
        async with aio.Client(broker.bootstrap, access_key=KEY) as aio_client, aio_client.queue(name) as same:
            async with (await same.receive(wait=_ENOUGH_S))[0]:
                pass
            return len(await same.peek())

    assert asyncio.run(receive()) == 0


def test_a_dead_letter_of_the_largest_message_still_carries_the_failure(client: Client, name: str) -> None:
    queue = client.queue(name).create(max_receives=1, dead_letter=f"{name}-dead")
    queue.send(b"x" * (1 << 20))
    with pytest.raises(ValueError, match="y"), queue.receive(wait=_ENOUGH_S)[0]:
        raise ValueError("\udcff" + "y" * 10_000)
    letter = client.queue(f"{name}-dead").receive(wait=_ENOUGH_S)[0]
    assert (len(letter.body), letter.header("headrace-exception-type")) == (1 << 20, "ValueError")
    assert (letter.header("headrace-exception-message") or "").startswith("\\udcffyyy")


def test_a_dead_letter_given_back_without_a_reason_has_no_exception(client: Client, name: str) -> None:
    queue = client.queue(name).create(max_receives=1, dead_letter=f"{name}-dead")
    queue.send("x")
    queue.receive(wait=_ENOUGH_S)[0].nack()
    letter = client.queue(f"{name}-dead").receive(wait=_ENOUGH_S)[0]
    assert letter.header("headrace-reason") == "received once without being deleted"
    assert (letter.header("headrace-attempts"), letter.header("headrace-exception-type")) == ("1", None)


def test_a_worker_keeps_its_leases_and_finishes_before_it_stops(client: Client, queue: Queue) -> None:
    queue.send_many(["slow", "not begun"])
    begun, may_end = threading.Event(), threading.Event()
    handled: list[str] = []

    @queue.worker(concurrency=1, visibility=6)
    def work(message: QueueMessage) -> None:
        begun.set()
        may_end.wait(_ENOUGH_S)
        handled.append(message.text)

    runner = threading.Thread(target=client.run)
    runner.start()
    try:
        assert begun.wait(_ENOUGH_S)
        first_end_ms = _lease_end_ms(queue, "slow")
        _wait_for(lambda: _lease_end_ms(queue, "slow") > first_end_ms)
    finally:
        client.stop()
        may_end.set()
        runner.join(_ENOUGH_S)
    assert "slow" in handled
    assert not any(each.text == "slow" for each in queue.peek())


def test_with_asyncio(broker: BrokerProcess, name: str) -> None:
    async def use() -> None:
        async with aio.Client(broker.bootstrap, access_key=KEY) as client:
            queue = await client.queue(name).create()
            await asyncio.gather(*(queue.send(str(number)) for number in range(20)))
            await queue.send_many(["a", "b"], priority=9)
            found = await queue.receive(max=2, wait=_ENOUGH_S)
            assert [each.text for each in found] == ["a", "b"]
            await asyncio.gather(*(each.ack() for each in found))
            waiting = asyncio.create_task(queue.receive(max=1, wait=_ENOUGH_S, visibility=600))
            await waiting
            await waiting.result()[0].nack(0)
            done: list[str] = []

            @queue.worker(concurrency=4)
            async def work(message: aio.QueueMessage) -> None:
                await asyncio.sleep(0)
                done.append(message.text)
                if len(done) == 20:
                    client.stop()

            await asyncio.wait_for(client.run(), _ENOUGH_S)
            assert sorted(done, key=int) == [str(number) for number in range(20)]
            assert (await queue.counts()).available == 0

    asyncio.run(use())


def test_a_receive_that_is_cancelled_gives_back_what_comes(broker: BrokerProcess, name: str) -> None:
    async def use() -> None:
        async with aio.Client(broker.bootstrap, access_key=KEY) as client:
            queue = await client.queue(name).create()
            waiting = asyncio.create_task(queue.receive(wait=_ENOUGH_S, visibility=600))
            await asyncio.sleep(0.1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await queue.send("for the next")
            (message,) = await queue.receive(wait=_ENOUGH_S)
            assert message.text == "for the next"

    asyncio.run(use())


def test_another_key_is_refused(broker: BrokerProcess, queue: Queue) -> None:
    made = Client(broker.bootstrap, http=broker.http_url, access_key="alice:wrong")
    with closing(made) as client, pytest.raises(QueueFailed):
        client.queue(queue.name).receive(wait=0)
    with closing(Client(broker.bootstrap, http=broker.http_url, access_key=KEY)) as client:
        assert client.queue(queue.name).receive(wait=0) == []
