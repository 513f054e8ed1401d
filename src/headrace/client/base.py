"""The base of both clients: construction, and the handlers that `run` runs."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from headrace.client.backoff import Backoff
from headrace.client.consume.options import Delivery, Handler
from headrace.client.consume.runner import Loop, stop_all
from headrace.client.errors import ClientError
from headrace.client.factory import ConnectionFactory, names_of
from headrace.client.health import Health, WorkerMonitor, health_of, name_of
from headrace.client.kafka.reachability import TIMEOUT_S
from headrace.client.keywords import checks_keywords
from headrace.client.message import Message
from headrace.client.partitioners import Partitioner, by_key
from headrace.client.queue.message import Seconds
from headrace.client.queue.queue import Queue
from headrace.client.queue.rpc import PATIENCE_S
from headrace.client.queue.worker import QueueWorker
from headrace.client.retry import RetryMode
from headrace.client.schedules import PREFIX, Missed, PeriodicWork, Schedules, rule_of, schedule_name
from headrace.config.client_connection import resolve_connection
from headrace.model.errors import SettingsError


class Closable(Protocol):
    when_closed: Callable[[], None]


StreamT = TypeVar("StreamT", bound=Closable)
AnyT = TypeVar("AnyT", bound=Closable)
HandlerT = TypeVar("HandlerT", bound=Callable[[Message], object])
PeriodicT = TypeVar("PeriodicT", bound=Callable[..., object])


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
        self._periodic: dict[str, PeriodicWork] = {}
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
        everywhere: bool = False,
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
        - `everywhere`: handle the messages of the mirrors of these topics, too, see `Client.consume`.
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
                everywhere,
            )
            self._handlers.append(handler)
            return function

        return register

    def every(
        self,
        period: str | Seconds,
        *,
        name: str | None = None,
        missed: Missed = "once",
        attempts: int = 3,
        visibility: Seconds | None = None,
    ) -> Callable[[PeriodicT], PeriodicT]:
        """Register a function that `run` calls once every period, in one of the workers of the cluster, however many
        there are. With asyncio it may be `async`. If it has a parameter, it gets the due time.

        ```python
        @client.every("5 minutes")
        def clean_up(due):
            print("cleaning up what is older than", due)
        ```

        The period is a text such as `"30 seconds"` or `"1 day"`, seconds, or a `timedelta`, from 100 ms to 366 days. It
        is due at the multiples of the period since the epoch (UTC): `"1 hour"` on the hour. `cron` has other times.

        - `name`: the schedule's name in the cluster, by default the module's and the function's. Functions of the same
          name are one schedule.
        - `missed`: what becomes of due times when no worker or no broker was there: `"once"` runs the latest,
          `"skip"` none that is more than a minute late, `"all"` each, but no more than the last 1,000.
        - `attempts`: how often a run that raises is tried, before it goes to the queue `schedules-dead.NAME`.
        - `visibility`: a run of a worker that was killed is begun again after this time, by default 30 seconds.

        Each due time is one message, and runs do not overlap. A run is repeated only if it failed, or if its worker was
        killed or lost its lease: use the due time as the key of effects that must not happen twice.
        """
        return self._periodically(rule_of(period), "UTC", name, missed, attempts, visibility)

    def cron(
        self,
        expression: str,
        *,
        timezone: str = "UTC",
        name: str | None = None,
        missed: Missed = "once",
        attempts: int = 3,
        visibility: Seconds | None = None,
    ) -> Callable[[PeriodicT], PeriodicT]:
        """Like `every`, at the times of a cron expression in a time zone: minute, hour, day of month, month and day of
        week, and before them seconds if there are six fields.

        ```python
        @client.cron("0 6 * * MON-FRI", timezone="Europe/Berlin")
        def send_report(due):
            print("the report of", due.date())
        ```

        When the clocks are set forward, a time within the hour that is left out is due right after it; when they are
        set back, a time in the repeated hour is due once. Jobs whose minute or hour begins with `*` are due as
        often as time passes. The other arguments are those of `every`.
        """
        return self._periodically(f"cron {expression.strip()}", timezone, name, missed, attempts, visibility)

    def _periodically(
        self, rule: str, timezone: str, name: str | None, missed: Missed, attempts: int, visibility: Seconds | None
    ) -> Callable[[PeriodicT], PeriodicT]:
        def register(function: PeriodicT) -> PeriodicT:
            chosen = name or schedule_name(function)
            if chosen in self._periodic:
                raise ValueError(f"there are two functions for the schedule {chosen}: give each a name=")
            work = PeriodicWork(chosen, rule, timezone, missed, attempts, self._queue(PREFIX + chosen))
            self._periodic[chosen] = work
            monitor = WorkerMonitor(name_of(function), f"schedule {chosen}")
            self._workers.append(QueueWorker(work.queue, work.calls(function), monitor, 1, visibility))
            return function

        return register

    def _made_schedules(self) -> Schedules:
        return Schedules(lambda: self._connection.queues("", with_counts=True), self._queue)

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
        for work in self._periodic.values():
            work.put()
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


class ClientParts(NamedTuple):
    """What a client has registered, and how it connects."""

    handlers: Sequence[Handler]
    workers: Sequence[QueueWorker]
    connection: ConnectionFactory


def parts_of(client: ClientBase[Any]) -> ClientParts:
    """The parts of a client, for the processes of `headrace work`."""
    return ClientParts(client._handlers, client._workers, client._connection)
