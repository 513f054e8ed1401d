"""Acknowledgements, returns and lease extensions, sent together: those made during a call go out with the next one."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from headrace.client.errors import ClientError, LeaseLost, NoSuchQueue, QueueFailed, Unreachable
from headrace.client.kafka.librdkafka import log
from headrace.client.queue.ranges import RangeMessage, ranges_of
from headrace.client.queue.rpc import PATIENCE_S, QueueRpc, failed
from headrace.model import queue_wire as wire

_AT_ONCE = 1_000
_SECOND_FROM = 250
"""So many acknowledgements that wait are sent in a second call, while the first is not answered."""

T = TypeVar("T")
Wanted = tuple[T, "AckResult"]

_PENDING = ClientError("the broker has not answered yet")


class AckResult:
    """The result of one acknowledgement, return or extension: a cheap future, since there is one per message."""

    __slots__ = ("_answered", "_callback", "_error")

    def __init__(self, answered: threading.Condition) -> None:
        self._answered = answered
        self._error: ClientError | None = _PENDING
        self._callback: Callable[[AckResult], None] | None = None

    def done(self) -> bool:
        return self._error is not _PENDING

    def exception(self, timeout: float | None = None) -> ClientError | None:
        """The error, or None after a success. Waits for the response; `TimeoutError` if it does not come in time."""
        if self._error is _PENDING:
            with self._answered:
                if not self._answered.wait_for(self.done, timeout):
                    raise TimeoutError("the broker has not answered yet")
        return self._error

    def result(self, timeout: float | None = None) -> None:
        """Wait for the broker's response. Raises its error, such as `LeaseLost`."""
        if self._error is not None and (error := self.exception(timeout)) is not None:
            raise error

    def when_done(self, call: "Callable[[AckResult], None]") -> None:
        """Call this once when the result is known: now, or later on another thread."""
        with self._answered:
            if self._error is _PENDING:
                self._callback = call
                return
        call(self)

    def settle(self, error: ClientError | None) -> "Callable[[AckResult], None] | None":
        """Set the result, under the lock of `answered`; the caller runs the returned callback after releasing it."""
        self._error = error
        return self._callback


class AckBatcher:
    """Acknowledges, returns and extends leases of one queue's messages. Thread-safe; its daemon threads start when
    they are needed. A second call of acknowledgements is sent while the first waits for the broker's disk, if there are
    enough for one."""

    def __init__(self, queue: str, rpc: QueueRpc) -> None:
        self._queue = queue
        self._rpc = rpc
        self._lock = threading.Condition()
        self._answered = threading.Condition()
        # Appended to without the lock, so that a thread with many acknowledgements takes it once for all of them.
        self._acks: deque[Wanted[str | RangeMessage]] = deque()
        self._nacks: deque[Wanted[tuple[str, int | None, str]]] = deque()
        self._extensions: deque[Wanted[tuple[str, int]]] = deque()
        self._threads: list[threading.Thread] = []
        self._in_flight = 0
        """How many threads have a call in flight."""
        self._is_awake = False
        """Whether the first thread looks at what is waiting before it sleeps."""
        self._may_overtake = False
        """Whether the first thread has nothing but acknowledgements in flight, which others may overtake."""
        self._give_up_at_s = float("inf")
        self._is_closed = False

    def ack(self, message: str | RangeMessage) -> AckResult:
        """Acknowledge a message: its receipt, or itself if it was received in a range."""
        settlement = AckResult(self._answered)
        item = message, settlement
        waiting = self._acks
        waiting.append(item)
        if not self._is_awake or self._is_closed:
            self._wake(waiting, item)
        elif len(waiting) == _SECOND_FROM:
            self._wake_second()
        return settlement

    def nack(self, receipt: str, delay_ms: int | None, reason: str) -> AckResult:
        return self._add(self._nacks, (receipt, delay_ms, reason))

    def extend(self, receipt: str, visibility_ms: int) -> AckResult:
        return self._add(self._extensions, (receipt, visibility_ms))

    def _add(self, waiting: "deque[Wanted[T]]", wanted: T) -> AckResult:
        settlement = AckResult(self._answered)
        item = wanted, settlement
        waiting.append(item)
        if not self._is_awake or self._is_closed:
            self._wake(waiting, item)
        return settlement

    def _wake(self, waiting: "deque[Wanted[T]]", item: "Wanted[T]") -> None:
        with self._lock:
            if not self._is_closed:
                self._start(1)
                self._is_awake = True
                self._lock.notify_all()
                return
            try:
                waiting.remove(item)
            except ValueError:
                return  # The thread that ends has taken it.
        raise ClientError("the client is closed")

    def _wake_second(self) -> None:
        with self._lock:
            if self._in_flight and not self._is_closed:
                self._start(2)
                self._lock.notify_all()

    def _start(self, number: int) -> None:
        while len(self._threads) < number:
            target = self._run if not self._threads else self._run_second
            thread = threading.Thread(target=target, name=f"headrace-{self._queue}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def flush(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until everything said so far is answered. Raises `Unreachable` if it is not in time."""
        with self._lock:
            if not self._lock.wait_for(lambda: not self._is_busy(), timeout_s):
                raise Unreachable(
                    f"no broker answers for the queue {self._queue}: acknowledged messages may be redelivered"
                )

    def close(self, timeout_s: float = PATIENCE_S) -> None:
        """Flush, and stop the threads. Raises as `flush` does."""
        self._give_up_at_s = time.monotonic() + timeout_s
        try:
            self.flush(timeout_s)
        finally:
            with self._lock:
                self._is_closed = True
                self._lock.notify_all()
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(1.0)

    def _is_busy(self) -> bool:
        return bool(self._in_flight or self._is_waiting())

    def _is_waiting(self) -> bool:
        return bool(self._acks or self._nacks or self._extensions)

    def _run(self) -> None:
        while self._wait():
            # Leases first: their time may be running out.
            extensions, acks, nacks = _take(self._extensions), _take(self._acks), _take(self._nacks)
            self._may_overtake = not extensions and not nacks
            if self._has_second():
                self._wake_second()
            try:
                if extensions:
                    self._say(wire.Extend(self._queue, [each for each, _ in extensions]), extensions, "extended")
                if acks:
                    self._say_acks(acks)
                if nacks:
                    self._say(wire.GiveBack(self._queue, [each for each, _ in nacks]), nacks, "")
            finally:
                self._may_overtake = False
                self._answered_one()
        left = [*_take_all(self._acks), *_take_all(self._nacks), *_take_all(self._extensions)]
        self._tell(left, [ClientError("the client is closed")] * len(left))

    def _wait(self) -> bool:
        """Wait until there is something to send, which then counts as in flight; False when closed."""
        with self._lock:
            while not self._is_closed:
                # A thread that appends reads this afterwards, so that nothing is left waiting.
                self._is_awake = False
                if self._is_waiting():
                    self._is_awake = True
                    self._in_flight += 1
                    return True
                self._lock.wait()
            return False

    def _run_second(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._is_closed or self._has_second())
                if self._is_closed:
                    return
                acks = _take(self._acks)
                self._in_flight += 1
            try:
                self._say_acks(acks)
            finally:
                self._answered_one()

    def _has_second(self) -> bool:
        return self._may_overtake and len(self._acks) >= _SECOND_FROM and not self._extensions and not self._nacks

    def _answered_one(self) -> None:
        with self._lock:
            self._in_flight -= 1
            self._lock.notify_all()

    def _say_acks(self, acks: "Sequence[Wanted[str | RangeMessage]]") -> None:
        """Acknowledge messages: first those that were received in ranges, of each topic that had the queue's name."""
        single: list[Wanted[str]] = []
        in_ranges: dict[str, list[Wanted[RangeMessage]]] = {}
        lease, of_topic = None, list[Wanted[RangeMessage]]()
        for item in acks:
            message = item[0]
            if isinstance(message, str):
                single.append(cast("Wanted[str]", item))
                continue
            if message.lease is not lease:
                lease = message.lease
                of_topic = in_ranges.setdefault(lease.topic_id, [])
            of_topic.append(cast("Wanted[RangeMessage]", item))
        for topic_id, some in in_ranges.items():
            self._say_ranges(topic_id, some)
        if single:
            self._say_receipts(single)

    def _say_receipts(self, acks: "Sequence[Wanted[str]]") -> None:
        self._say(wire.Acknowledge(self._queue, [receipt for receipt, _ in acks]), acks, "acknowledged")

    def _say_ranges(self, topic_id: str, acks: "Sequence[Wanted[RangeMessage]]") -> None:
        call = wire.Acknowledge(self._queue, [], ranges_of([message for message, _ in acks]), topic_id)
        try:
            problems = self._rpc.call(call, wire.Outcomes, is_over=self._is_over).range_problems
        except NoSuchQueue as error:
            self._fail(acks, error, "acknowledged")
            return
        except QueueFailed as error:
            log.debug("acknowledging by receipts, not by ranges: %s", error)
            problems = None
        except ClientError as error:
            self._fail(acks, error, "acknowledged")
            return
        if problems is None:
            # A broker that does not know ranges.
            self._say_receipts([(message.receipt, settlement) for message, settlement in acks])
        elif problems:
            reasons = {offset: self._judged(failed(problem), "acknowledged") for offset, problem in problems}
            self._tell(acks, [reasons.get(message.offset) for message, _ in acks])
        else:
            self._tell(acks, [None] * len(acks))

    def _is_over(self) -> bool:
        return time.monotonic() > self._give_up_at_s

    def _fail(self, wanted: "Sequence[Wanted[Any]]", error: ClientError, what: str) -> None:
        log.warning("%d messages of %s were not %s: %s", len(wanted), self._queue, what or "returned", error)
        self._tell(wanted, [error] * len(wanted))

    def _say(
        self, call: wire.Extend | wire.Acknowledge | wire.GiveBack, wanted: "Sequence[Wanted[T]]", what: str
    ) -> None:
        problems: Sequence[wire.Problem | None]
        try:
            problems = self._rpc.call(call, wire.Outcomes, is_over=self._is_over).problems
        except ClientError as error:
            self._fail(wanted, error, what)
            return
        if len(problems) != len(wanted):
            self._tell(wanted, [ClientError("the broker's answer is not about the same messages")] * len(wanted))
        elif any(problems):
            self._tell(
                wanted, [None if problem is None else self._judged(failed(problem), what) for problem in problems]
            )
        else:
            self._tell(wanted, [None] * len(wanted))

    def _judged(self, reason: QueueFailed, what: str) -> ClientError | None:
        if not what and isinstance(reason, LeaseLost):
            # It is there for others already, as was wished.
            return None
        if what == "acknowledged":
            log.warning("a message of %s may be handled again: %s", self._queue, reason)
        return reason

    def _tell(self, wanted: "Sequence[Wanted[Any]]", errors: Sequence[ClientError | None]) -> None:
        calls = []
        with self._answered:
            for (_, settlement), error in zip(wanted, errors, strict=True):
                if (call := settlement.settle(error)) is not None:
                    calls.append((call, settlement))
            self._answered.notify_all()
        for call, settlement in calls:
            try:
                call(settlement)
            except Exception:
                log.exception("what was to be called with the result of an acknowledgement failed")


def _take(waiting: "deque[Wanted[T]]") -> "list[Wanted[T]]":
    return _take_all(waiting, _AT_ONCE)


def _take_all(waiting: "deque[Wanted[T]]", most: int | None = None) -> "list[Wanted[T]]":
    taken: list[Wanted[T]] = []
    try:
        while most is None or len(taken) < most:
            taken.append(waiting.popleft())
    except IndexError:
        pass  # Empty, or emptied by the other thread.
    return taken
