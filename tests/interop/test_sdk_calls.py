"""Results of tasks: what a worker returns or raises comes back to the caller."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from headrace import CallFailed, Client, ClientError, Queue, QueueMessage, Reject, aio
from headrace.model.reply_headers import CALL_ID, OUTCOME, REPLY_TO
from headrace.testing.process import BrokerProcess
from tests.waiting import until

from .subject import SELDOM


@dataclass
class Sum:
    total: int
    of: list[int]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=SELDOM) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.bootstrap) as made:
        yield made


@pytest.fixture
def worker(broker: BrokerProcess) -> Iterator[Client]:
    """A client of another process, as far as the broker knows."""
    with Client(broker.bootstrap) as made:
        yield made


def test_what_a_worker_returns_comes_back(client: Client, worker: Client) -> None:
    values = [{"a": [1, None]}, None, "text", 7.5, b"\x00bytes", [True]]
    queue = client.queue("values").create()
    worker.queue("values").worker()(lambda message: values[message.json()])
    with worker.running():
        calls = [queue.call(number) for number in range(len(values))]
        assert [call.result(timeout=30) for call in calls] == values


def test_a_typed_result_and_many_at_once(client: Client, worker: Client) -> None:
    queue = client.queue("sums").create()

    @worker.queue("sums").worker(type=list[int])
    def add(message: QueueMessage) -> Sum:
        return Sum(sum(message.value), message.value)

    with worker.running():
        calls = [queue.call([number, 1], type=Sum) for number in range(50)]
        assert [call.result(timeout=30) for call in calls] == [Sum(n + 1, [n, 1]) for n in range(50)]
        assert all(call.done() for call in calls)
        queue.send([1])  # one that no caller waits for is an ordinary message
        until(lambda: queue.counts().available == queue.counts().in_flight == 0)


def test_the_last_failure_is_told(client: Client, worker: Client) -> None:
    queue = client.queue("failing").create(max_receives=2, dead_letter="failing-dead")

    @worker.queue("failing").worker()
    def fail(message: QueueMessage) -> None:
        if message.text == "reject":
            raise Reject("not this one")
        raise ValueError(f"attempt {message.attempt}")

    with worker.running():
        with pytest.raises(CallFailed, match="ValueError: attempt 2") as raised:
            queue.call("fail").result(timeout=30)
        assert (raised.value.exception_type, raised.value.exception_message) == ("ValueError", "attempt 2")
        assert raised.value.attempts == 2
        with pytest.raises(CallFailed, match="not this one"):
            queue.call("reject").result(timeout=30)
    assert client.queue("failing-dead").counts().available == 2


def test_a_worker_that_never_answers(client: Client) -> None:
    """Its lease ends, and the broker tells the caller."""
    queue = client.queue("silent").create(max_receives=1, dead_letter="silent-dead", visibility=0.5)
    call = queue.call("work")
    with pytest.raises(TimeoutError, match="headrace queue peek silent"):
        call.result(timeout=0.05)
    assert len(queue.receive()) == 1
    with pytest.raises(CallFailed, match="received once") as raised:
        call.result(timeout=30)
    assert raised.value.exception_type is None


def test_a_second_result_and_one_for_another_queue_are_ignored(client: Client, worker: Client) -> None:
    queue = client.queue("twice").create()
    elsewhere = client.queue("elsewhere").create()
    call = queue.call("work")
    (message,) = queue.receive()
    for value in (1, 2):
        queue.reply(message, value)
    assert call.result(timeout=30) == 1
    assert call.result(timeout=30) == 1
    queue.send("forged", headers={REPLY_TO: "elsewhere", CALL_ID: "x"})
    queue.send("gone", headers={REPLY_TO: "replies.gone", CALL_ID: "x"})
    for each in queue.receive(max=2, wait=5):
        queue.reply(each, "value")
    assert elsewhere.counts().available == 0
    reply_queue = message.header(REPLY_TO) or ""
    client.queue(reply_queue).send(b"", headers={CALL_ID: "no call of ours", OUTCOME: "returned"})
    until(lambda: client.queue(reply_queue).counts().available == 0)


def test_a_reply_queue_goes_with_its_client(broker: BrokerProcess, client: Client) -> None:
    queue = client.queue("open").create()
    with Client(broker.bootstrap, client_id="short lived") as other:
        call = other.queue("open").call("work")
        (found,) = client.queues("replies.short_20lived.")
        assert found.settings["idle_delete_ms"] == 600_000
    assert client.queues("replies.short_20lived.") == []
    with pytest.raises(ClientError, match="closed"):
        call.result(timeout=1)
    queue.purge()


def test_a_result_for_a_caller_that_is_gone_is_dropped(broker: BrokerProcess, client: Client, worker: Client) -> None:
    """Its worker has replied to it before, and is not to make a topic of the deleted reply queue."""
    client.queue("dropped").create()
    began, is_gone, attempts = threading.Event(), threading.Event(), []

    @worker.queue("dropped").worker()
    def wait(message: QueueMessage) -> int:
        attempts.append(message.attempt)
        if message.text == "slow":
            began.set()
            is_gone.wait()
        return 1

    with worker.running():
        with Client(broker.bootstrap, client_id="leaving") as caller:
            assert caller.queue("dropped").call("quick").result(timeout=60) == 1
            caller.queue("dropped").call("slow")
            assert began.wait(60)
        is_gone.set()
        until(lambda: client.queue("dropped").counts().in_flight == 0)
    assert attempts == [1, 1]
    assert not [name for name in client.topics.list() if name.startswith("replies.leaving.")]


def test_asyncio(broker: BrokerProcess) -> None:
    async def run() -> None:
        async with aio.Client(broker.bootstrap) as client:
            queue = await client.queue("aio-sums").create()

            @queue.worker()
            async def add(message: aio.QueueMessage) -> int:
                await asyncio.sleep(0)
                return sum(message.json())

            call = await queue.call([1, 2])
            with pytest.raises(TimeoutError, match="Call result"):
                await call.result(timeout=0.01)
            async with client.running():
                calls = await asyncio.gather(*(queue.call([number, 1]) for number in range(20)))
                assert await asyncio.gather(*calls) == [number + 1 for number in range(20)]
                assert await call.result(timeout=30) == 3

    asyncio.run(run())


def test_results_when_the_broker_restarts(broker: BrokerProcess, client: Client, worker: Client) -> None:
    queue: Queue = client.queue("restarted").create()
    call = queue.call(1)
    broker.kill()
    broker.start()

    @worker.queue("restarted").worker()
    def add(message: QueueMessage) -> int:
        return int(message.json()) + 1

    with worker.running():
        assert call.result(timeout=60) == 2
        assert queue.call(2).result(timeout=60) == 3
