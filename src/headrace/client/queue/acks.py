"""Acknowledgements, returns and lease extensions, sent together: those made during a call go out with the next one."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from headrace.client.errors import ClientError, LeaseLost, QueueFailed, Unreachable
from headrace.client.kafka.librdkafka import log
from headrace.client.queue.rpc import PATIENCE_S, QueueRpc, failed
from headrace.model import queue_wire as wire

_AT_ONCE = 1_000

T = TypeVar("T")
Wanted = tuple[T, "AckResult"]


class AckResult:
    """The result of one acknowledgement, return or extension: a cheap future, since there is one per message."""

    __slots__ = ("_answered", "_callback", "_error", "_is_done")

    def __init__(self, answered: threading.Condition) -> None:
        self._answered = answered
        self._is_done = False
        self._error: ClientError | None = None
        self._callback: Callable[[AckResult], None] | None = None

    def done(self) -> bool:
        return self._is_done

    def exception(self, timeout: float | None = None) -> ClientError | None:
        """The error, or None after a success. Waits for the response; `TimeoutError` if it does not come in time."""
        if not self._is_done:
            with self._answered:
                if not self._answered.wait_for(lambda: self._is_done, timeout):
                    raise TimeoutError("the broker has not answered yet")
        return self._error

    def result(self, timeout: float | None = None) -> None:
        """Wait for the broker's response. Raises its error, such as `LeaseLost`."""
        if (error := self.exception(timeout)) is not None:
            raise error

    def when_done(self, call: "Callable[[AckResult], None]") -> None:
        """Call this once when the result is known: now, or later on another thread."""
        with self._answered:
            if not self._is_done:
                self._callback = call
                return
        call(self)

    def settle(self, error: ClientError | None) -> "Callable[[AckResult], None] | None":
        """Set the result, under the lock of `answered`; the caller runs the returned callback after releasing it."""
        self._error = error
        self._is_done = True
        return self._callback


class AckBatcher:
    """Acknowledges, returns and extends leases of one queue's messages. Thread-safe; its daemon thread is started with
    the first of them."""

    def __init__(self, queue: str, rpc: QueueRpc) -> None:
        self._queue = queue
        self._rpc = rpc
        self._lock = threading.Condition()
        self._answered = threading.Condition()
        self._acks: deque[Wanted[str]] = deque()
        self._nacks: deque[Wanted[tuple[str, int | None, str]]] = deque()
        self._extensions: deque[Wanted[tuple[str, int]]] = deque()
        self._thread: threading.Thread | None = None
        self._in_flight = 0
        self._give_up_at_s = float("inf")
        self._is_closed = False

    def ack(self, receipt: str) -> AckResult:
        return self._add(self._acks, receipt)

    def nack(self, receipt: str, delay_ms: int | None, reason: str) -> AckResult:
        return self._add(self._nacks, (receipt, delay_ms, reason))

    def extend(self, receipt: str, visibility_ms: int) -> AckResult:
        return self._add(self._extensions, (receipt, visibility_ms))

    def _add(self, waiting: "deque[Wanted[T]]", wanted: T) -> AckResult:
        settlement = AckResult(self._answered)
        with self._lock:
            if self._is_closed:
                raise ClientError("the client is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"headrace-{self._queue}", daemon=True)
                self._thread.start()
            waiting.append((wanted, settlement))
            if not self._in_flight:
                self._lock.notify_all()
        return settlement

    def flush(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until everything said so far is answered. Raises `Unreachable` if it is not in time."""
        with self._lock:
            if not self._lock.wait_for(lambda: not self._is_busy(), timeout_s):
                raise Unreachable(
                    f"no broker answers for the queue {self._queue}: acknowledged messages may be redelivered"
                )

    def close(self, timeout_s: float = PATIENCE_S) -> None:
        """Flush, and stop the thread. Raises as `flush` does."""
        self._give_up_at_s = time.monotonic() + timeout_s
        try:
            self.flush(timeout_s)
        finally:
            with self._lock:
                self._is_closed = True
                self._lock.notify_all()
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join(1.0)

    def _is_busy(self) -> bool:
        return bool(self._in_flight or self._acks or self._nacks or self._extensions)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._in_flight = 0
                if not self._is_busy():
                    self._lock.notify_all()
                    self._lock.wait_for(lambda: self._is_busy() or self._is_closed)
                if self._is_closed:
                    left = [*_take(self._acks), *_take(self._nacks), *_take(self._extensions)]
                    break
                # Leases first: their time may be running out.
                extensions, acks, nacks = _take(self._extensions), _take(self._acks), _take(self._nacks)
                self._in_flight = len(extensions) + len(acks) + len(nacks)
            if extensions:
                self._say(wire.Extend(self._queue, [each for each, _ in extensions]), extensions, "extended")
            if acks:
                self._say(wire.Acknowledge(self._queue, [each for each, _ in acks]), acks, "acknowledged")
            if nacks:
                self._say(wire.GiveBack(self._queue, [each for each, _ in nacks]), nacks, "")
        self._tell(left, [ClientError("the client is closed")] * len(left))

    def _say(
        self, call: wire.Extend | wire.Acknowledge | wire.GiveBack, wanted: "Sequence[Wanted[T]]", what: str
    ) -> None:
        problems: Sequence[wire.Problem | None]
        try:
            problems = self._rpc.call(
                call, wire.Outcomes, is_over=lambda: time.monotonic() > self._give_up_at_s
            ).problems
        except ClientError as error:
            log.warning("%d messages of %s were not %s: %s", len(wanted), self._queue, what or "returned", error)
            self._tell(wanted, [error] * len(wanted))
            return
        self._tell(wanted, [None if problem is None else self._judged(failed(problem), what) for problem in problems])

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
            call(settlement)


def _take(waiting: "deque[Wanted[T]]") -> "list[Wanted[T]]":
    return [waiting.popleft() for _ in range(min(_AT_ONCE, len(waiting)))]
