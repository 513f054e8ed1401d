"""Routes requests to brokers: bootstrap addresses, metadata, leaders, coordinators; and retries them.

Connections are opened on first use, by the process that uses them: a `LeaderRouter` can be pickled, and used after a
fork. Not thread-safe.
"""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.config.address import parse_address
from headrace.model.backoff import ExponentialDelay
from headrace.model.errors import ProtocolError
from headrace.model.image import Endpoint
from headrace.protocol.codec import make
from headrace.protocol.exchange import ResponseFrame
from headrace.wire.connection import Build, Timeouts, WireConnection
from headrace.wire.errors import (
    PASSING,
    BrokerUnreachable,
    Refused,
    TopicNotFound,
    Unready,
    Unsupported,
    WireError,
    check,
    refusal,
)
from headrace.wire.security import WireSecurity

T = TypeVar("T")
V = TypeVar("V")

Partition = tuple[str, int]
"""Topic and partition. `model.ids.TopicPartition` is one."""

METADATA, FIND_COORDINATOR = 3, 10
GROUP, TRANSACTION = 0, 1
_METADATA_VERSION = 12
_FIND_COORDINATOR_VERSION = 4
_DEFAULT_PORT = 9092
_RETRY_DELAY_S = ExponentialDelay(0.05, 1.0)
_UNKNOWN_TOPIC_PATIENCE_S = 3.0
"""A broker may not know a new topic for a moment. After this long the topic does not exist."""


class PartitionInfo(NamedTuple):
    partition: int
    leader: int
    """The broker id of the leader; -1 while there is none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    """The `replicas` whose brokers are down, or whose disks have failed."""


class Topic(NamedTuple):
    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    """By index."""


class LeaderRouter:
    def __init__(
        self, bootstrap: str, *, client_id: str, timeouts: Timeouts, security: WireSecurity | None = None
    ) -> None:
        self._bootstrap = [
            parse_address(part, default_port=_DEFAULT_PORT) for part in bootstrap.split(",") if part.strip()
        ]
        if not self._bootstrap:
            raise BrokerUnreachable("no broker is named: give bootstrap servers as HOST:PORT,HOST:PORT")
        self.timeouts = timeouts
        self._client_id = client_id
        self._security = security or WireSecurity()
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._process_id = os.getpid()
        self._connections: dict[Endpoint, WireConnection] = {}
        self._brokers: dict[int, Endpoint] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[int, str], Endpoint] = {}
        self._controller = -1

    def __getstate__(self) -> dict[str, Any]:
        return {
            "_bootstrap": self._bootstrap,
            "timeouts": self.timeouts,
            "_client_id": self._client_id,
            "_security": self._security,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget_everything()

    def twin(self) -> "LeaderRouter":
        """Another router for the same cluster, with its own connections."""
        twin = LeaderRouter.__new__(LeaderRouter)
        twin.__setstate__(self.__getstate__())
        return twin

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._forget_everything()

    # -- retries

    def patiently(self, attempt: Callable[[], T]) -> T:
        """Call `attempt`, retry it while its error is retriable, and raise the last error when time is up."""
        started_s = time.monotonic()
        failures = 0
        while True:
            try:
                return attempt()
            except (*PASSING, TopicNotFound) as error:
                failures += 1
                self._topics.clear()
                wait_s = _wait_s(failures)
                is_unknown = isinstance(error, TopicNotFound)
                patience_s = min(self.timeouts.patience_s, _UNKNOWN_TOPIC_PATIENCE_S if is_unknown else 1e9)
                if time.monotonic() + wait_s - started_s > patience_s:
                    raise
                time.sleep(wait_s)

    # -- connections

    def connection(self, address: Endpoint) -> WireConnection:
        if self._process_id != os.getpid():
            # After a fork: connections belong to the parent, so this process opens its own.
            for inherited in self._connections.values():
                inherited.close()
            self._forget_everything()
        found = self._connections.get(address)
        if found is not None and found.has_expired and not found.in_flight:
            self._connections.pop(address).close()
            found = None
        if found is None:
            found = WireConnection(address, client_id=self._client_id, timeouts=self.timeouts, security=self._security)
            self._connections[address] = found
        return found

    @contextmanager
    def using(self, address: Endpoint) -> Iterator[WireConnection]:
        """A connection that is dropped after any error, also in the middle of a response."""
        try:
            connection = self.connection(address)
            yield connection
        except BaseException as error:
            if not isinstance(error, Refused | Unsupported):
                self._drop(address)
            if isinstance(error, ProtocolError):
                raise WireError(f"the broker at {address} gives an answer that cannot be read: {error}") from error
            raise

    def _drop(self, address: Endpoint) -> None:
        lost = self._connections.pop(address, None)
        if lost is not None:
            lost.close()
        self._coordinators = {key: at for key, at in self._coordinators.items() if at != address}

    def any_broker(self, ask: Callable[[WireConnection], T]) -> T:
        """Ask the first broker that can be reached: connected ones, then known ones, then bootstrap servers."""
        addresses = dict.fromkeys([*self._connections, *self._brokers.values(), *self._bootstrap])
        failures: list[WireError] = []
        for address in addresses:
            try:
                with self.using(address) as connection:
                    return ask(connection)
            except PASSING as error:
                if isinstance(error, Unready):
                    raise
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise BrokerUnreachable("no broker answers: " + "; ".join(str(error) for error in failures))

    # -- metadata

    def topics(self, names: Iterable[str] | None) -> dict[str, Topic]:
        """Request the metadata of these topics, or of all. Missing topics are left out, never created."""
        wanted = None if names is None else list(dict.fromkeys(names))

        def build(schema: ModuleType) -> Any:
            topics: tuple[Any, ...] | None = None
            if wanted is not None:
                topics = tuple(make(schema.MetadataRequestTopic, name=name, topic_id=None) for name in wanted)
            return make(
                schema.MetadataRequest,
                topics=topics,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )

        answer = self.any_broker(lambda connection: connection.call(METADATA, _METADATA_VERSION, build, lowest=4))
        self._brokers = {broker.node_id: Endpoint(broker.host, broker.port) for broker in answer.brokers}
        self._controller = answer.controller_id
        found: dict[str, Topic] = {}
        for topic in answer.topics:
            if topic.error_code in (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id):
                self._topics.pop(topic.name, None)
                continue
            check(f"looking up the topic {topic.name}", topic.error_code)
            found[topic.name] = _topic(topic)
        self._topics.update(found)
        return found

    def brokers(self) -> dict[int, Endpoint]:
        """Every broker of the cluster, by id."""
        self.topics(())
        return dict(self._brokers)

    def controller(self) -> Endpoint:
        """The address of the controller, which creates, changes and deletes topics."""
        self.topics(())
        address = self._brokers.get(self._controller)
        if address is None:
            raise refusal("looking for the controller", ErrorCode.leader_not_available.value)
        return address

    def leader(self, partition: Partition) -> Endpoint:
        topic = self._topics.get(partition[0]) or self.topics([partition[0]]).get(partition[0])
        index = partition[1]
        if topic is None or not 0 <= index < len(topic.partitions):
            raise refusal(f"looking for {partition[0]}-{index}", ErrorCode.unknown_topic_or_partition.value)
        address = self._brokers.get(topic.partitions[index].leader)
        if address is None:
            raise refusal(f"looking for the leader of {partition[0]}-{index}", ErrorCode.leader_not_available.value)
        return address

    def by_leader(self, values: Mapping[Partition, V]) -> dict[Endpoint, dict[Partition, V]]:
        """Group `values` by the leader of their partitions."""
        unknown = {topic for topic, _ in values if topic not in self._topics}
        if unknown:
            self.topics(unknown)
        groups: dict[Endpoint, dict[Partition, V]] = {}
        for partition, value in values.items():
            groups.setdefault(self.leader(partition), {})[partition] = value
        return groups

    # -- coordinators

    def coordinated(
        self,
        kind: int,
        key: str,
        api_key: int,
        highest: int,
        build: Build,
        *,
        lowest: int = 0,
        read: Callable[[ResponseFrame], Any] = ResponseFrame.read,
    ) -> Any:
        """Ask the coordinator of a group or transaction once. Forget its address after a retriable error."""
        address = self._coordinators.get((kind, key)) or self._find_coordinator(kind, key)
        try:
            with self.using(address) as connection:
                return read(connection.exchange(api_key, highest, build, lowest=lowest))
        except PASSING:
            self.forget_coordinator(kind, key)
            raise

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    def _find_coordinator(self, kind: int, key: str) -> Endpoint:
        def build(schema: ModuleType) -> Any:
            return make(schema.FindCoordinatorRequest, key=key, key_type=kind, coordinator_keys=(key,))

        answer = self.any_broker(
            lambda connection: connection.call(FIND_COORDINATOR, _FIND_COORDINATOR_VERSION, build, lowest=1)
        )
        found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
        check(f"looking for the coordinator of {key}", found.error_code, found.error_message or None)
        address = Endpoint(found.host, found.port)
        self._coordinators[kind, key] = address
        return address


def _wait_s(failures: int) -> float:
    """Exponential backoff with jitter, so that many clients do not retry at the same instant."""
    return _RETRY_DELAY_S.after(failures) * random.uniform(0.5, 1.0)


def _topic(topic: Any) -> Topic:
    partitions = sorted(topic.partitions, key=lambda partition: int(partition.partition_index))
    return Topic(
        topic.name,
        getattr(topic, "topic_id", None),
        bool(getattr(topic, "is_internal", False)),
        tuple(
            PartitionInfo(
                partition.partition_index,
                partition.leader_id,
                getattr(partition, "leader_epoch", -1),
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                tuple(getattr(partition, "offline_replicas", ())),
            )
            for partition in partitions
        ),
    )
