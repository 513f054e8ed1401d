"""The loop behind `@queue.worker`: receives, dispatches messages to threads, extends their leases, acknowledges.

One thread receives, one extends the leases of all messages in flight for as long as they take, and `concurrency`
threads handle, or as many as `concurrency.py` finds useful. An unreachable broker is waited for; leases survive its
restart, here and there.
"""

import inspect
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from headrace.client.errors import ClientError, LeaseLost, Reject, Retry, Unreachable
from headrace.client.failures import failure_of, reason_for_broker
from headrace.client.health import WorkerMonitor
from headrace.client.queue.acks import AckResult
from headrace.client.queue.concurrency import ThreadLimit
from headrace.client.queue.in_flight import InFlightMessage, InFlightMessages
from headrace.client.queue.message import QueueMessage, Seconds, seconds
from headrace.model.failure_headers import reason_with

if TYPE_CHECKING:
    from headrace.client.otel import MessagingTracer, ProcessSpan
    from headrace.client.queue.queue import Queue

_WAIT_S = 1.0
"""How long one receive waits; `stop` waits for it to return."""
_AT_MOST = 1_000
_LEAST_LEASE_S = 1.0
_MOST_LEASE_S = 12 * 60 * 60.0
_LOOK_EVERY_S = 5.0
"""How often the number of available messages is requested."""
_ADAPT_EVERY_S = 0.25

Concurrency = int | Literal["auto"]


@dataclass(frozen=True)
class QueueWorker:
    """A worker as it was registered, with its options."""

    queue: "Queue"
    function: Callable[[QueueMessage], object]
    monitor: WorkerMonitor
    concurrency: Concurrency = 8
    visibility: Seconds | None = None
    type: Any = None

    def __post_init__(self) -> None:
        if self.concurrency != "auto" and (not isinstance(self.concurrency, int) or self.concurrency < 1):
            raise ValueError('concurrency must be at least 1, or "auto"')
        if self.visibility is not None and not _LEAST_LEASE_S <= seconds(self.visibility) <= _MOST_LEASE_S:
            raise ValueError("visibility must be between a second and twelve hours")

    def calling(self, function: Callable[[QueueMessage], object]) -> "QueueWorker":
        """The same worker with another function."""
        return replace(self, function=function)


class WorkerQueue(Protocol):
    """The part of a queue that the loop uses."""

    name: str

    def receive_until(
        self, is_over: Callable[[], bool], maximum: int, wait_s: float, visibility_s: float
    ) -> list[QueueMessage]: ...
    def dead_letter(self, message: QueueMessage, reason: str) -> bool: ...
    def reply(self, message: QueueMessage, value: object) -> None: ...
    def backlog(self) -> int | None: ...
    def flush(self) -> None: ...


class WorkerLoop:
    """Runs a worker. `run` returns after `stop`, or raises."""

    def __init__(
        self,
        source: WorkerQueue,
        call: Callable[[QueueMessage], object],
        monitor: WorkerMonitor,
        *,
        concurrency: Concurrency,
        lease_s: float,
        is_fifo: bool,
        tracing: "MessagingTracer | None" = None,
    ) -> None:
        self._source = source
        self._tracing = tracing
        self._call = call
        self.monitor = monitor
        self._limit = ThreadLimit(time.monotonic()) if concurrency == "auto" else None
        """None if the number of threads is fixed."""
        self._concurrency = self._limit.threads if self._limit is not None else int(concurrency)
        self._threads: list[threading.Thread] = []
        self._lease_s = max(lease_s, _LEAST_LEASE_S)
        self._is_fifo = is_fifo
        self._lock = threading.Lock()
        self._work_to_do = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        """Notified when a message is finished, successfully or not."""
        self._hand: InFlightMessages[QueueMessage] = InFlightMessages(
            self._concurrency, self._lease_s, time.monotonic()
        )
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._looked_at_s = 0.0

    def stop(self) -> None:
        """Finish the messages being handled and return the rest. Safe in any thread and signal handler."""
        # Waiters poll and are not notified: a signal handler may have interrupted a thread that holds the lock.
        self._stopping.set()

    def discard(self) -> None:
        """There is nothing to release."""

    def run(self) -> None:
        leases = self._thread(self._keep_leases)
        with self._lock:
            self._allow(self._concurrency)
        try:
            while not self._is_over():
                self._receive()
        except BaseException as error:
            self._fail(error)
        self._return_waiting()
        with self._lock:
            while self._hand.running:
                self._room.wait(_WAIT_S)
            self._ended.set()
            self._work_to_do.notify_all()
        for each in (leases, *self._threads):
            each.join()
        try:
            self._source.flush()
        except ClientError as error:
            self._fail(error)
        if self._failure is not None:
            raise self._failure

    def _thread(self, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"headrace-{self._source.name}", daemon=True)
        thread.start()
        return thread

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self._failure is not None

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
            self._room.notify_all()

    # Receiving

    def _receive(self) -> None:
        with self._lock:
            room = self._hand.room(time.monotonic())
            if not room:
                self._room.wait(_WAIT_S)
                return
        try:
            found = self._source.receive_until(self._is_over, min(room, _AT_MOST), _WAIT_S, self._lease_s)
        except Unreachable as error:
            if not self._is_over():
                self.monitor.troubled(error, f"waiting for messages of {self._source.name}")
            return
        self._look()
        if found:
            with self._lock:
                self._hand.put([(each, each.group if self._is_fifo else None) for each in found], time.monotonic())
                self._work_to_do.notify(len(found))

    def _look(self) -> None:
        if time.monotonic() - self._looked_at_s >= _LOOK_EVERY_S:
            self.monitor.behind(self._source.backlog())
            self._looked_at_s = time.monotonic()

    def _return_waiting(self) -> None:
        with self._lock:
            rest = self._hand.give_up()
        self._release(rest)

    def _release(self, messages: Iterable[QueueMessage]) -> None:
        for each in messages:
            each.nack(0, "returned unhandled")

    # Leases

    def _keep_leases(self) -> None:
        # Messages that are received meanwhile are due only after half of their lease.
        every_s = _WAIT_S if self._limit is None else _ADAPT_EVERY_S
        while not self._ended.wait(min(every_s, self._lease_s / 10)):
            with self._lock:
                due = self._hand.to_renew(time.monotonic())
                if self._limit is not None and not self._is_over() and self._limit.tick(time.monotonic()):
                    self._allow(self._limit.threads)
            self._renew(due)
            self.monitor.tick()

    def _renew(self, due: list[InFlightMessage[QueueMessage]]) -> None:
        for held in due:
            held.message.extend_soon(self._lease_s).when_done(partial(self._renewed, held))

    def _renewed(self, held: InFlightMessage[QueueMessage], done: AckResult) -> None:
        if isinstance(done.exception(), LeaseLost):
            with self._lock:
                self._hand.lost(held)

    # Handling

    def _allow(self, threads: int) -> None:
        """Let this many messages be handled at a time. Threads that are not needed any more wait."""
        self._concurrency = self._hand.concurrency = threads
        while len(self._threads) < threads:
            self._threads.append(self._thread(self._work))
        if self._limit is not None:
            self.monitor.uses(threads)
            self._work_to_do.notify_all()
            self._room.notify_all()

    def _next(self) -> InFlightMessage[QueueMessage] | None:
        if self._is_over() or self._hand.running >= self._concurrency:
            return None
        held = self._hand.start()
        if held is None and self._limit is not None:
            self._limit.idle()
        return held

    def _work(self) -> None:
        while True:
            with self._lock:
                held = self._next()
                if held is None:
                    if self._ended.is_set():
                        return
                    self._work_to_do.wait(_WAIT_S)
                    continue
            try:
                self._handle(held)
            except BaseException as error:
                self._fail(error)

    def _handle(self, held: InFlightMessage[QueueMessage]) -> None:
        if self._tracing is None or (tracer := self._tracing.active) is None:
            self._handle_message(held)
            return
        with tracer.process_queued(held.message, self._source.name) as span:
            self._handle_message(held, span)

    def _handle_message(self, held: InFlightMessage[QueueMessage], span: "ProcessSpan | None" = None) -> None:
        message = held.message
        behind: list[QueueMessage] = []
        try:
            returned = self._call(message)
            _refuse_coroutine(returned)
            self._source.reply(message, returned)
        except BaseException as error:
            if span is not None:
                span.failed(error)
            with self._lock:
                behind = self._hand.failed(held)
                self._count_finished()
                self._room.notify_all()
            self._give_up_on(message, error)
            # Only now: they must not be handled before the one that failed is to be.
            self._release(behind)
            if not isinstance(error, Exception):
                raise
            return
        self.monitor.handled()
        if not message.is_settled:
            message.ack()
        with self._lock:
            self._hand.done(held)
            self._count_finished()
            self._room.notify_all()

    def _count_finished(self) -> None:
        if self._limit is not None:
            self._limit.finished()

    def _give_up_on(self, message: QueueMessage, error: BaseException) -> None:
        name = f"{message.id} of {message.queue}"
        reason = reason_for_broker(error)
        is_expected = isinstance(error, Reject | Retry)
        if message.is_settled:
            self.monitor.failed(error, f"failed after it settled {name}", "after settling", is_expected=is_expected)
            return
        if isinstance(error, Reject) and self._source.dead_letter(message, reason):
            self.monitor.failed(error, f"{name} is dead-lettered", "dead-lettered", is_expected=True)
            return
        what = f"{name} failed at attempt {message.attempt} and is returned"
        self.monitor.failed(error, what, "returned", is_expected=is_expected)
        if isinstance(error, Retry):
            text = " ".join(str(error).split()) or "to be tried again"
            message.nack(error.delay, reason_with(text, failure_of(error)))
        else:
            message.nack(None, reason)


def _refuse_coroutine(returned: object) -> None:
    """Reject a coroutine as a result: it was never awaited, so its message must not be acknowledged."""
    if inspect.iscoroutine(returned):
        returned.close()
        raise TypeError(
            "the worker returned a coroutine that was never awaited: register an `async def` function itself"
        )
