"""The loop of a worker against a queue in memory."""

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.client.errors import ClientError, LeaseLost, NoSuchQueue, Reject, Retry, Unreachable
from headrace.client.health import WorkerMonitor
from headrace.client.queue.acks import AckResult
from headrace.client.queue.message import QueueMessage
from headrace.client.queue.ranges import RangeMessage
from headrace.client.queue.worker import WorkerLoop
from headrace.model.failure_headers import read_reason
from headrace.model.queue_wire import Received
from tests.waiting import until

_ENOUGH_S = 30.0


class _Queue:
    """Hands out what is in `waiting`, and notes what is said of it."""

    name = "q"

    def __init__(self, *messages: str | tuple[str, str]) -> None:
        self.waiting = deque(messages)
        self.said: list[tuple[object, ...]] = []
        self.handed_out = 0
        self.fails: list[Exception] = []
        self.buries = False
        self.flushed = False
        self._changed = threading.Condition()

    def receive_until(
        self, is_over: Callable[[], bool], maximum: int, wait_s: float, visibility_s: float
    ) -> list[QueueMessage]:
        if self.fails:
            raise self.fails.pop(0)
        found: list[QueueMessage] = []
        with self._changed:
            while self.waiting and len(found) < maximum:
                each = self.waiting.popleft()
                body, group = each if isinstance(each, tuple) else (each, None)
                found.append(QueueMessage("q", Received(body, body, body.encode(), 0, 0, 1, 0, 0, group=group), self))
            self.handed_out += len(found)
            if not found:
                self._changed.wait(0.01)
        return found

    def ack(self, message: str | RangeMessage) -> AckResult:
        return self._say("ack", message)

    def nack(self, receipt: str, delay_ms: int | None, reason: str) -> AckResult:
        return self._say("nack", receipt, delay_ms, reason)

    def extend(self, receipt: str, visibility_ms: int) -> AckResult:
        failure = LeaseLost("over", code="NotInFlight") if receipt == "lost" else None
        return self._say("extend", receipt, visibility_ms, failure=failure)

    def _say(self, *what: object, failure: ClientError | None = None) -> AckResult:
        with self._changed:
            self.said.append(what)
            self._changed.notify_all()
        settlement = AckResult(threading.Condition())
        settlement.settle(failure)
        return settlement

    def reply(self, message: QueueMessage, value: object) -> None:
        pass

    def dead_letter(self, message: QueueMessage, reason: str) -> bool:
        if self.buries:
            self._say("bury", message.receipt, reason)
        return self.buries

    def backlog(self) -> int | None:
        return len(self.waiting)

    def flush(self) -> None:
        self.flushed = True

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, _ENOUGH_S), self.said


@contextmanager
def _running(queue: _Queue, call: Callable[[QueueMessage], object], **options: object) -> Iterator[WorkerLoop]:
    chosen: dict[str, object] = {"concurrency": 2, "lease_s": 30.0, "is_fifo": False, **options}
    loop = WorkerLoop(queue, call, WorkerMonitor("work", "queue q"), **chosen)  # type: ignore[arg-type]
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield loop
    finally:
        loop.stop()
        thread.join(_ENOUGH_S)
        assert not thread.is_alive()


def test_what_is_handled_is_acknowledged() -> None:
    queue = _Queue(*map(str, range(50)))
    with _running(queue, lambda message: None):
        queue.wait_for(lambda: len(queue.said) == 50)
    assert {each[1] for each in queue.said if each[0] == "ack"} == set(map(str, range(50)))
    assert queue.flushed


def test_what_fails_is_returned_with_the_reason() -> None:
    queue = _Queue("bad", "later", "hopeless")

    def work(message: QueueMessage) -> None:
        if message.text == "later":
            raise Retry("not yet", delay=5)
        if message.text == "hopeless":
            raise Reject("never")
        raise ValueError("no")

    queue.buries = True
    with _running(queue, work):
        queue.wait_for(lambda: len(queue.said) == 3)
    here = Path(__file__).name
    said = []
    for *rest, told in queue.said:
        reason, failure = read_reason(str(told))
        assert failure is not None
        assert Path(failure.file).name == here
        said.append((*map(str, rest), re.sub(rf" \(.*{here}:\d+\)$", " at a line of this file", reason), failure[:2]))
    assert sorted(said) == [
        ("bury", "hopeless", "Reject: never at a line of this file", ("headrace.client.errors.Reject", "never")),
        ("nack", "bad", "None", "ValueError: no at a line of this file", ("ValueError", "no")),
        ("nack", "later", "5000", "not yet", ("headrace.client.errors.Retry", "not yet")),
    ]


def test_a_coroutine_that_nobody_awaits_is_a_failure_not_an_acknowledgement() -> None:
    async def work(message: QueueMessage) -> None: ...

    queue = _Queue("x")
    with _running(queue, work):
        queue.wait_for(lambda: bool(queue.said))
    assert [each[:2] for each in queue.said] == [("nack", "x")]
    assert "a coroutine that was never awaited" in str(queue.said[0][3])


def test_without_a_dead_letter_queue_what_is_rejected_is_returned() -> None:
    def work(message: QueueMessage) -> None:
        raise Reject("never")

    queue = _Queue("hopeless")
    with _running(queue, work):
        queue.wait_for(lambda: bool(queue.said))
    assert [each[:3] for each in queue.said] == [("nack", "hopeless", None)]
    assert str(queue.said[0][3]).startswith("Reject: never (")


def test_leases_are_kept_while_a_message_is_handled() -> None:
    queue = _Queue("slow")
    done = threading.Event()
    with _running(queue, lambda message: done.wait(_ENOUGH_S), lease_s=1.0):
        queue.wait_for(lambda: queue.said.count(("extend", "slow", 1000)) >= 2)
        assert ("ack", "slow") not in queue.said
        done.set()
        queue.wait_for(lambda: ("ack", "slow") in queue.said)


def test_a_lost_lease_does_not_end_the_work() -> None:
    queue = _Queue("lost")
    done = threading.Event()
    with _running(queue, lambda message: done.wait(_ENOUGH_S), lease_s=1.0):
        queue.wait_for(lambda: ("extend", "lost", 1000) in queue.said)
        done.set()
        queue.wait_for(lambda: ("ack", "lost") in queue.said)


def test_stopping_finishes_what_is_in_hand_and_gives_back_the_rest() -> None:
    queue = _Queue("1", "2", "3")
    begun, done = threading.Event(), threading.Event()

    def work(message: QueueMessage) -> None:
        begun.set()
        done.wait(_ENOUGH_S)

    with _running(queue, work, concurrency=1) as loop:
        assert begun.wait(_ENOUGH_S)
        loop.stop()
        time.sleep(0.05)
        assert not any(each[0] == "ack" for each in queue.said)
        done.set()
    assert ("ack", "1") in queue.said
    returned = [each[1] for each in queue.said if each == ("nack", each[1], 0, "returned unhandled")]
    assert queue.handed_out == 1 + len(returned)


def test_a_group_stays_in_order_also_when_one_fails() -> None:
    queue = _Queue(*((f"a{number}", "a") for number in range(4)), ("b", "b"))
    handled: list[str] = []

    def work(message: QueueMessage) -> None:
        handled.append(message.text)
        if message.text == "a1":
            raise ValueError("no")

    with _running(queue, work, concurrency=8, is_fifo=True):
        queue.wait_for(lambda: len(queue.said) == 5)
    assert [each for each in handled if each != "b"] == ["a0", "a1"]
    about_a = [each[:2] for each in queue.said if each[1] != "b"]
    assert about_a == [("ack", "a0"), ("nack", "a1"), ("nack", "a2"), ("nack", "a3")]


def test_what_a_handler_settled_itself_is_left_alone() -> None:
    queue = _Queue("mine")
    with _running(queue, lambda message: message.nack(1)):
        queue.wait_for(lambda: bool(queue.said))
    assert queue.said == [("nack", "mine", 1000, "")]


def test_a_broker_that_is_away_is_waited_for() -> None:
    queue = _Queue("x")
    queue.fails = [Unreachable("no broker answers")] * 3
    with _running(queue, lambda message: None):
        queue.wait_for(lambda: ("ack", "x") in queue.said)


def test_what_cannot_go_on_is_raised() -> None:
    queue = _Queue()
    queue.fails = [NoSuchQueue("there is no queue q", code="UnknownQueue")]
    loop = WorkerLoop(
        queue, lambda message: None, WorkerMonitor("work", "queue q"), concurrency=2, lease_s=30, is_fifo=False
    )
    with pytest.raises(NoSuchQueue):
        loop.run()


def test_an_exit_in_a_worker_ends_the_loop_and_gives_the_message_back() -> None:
    queue = _Queue("x")

    def work(message: QueueMessage) -> None:
        raise SystemExit(3)

    loop = WorkerLoop(queue, work, WorkerMonitor("work", "queue q"), concurrency=2, lease_s=30, is_fifo=False)
    with pytest.raises(SystemExit):
        loop.run()
    assert [each[:3] for each in queue.said] == [("nack", "x", None)]
    assert re.match(r"SystemExit: 3 \(.*test_worker\.py:\d+\)\n", str(queue.said[0][3]))


def test_an_automatic_worker_takes_more_threads_while_they_help() -> None:
    queue = _Queue(*map(str, range(100_000)))
    together = 0
    lock, running = threading.Lock(), [0]

    def work(message: QueueMessage) -> None:
        nonlocal together
        with lock:
            running[0] += 1
            together = max(together, running[0])
        time.sleep(0.02)  # the work
        with lock:
            running[0] -= 1

    with _running(queue, work, concurrency="auto") as loop:
        until(lambda: (loop.monitor.look().threads or 0) > 4 and together > 4)
        assert together <= 64
        queue.waiting.clear()
