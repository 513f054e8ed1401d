"""What both clients have in common: how they are made, and the handlers that `run` runs."""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar, Unpack

from headrace.client.connection import ClientOptions, Connection, names_of
from headrace.client.handlers import Handler, HandlerOptions
from headrace.client.message import Message
from headrace.client.queue import Queue
from headrace.client.queue_worker import Worker
from headrace.client.running import Loop


class Closable(Protocol):
    when_closed: Callable[[], None]


StreamT = TypeVar("StreamT", bound=Closable)
AnyT = TypeVar("AnyT", bound=Closable)
HandlerT = TypeVar("HandlerT", bound=Callable[[Message], object])


class ClientBase(Generic[StreamT]):
    """Knows the streams that were opened, so that they are closed with the client."""

    def __init__(self, bootstrap: str = "localhost:9092", **options: Unpack[ClientOptions]) -> None:
        self.bootstrap = bootstrap
        self._connection = Connection(bootstrap, options)
        self._handlers: list[Handler] = []
        self._workers: list[Worker] = []
        self._queues: dict[str, Queue] = {}
        self._loops: list[Loop] = []
        self._is_stopped = False
        self._streams: set[StreamT] = set()

    def ack(self, message: Message) -> None:
        """Say that a message is done: the same as `message.ack()`."""
        message.ack()

    def handler(
        self, topic: str | Sequence[str], group: str, **options: Unpack[HandlerOptions]
    ) -> Callable[[HandlerT], HandlerT]:
        """Register a function that `run` calls with every message of the topics. With asyncio it may be `async`; one
        that is not runs on a thread.

        It returns None, or `Outgoing` messages to publish: before the message is committed (at least once), or in one
        transaction with it (exactly once). When it raises, the message is tried again after `retry`, in place or, with
        `retry_mode="retry-topic"`, from a topic of its own; in the end it goes to `dead_letter`, or, without one, the
        handler stops. `headrace.Reject` skips the tries. `workers` partitions are handled at the same time.
        """

        def register(function: HandlerT) -> HandlerT:
            self._handlers.append(Handler(names_of(topic), group, function, **options))
            return function

        return register

    def stop(self) -> None:
        """Let `run` return, or the next `run` if there is none now. May be called from anywhere, handlers too."""
        self._is_stopped = True
        for loop in self._loops:
            loop.stop()

    def _queue(self, name: str) -> Queue:
        if name not in self._queues:
            self._queues[name] = self._connection.queue(name, self._workers.append)
        return self._queues[name]

    def _made_loops(self, handlers: list[Handler], workers: list[Worker]) -> list[Loop]:
        """What `run` is to run. Asks the broker."""
        # Workers first: what fails of them has nothing to let go of.
        loops: list[Loop] = [each.queue.loop(each) for each in workers]
        return [*loops, *self._connection.loops(handlers)]

    def _begin(self, loops: list[Loop]) -> None:
        self._loops = loops
        if self._is_stopped:
            self.stop()

    def _opened(self, stream: AnyT) -> AnyT:
        """Closed with the client, unless it is before."""
        known: set[AnyT] = self._streams  # type: ignore[assignment]
        known.add(stream)
        stream.when_closed = lambda: known.discard(stream)
        return stream
