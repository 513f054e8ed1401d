"""The base of streams of messages: iteration, batches, stopping, closing."""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from headrace.client.errors import ClientError
from headrace.client.kafka.consumer import PartitionConsumer, Where
from headrace.client.kafka.librdkafka import log_errors
from headrace.client.keywords import checks_keywords
from headrace.client.message import Message

if TYPE_CHECKING:
    from headrace.client.otel import MessagingTracer

_SLICE_S = 0.2

S = TypeVar("S", bound="Stream")


@checks_keywords
class Stream(ABC, Iterator[Message]):
    """An endless stream of messages: iterate over it, or `take` batches.

    Use it in a `with` block, or call `close`. It belongs to one thread: others may call only `stop` and `ack`.
    """

    ends_by_itself = False
    """Whether it is closed when there are no more messages."""

    def __init__(self, poller: PartitionConsumer) -> None:
        self._poller = poller
        self._buffer: deque[Message] = deque()
        self._stopping = threading.Event()
        self._is_closed = False
        self._tracing: MessagingTracer | None = None
        self._group: str | None = None
        self.when_closed: Callable[[], None] = lambda: None

    def trace(self, tracing: "MessagingTracer | None", group: str | None) -> None:
        """Make a span for each poll, and one for each `with message:`."""
        self._tracing, self._group = tracing, group

    def __next__(self) -> Message:
        while not (self.ends_by_itself and self._is_closed):
            found = self.take(1, _SLICE_S)
            if found:
                return found[0]
            if self.is_over:
                if self.ends_by_itself:
                    self.close()
                break
        raise StopIteration

    def take(self, maximum: int, timeout_s: float) -> list[Message]:
        """Up to `maximum` messages, as soon as there are any; none after `timeout_s`."""
        if self._is_closed:
            raise ClientError("this stream of messages is closed")
        self._before_take()
        if not self._buffer and not self.is_over:
            if self._tracing is None or (tracer := self._tracing.active) is None:
                self._fill(timeout_s)
            else:
                self._fill_traced(timeout_s, tracer)
        return [self._deliver(self._buffer.popleft()) for _ in range(min(maximum, len(self._buffer)))]

    def _fill_traced(self, timeout_s: float, tracer: "MessagingTracer") -> None:
        began_ns = time.time_ns()
        self._poller.process = partial(tracer.process_record, group=self._group, is_counted=False)
        self._fill(timeout_s)
        if self._buffer:
            tracer.received_records(self._buffer, began_ns, self._group)

    def hand_back(self, messages: Iterable[Message]) -> None:
        """Discard messages that were polled and not delivered. They count as read, but not as done."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End the iteration before its next message. May be called from any thread."""
        self._stopping.set()

    def ack(self, message: Message) -> None:
        """Say that a message is done; only at-least-once takes note of it."""

    def close(self) -> None:
        """Close it; what is done is committed."""
        self._end(is_success=True)

    def abandon(self) -> None:
        """End it after a failure: a transaction in progress is aborted, and what fails now is only logged. Otherwise
        the same as `close`."""
        with log_errors("closing a stream"):
            self._end(is_success=False)

    def _end(self, *, is_success: bool) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.stop()
            self._buffer.clear()
            try:
                self._finish(is_success)
            finally:
                self.when_closed()
                self._poller.close()

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _drop(self, where: Collection[Where]) -> None:
        """Forget messages of these partitions that were read and not delivered."""
        retained = [each for each in self._buffer if (each.topic, each.partition) not in where]
        self._buffer.clear()
        self._buffer.extend(retained)

    def _before_take(self) -> None:
        """Called each time the user comes back for more."""

    @abstractmethod
    def _fill(self, timeout_s: float) -> None:
        """Read into the buffer."""

    def _deliver(self, message: Message) -> Message:
        return message

    def _finish(self, is_success: bool) -> None:
        """Called once, before the consumer is closed."""
