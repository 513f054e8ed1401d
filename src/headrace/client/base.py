"""The base of both clients: construction, and the handlers that `run` runs."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Generic, Literal, Protocol, TypeVar

from headrace.client.backoff import Backoff
from headrace.client.consume.options import Delivery, Handler
from headrace.client.consume.runner import Loop, stop_all
from headrace.client.errors import ClientError
from headrace.client.factory import ConnectionFactory, names_of
from headrace.client.health import Health, health_of, name_of
from headrace.client.kafka.reachability import TIMEOUT_S
from headrace.client.keywords import checks_keywords
from headrace.client.message import Message
from headrace.client.partitioners import Partitioner, by_key
from headrace.client.queue.queue import Queue
from headrace.client.queue.rpc import PATIENCE_S
from headrace.client.queue.worker import QueueWorker
from headrace.client.retry import RetryMode
from headrace.config.client_connection import resolve_connection
from headrace.model.errors import SettingsError


class Closable(Protocol):
    when_closed: Callable[[], None]


StreamT = TypeVar("StreamT", bound=Closable)
AnyT = TypeVar("AnyT", bound=Closable)
HandlerT = TypeVar("HandlerT", bound=Callable[[Message], object])


@checks_keywords
class ClientBase(Generic[StreamT]):
    """Registers handlers, and the open streams, which are closed with the client."""

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        mechanism: str | None = None,
        token: str | Callable[[], str] | None = None,
        tls: bool | str | PathLike[str] | None = None,
        cert: str | PathLike[str] | None = None,
        key: str | PathLike[str] | None = None,
        key_password: str | None = None,
        verify_hostname: bool | None = None,
        profile: str | None = None,
        client_id: str = "headrace",
        partitioner: Partitioner = by_key,
        source: str | None = None,
        settings: Mapping[str, Any] | None = None,
        http: str = "",
        access_key: str = "",
        patience: float = PATIENCE_S,
        connect_timeout: float = TIMEOUT_S,
    ) -> None:
        """`bootstrap` has the addresses of one or more brokers, `HOST:PORT` by comma; by default `localhost:9092`.
        Nothing is connected before it is needed. What is not given is taken from the environment (`HEADRACE_BOOTSTRAP`,
        `HEADRACE_USER`, `HEADRACE_PASSWORD`, `HEADRACE_TLS` …), then from the profile. `ClientError` for what cannot be
        used.

        - `user`, `password`: log in with SASL; `mechanism` is SCRAM-SHA-512 by default, or SCRAM-SHA-256 or PLAIN.
        - `token`: for OAUTHBEARER, a token, or better a function that returns one whenever a connection needs it.
        - `tls`: True to verify the broker with the authorities of the system, or the path of a CA file.
        - `cert`, `key`, `key_password`: the client's certificate for mTLS, in PEM files.
        - `verify_hostname`: False accepts a trusted certificate of another host.
        - `profile`: the name of a profile in `~/.config/headrace/config.toml`.
        - `client_id`: how the broker's logs and quotas name this client.
        - `partitioner`: which partition a message goes to: `by_key`, `RoundRobin()`, `Sticky()` or a function of the
          key and the number of partitions.
        - `source`: the `ce_source` of events published without one; by default `/` and the client id.
        - `settings`: settings of librdkafka by their own names, for compression, timeouts and the like.
          `ClientError` for an unknown name or a wrong value.
        - `http`: the HTTP addresses for queues, such as `http://localhost:9324`, separated by commas; by default the
          brokers are asked for them.
        - `access_key`: `ID:SECRET`, an access key of the user, for queues; without it, they use the password.
        - `patience`: for how many seconds a call of a queue is retried without an answer.
        - `connect_timeout`: `Unreachable` is raised when no broker has taken the connection this many seconds after the
          first call, or answered it after four times as many. Once one has answered, brokers that are away are waited
          for.
        """
        try:
            connection = resolve_connection(
                profile=profile,
                bootstrap=bootstrap,
                http=http or None,
                access_key=access_key or None,
                user=user,
                password=password,
                mechanism=mechanism,
                token=token,
                tls=tls,
                cert_file=cert and fspath(cert),
                key_file=key and fspath(key),
                key_password=key_password,
                verify_hostname=verify_hostname,
            )
        except SettingsError as error:
            raise ClientError(str(error)) from None
        self.bootstrap = connection.bootstrap
        self._connection = ConnectionFactory(
            connection,
            client_id=client_id,
            partitioner=partitioner,
            source=source,
            settings=settings,
            patience_s=patience,
            connect_timeout_s=connect_timeout,
        )
        self._handlers: list[Handler] = []
        self._workers: list[QueueWorker] = []
        self._queues: dict[str, Queue] = {}
        self._loops: list[Loop] = []
        self._is_stopped = False
        self._streams: set[StreamT] = set()
        self._prepare()

    def _prepare(self) -> None:
        """Called at the end of `__init__`."""

    def ack(self, message: Message) -> None:
        """Acknowledge a message: the same as `message.ack()`."""
        message.ack()

    def handler(
        self,
        topic: str | Sequence[str],
        group: str,
        *,
        delivery: Delivery = "at-least-once",
        retry: Backoff = Backoff(),  # noqa: B008 - it cannot be changed
        retry_mode: RetryMode = "hold",
        retry_topic: str | None = None,
        dead_letter: str | None = None,
        workers: int = 1,
        start: Literal["earliest", "latest"] = "earliest",
        batch: int = 100,
        commit_interval_s: float | None = None,
        transactional_id: str | None = None,
        type: Any = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """Register a function that `run` calls with every message of the topics. With asyncio it may be `async`; one
        that is not runs on a thread.

        ```python
        from headrace import Backoff, Outgoing


        @client.handler("orders", group="billing", retry=Backoff(attempts=5), dead_letter="orders.dlq")
        def bill(order):
            return Outgoing("invoices", {"bill": order.json()["item"]})
        ```

        It returns None, or `Outgoing` messages to publish: before the message is committed (at least once), or in one
        transaction with it (exactly once). `headrace.Reject` skips the tries.

        - `delivery`: what a crash costs, see `Client.consume`.
        - `retry`: how often and after which waits a message is tried again when the function raises.
        - `retry_mode`: `"hold"` keeps the order of the partition; `"retry-topic"` goes on with the next message.
        - `retry_topic`: the topic for `"retry-topic"`; by default `<topic>.<group>.retry`.
        - `dead_letter`: where messages go that failed for good; without it the handler stops at the first of them.
        - `workers`: how many partitions are handled at the same time.
        - `start`: where a group begins that has committed nothing.
        - `batch`: at most once, so many messages are committed before the first of them is handled.
        - `commit_interval_s`: how often offsets are committed; by default 0.5, and 0.1 for exactly once.
        - `transactional_id`: exactly once, a name that this process keeps over restarts.
        - `type`: the type of `message.value`; a message of another type is dead-lettered, see `Client.consume`.
        """

        def register(function: HandlerT) -> HandlerT:
            handler = Handler(
                names_of(topic),
                group,
                function,
                delivery,
                retry,
                retry_mode,
                retry_topic,
                dead_letter,
                workers,
                start,
                batch,
                commit_interval_s,
                transactional_id,
                type,
            )
            self._handlers.append(handler)
            return function

        return register

    def health(self) -> Health:
        """The state of the registered handlers and workers: whether they run, their counts, last error and lag. It
        makes no network call, so a health endpoint can call it for every probe.

        ```python
        print(client.health().as_dict())
        ```
        """
        handlers = [each.monitor for each in self._handlers]
        return health_of(
            [*handlers, *(each.monitor for each in self._workers)], self._connection.connection_errors.last
        )

    def stop(self) -> None:
        """Let `run` return, or the next `run` if there is none now. May be called from anywhere, handlers too."""
        self._is_stopped = True
        stop_all(self._loops)

    def _queue(self, name: str) -> Queue:
        if name not in self._queues:
            self._queues[name] = self._connection.queue(name, self._workers.append)
        return self._queues[name]

    def _made_loops(self, handlers: list[Handler], workers: list[QueueWorker]) -> list[Loop]:
        """What `run` is to run. Asks the broker."""
        for function in (*(each.function for each in handlers), *(each.function for each in workers)):
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"{name_of(function)} is a coroutine function: those are for headrace.aio.Client")
        # Workers first: if one fails to start, there is no consumer to close yet.
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
