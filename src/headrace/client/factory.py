"""Creates the parts of a client that need the broker's address and settings."""

import ssl
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from typing import Any, Literal

from confluent_kafka import Producer

from headrace.client import librdkafka_settings, topics
from headrace.client.consume.exactly_once import ExactlyOnce
from headrace.client.consume.group import AtLeastOnce, AtMostOnce, Consumption
from headrace.client.consume.loop import HandlerLoop
from headrace.client.consume.options import Delivery, Handler
from headrace.client.consume.results import AtLeastOnceSink, AtMostOnceSink, ExactlyOnceSink, ResultSink
from headrace.client.consume.subscription import Start, Subscription
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.client.json_api import JsonApi
from headrace.client.kafka import librdkafka
from headrace.client.kafka.batch_producer import CONFIG as BULK
from headrace.client.kafka.batch_producer import BatchProducer
from headrace.client.kafka.consumer import PartitionConsumer
from headrace.client.kafka.mirrors import MirrorWatch
from headrace.client.kafka.publisher import Publisher
from headrace.client.kafka.reachability import FirstContact, http_contact, is_secure, kafka_contact
from headrace.client.kafka.secure_contact import SecureContact
from headrace.client.kafka.transactor import Transactor
from headrace.client.message import Message
from headrace.client.outgoing import Outgoing, collect
from headrace.client.partitioners import Partitioner, by_key
from headrace.client.queue import discovery
from headrace.client.queue.calls import ReplyReceiver, ReplySender
from headrace.client.queue.description import QueueDescription
from headrace.client.queue.queue import Queue
from headrace.client.queue.rpc import QueueRpc
from headrace.client.queue.worker import QueueWorker
from headrace.client.schemas.cache import SchemaCache
from headrace.client.schemas.reader import ValueReader
from headrace.client.schemas.registry import RegistryCalls
from headrace.client.schemas.serializer import framed
from headrace.client.tracer import messaging_tracer
from headrace.config.client_connection import ClientConnection
from headrace.config.credentials import Credentials
from headrace.model import queue_wire as wire
from headrace.model.errors import SettingsError


class ConnectionFactory:
    """Creates producers, consumers, streams and queues; connects on first use."""

    def __init__(
        self,
        connection: ClientConnection,
        *,
        client_id: str,
        partitioner: Partitioner,
        source: str | None,
        settings: librdkafka.Settings | None,
        patience_s: float,
        connect_timeout_s: float,
    ) -> None:
        librdkafka_settings.check(settings or {})
        bootstrap, credentials = connection.bootstrap, connection.credentials
        self.bootstrap = bootstrap
        self._credentials = credentials
        self._client_id = client_id
        self.partitioner = partitioner
        self._source = f"/{client_id}" if source is None else source
        self.connection_errors = librdkafka.ConnectionErrorLog(bootstrap)
        self._settings = {"error_cb": self.connection_errors, **credentials.librdkafka(), **(settings or {})}
        self._http = [each.strip() for each in connection.http.split(",") if each.strip()]
        self._access_key = connection.access_key
        has_password = credentials.user and credentials.password
        self._queue_login = (credentials.user, credentials.password) if has_password else None
        self._tls = _tls_context(credentials) if credentials.uses_tls else None
        self._patience_s = patience_s
        self.tracing = messaging_tracer(bootstrap, client_id)
        self.contact = self._first_contact(connect_timeout_s)
        self._http_contact = http_contact(self._http, connect_timeout_s) if self._http else self.contact
        self.schemas = SchemaCache(
            RegistryCalls(lambda: self._http_urls("", "schemas"), credentials, patience_s, self._http_contact.make)
        )
        self.replies = ReplyReceiver(self, credentials.user or client_id)
        self.reply_sender = ReplySender(self)
        self._shared_rpc: QueueRpc | None = None
        self._lock = threading.Lock()
        self._publisher: Publisher | None = None

    def _first_contact(self, timeout_s: float) -> FirstContact | SecureContact:
        port = kafka_contact(self.bootstrap, self._settings, timeout_s)
        if not is_secure(self._settings):
            return port
        return SecureContact(port, self.bootstrap, self.admin_config, timeout_s)

    @property
    def publisher(self) -> Publisher:
        """The producer, shared by all users of the client."""
        self.contact.make()
        with self._lock:
            if self._publisher is None:
                self._publisher = self._new_publisher(self._producer_config())
            return self._publisher

    def _new_publisher(self, config: dict[str, Any]) -> Publisher:
        return Publisher(config, self.partitioner, self._source, self.tracing, self.framed)

    def framed(self, outgoing: Outgoing) -> Outgoing:
        """The message with its payload encoded by its schema, if it has one."""
        return framed(outgoing, self.schemas)

    def reader(self, kind: Any) -> ValueReader | None:
        """What reads the values of messages as a type; None without a type."""
        return None if kind is None else ValueReader(self.schemas, kind)

    def bulk(self, queue: str) -> BatchProducer:
        """A producer for many messages of one queue at a time."""

        def make() -> Producer:
            self.contact.make()
            producer = librdkafka.create_client(Producer, self._producer_config() | BULK)
            librdkafka.warm_up(producer, queue)
            return producer

        return BatchProducer(make, self.bootstrap)

    @property
    def used_publisher(self) -> Publisher | None:
        """The producer, if anything was published."""
        return self._publisher

    @property
    def shared_rpc(self) -> QueueRpc:
        """Calls about queues that this client has no `Queue` for."""
        with self._lock:
            if self._shared_rpc is None:
                self._shared_rpc = self._rpc("")
            return self._shared_rpc

    def close_calls(self) -> None:
        """Stop receiving results of calls, and sending them."""
        self.replies.close()
        if self._shared_rpc is not None:
            self._shared_rpc.close()

    def queue(self, name: str, register: Callable[[QueueWorker], None]) -> Queue:
        return Queue(name, self, self._rpc(name), register)

    def queues(self, prefix: str, *, with_counts: bool) -> list[QueueDescription]:
        with closing(self._rpc("")) as rpc:
            found = rpc.call(wire.ListQueues(prefix, with_counts), wire.Descriptions).queues
        return [QueueDescription(each.queue, each.settings, each.counts) for each in found]

    def admin_config(self) -> dict[str, Any]:
        """The settings of a client that neither produces nor consumes."""
        return librdkafka.client_config(self.bootstrap, self._client_id, librdkafka.shared_settings(self._settings))

    def _rpc(self, queue: str) -> QueueRpc:
        def find() -> list[str]:
            return self._http_urls(queue)

        return QueueRpc(find, self._access_key, self._patience_s, self._http_contact.make, self._tls, self._queue_login)

    def api(self, timeout_s: float) -> JsonApi:
        """The HTTP API of a broker. Asks the brokers for its address, if the client was not given one."""
        return JsonApi(self._http_urls("", "the HTTP API")[0], self._credentials, timeout_s)

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None if it does not exist."""
        try:
            return len(topics.Topics(self.contact, self.admin_config()).describe(topic).partitions)
        except NoSuchTopic:
            return None

    def _http_urls(self, queue: str, what: str = "queues") -> list[str]:
        return self._http or discovery.find(self.admin_config(), queue, self._credentials, what)

    def subscription(
        self,
        topic: str,
        start: Start,
        until: datetime | None = None,
        *,
        bounded: bool,
        kind: Any = None,
        everywhere: bool = False,
    ) -> Subscription:
        self.contact.make()
        # Never joined: librdkafka requires a group id even for manual assignment.
        config = librdkafka.consumer_config(
            self.bootstrap, self._client_id, "headrace-subscriber", self._settings, start="earliest"
        )
        with ExitStack() as undo:
            config |= {"enable.partition.eof": True} | _NO_TOPICS
            poller = PartitionConsumer(config, self._watch([topic]) if everywhere else None)
            undo.callback(poller.close)
            poller.reader = self.reader(kind)
            stream = Subscription(poller, topic, start, until, bounded=bounded)
            stream.trace(self.tracing, None)
            undo.pop_all()
        return stream

    def consumption(
        self,
        topic: str | Sequence[str],
        group: str,
        delivery: Delivery,
        *,
        start: Literal["earliest", "latest"],
        batch: int,
        max_unacked: int,
        commit_interval_s: float | None,
        transactional_id: str | None,
        kind: Any = None,
        everywhere: bool = False,
    ) -> Consumption:
        if delivery not in ("at-most-once", "at-least-once", "exactly-once"):
            raise ValueError(f"delivery must be at-most-once, at-least-once or exactly-once, not {delivery!r}")
        if start not in ("earliest", "latest"):
            raise ValueError(f"start must be earliest or latest, not {start!r}")
        names = names_of(topic)
        with ExitStack() as undo:
            poller = self._poller(undo, group, start, names if everywhere else [])
            poller.reader = self.reader(kind)
            stream: Consumption
            if delivery == "at-most-once":
                stream = AtMostOnce(poller, names, batch)
            elif delivery == "at-least-once":
                stream = AtLeastOnce(poller, names, _or(commit_interval_s, 0.5), max_unacked)
            else:
                transactor = self._transactor(undo, transactional_id, group)
                stream = ExactlyOnce(poller, names, transactor, _or(commit_interval_s, 0.1))
            stream.trace(self.tracing, group)
            undo.pop_all()
        return stream

    def loops(self, handlers: list[Handler]) -> list[HandlerLoop]:
        with ExitStack() as undo:
            loops = []
            for handler in handlers:
                loops.append(self._loop(handler))
                undo.callback(loops[-1].discard)
            undo.pop_all()
        return loops

    def _loop(self, handler: Handler) -> HandlerLoop:
        if handler.own_retry_topic is not None:
            self.contact.make()
            topics.ensure(self.admin_config(), handler.own_retry_topic, like=handler.topics[0])
        with ExitStack() as undo:
            poller = self._poller(undo, handler.group, handler.start, handler.topics if handler.everywhere else [])
            poller.reader = self.reader(handler.type)
            sink: ResultSink
            if handler.delivery == "exactly-once":
                sink = ExactlyOnceSink(poller, self._transactor(undo, handler.transactional_id, handler.group))
            elif handler.delivery == "at-least-once":
                sink = AtLeastOnceSink(poller, self.publisher)
            else:
                sink = AtMostOnceSink(poller, self.publisher)
            loop = HandlerLoop(
                poller,
                handler.all_topics,
                self._framing(handler),
                handler.policy,
                sink,
                handler.monitor,
                workers=handler.workers,
                batch=handler.batch,
                commit_interval_s=handler.interval_s,
                tracing=self.tracing,
            )
            undo.pop_all()
        return loop

    def _framing(self, handler: Handler) -> Callable[[Message], list[Outgoing]]:
        """The function of a handler with its values read before, and its results encoded after it.

        So a value that does not fit is a failure of its message, whatever the delivery guarantee.
        """
        call, reads_value = handler.function, handler.type is not None

        def handle(message: Message) -> list[Outgoing]:
            if reads_value:
                _ = message.value
            return [self.framed(each) for each in collect(call(message))]

        return handle

    def _poller(self, undo: ExitStack, group: str, start: str, everywhere: Sequence[str]) -> PartitionConsumer:
        """`everywhere` names the topics whose mirrors are consumed as well."""
        self.contact.make()
        config = librdkafka.consumer_config(self.bootstrap, self._client_id, group, self._settings, start=start)
        if everywhere:
            # A mirror topic that is deleted must not be created by its consumers, as a topic like any other.
            poller = PartitionConsumer(config | _NO_TOPICS, self._watch(everywhere))
        else:
            poller = PartitionConsumer(config)
        undo.callback(poller.close)
        return poller

    def _watch(self, names: Sequence[str]) -> MirrorWatch:
        return MirrorWatch(self.admin_config(), names)

    def _transactor(self, undo: ExitStack, transactional_id: str | None, group: str) -> Transactor:
        """A producer of its own: transactions are a producer's, and one at a time."""
        config = self._producer_config() | {"transactional.id": transactional_id or f"{group}-{uuid.uuid4()}"}
        # A process that dies holds up its successors for this long, unless they use its transactional id.
        config.setdefault("transaction.timeout.ms", 10_000)
        config["message.timeout.ms"] = min(config["message.timeout.ms"], config["transaction.timeout.ms"])
        transactor = Transactor(
            lambda: self._new_publisher(config),
            self.bootstrap,
            timeout_s=config["transaction.timeout.ms"] / 1000,
            is_shared=transactional_id is not None,
        )
        undo.callback(transactor.close)
        return transactor

    def _producer_config(self) -> dict[str, Any]:
        uses_keys = self.partitioner is by_key
        return librdkafka.producer_config(self.bootstrap, self._client_id, self._settings, uses_keys=uses_keys)


_NO_TOPICS = {"allow.auto.create.topics": False}


def _tls_context(credentials: Credentials) -> ssl.SSLContext:
    """The context for queues over HTTPS. It is made in any case: it finds files that cannot be used, in words."""
    # Only here, for it loads a library for certificates.
    from headrace.security.tls.client_context import credentials_context

    try:
        return credentials_context(credentials)
    except SettingsError as error:
        raise ClientError(f"TLS cannot be used: {error}") from None


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def names_of(topic: str | Sequence[str]) -> list[str]:
    return [topic] if isinstance(topic, str) else list(topic)
