"""`client.topics`: create, list, describe, alter and delete topics."""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headrace.client.errors import ClientError, NoSuchTopic, TopicFailed, Unreachable
from headrace.client.kafka.librdkafka import UNREACHABLE, create_client, explain, log
from headrace.client.kafka.mirrors import MirrorFinder
from headrace.client.kafka.reachability import FirstContact
from headrace.client.kafka.secure_contact import SecureContact
from headrace.client.keywords import checks_keywords

_TIMEOUT_S = 30.0
_GRACE_S = 5.0

T = TypeVar("T")
Names = list[str]
SettingValue = str | int | float | bool
"""What a setting may be given as; the broker gets it as text."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition; brokers are named by their ids. `leader` is None while there is none."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """The partitions and settings of a topic, returned by `client.topics.describe`.

    ```python
    described = client.topics.describe("orders")
    print(len(described.partitions), described.replicas, described.settings["retention.ms"])
    ```

    `settings` has every setting in force, `changed` those that were set for this topic.
    """

    name: str
    partitions: tuple[PartitionDescription, ...]
    settings: dict[str, str]
    changed: dict[str, str]

    @property
    def replicas(self) -> int:
        """On how many brokers each partition is."""
        return max((len(each.replicas) for each in self.partitions), default=0)


@checks_keywords
class Topics:
    """The topics of a cluster: create, describe, alter, list, delete. Thread-safe.

    Raises `NoSuchTopic`, `TopicFailed` or `Unreachable`.

    ```python
    client.topics.create("prices", partitions=6, settings={"retention.ms": 86_400_000})
    print(client.topics.describe("prices").settings["retention.ms"])
    client.topics.alter("prices", partitions=12)
    client.topics.delete("prices")
    ```
    """

    def __init__(self, contact: FirstContact | SecureContact, config: dict[str, Any]) -> None:
        self._contact = contact
        self._config = config
        self._bootstrap: str = config["bootstrap.servers"]
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None

    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replicas: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Make a topic. One that is there is `TopicFailed` with the code `TOPIC_ALREADY_EXISTS`, or, with `exist_ok`,
        left as it is.

        ```python
        client.topics.create("orders", partitions=6, settings={"retention.ms": 86_400_000}, exist_ok=True)
        ```

        Without `partitions` and `replicas` the broker decides (`num.partitions`, `default.replication.factor`).
        `settings` are Kafka's settings of topics by their names, see `docs/settings.md`.
        """
        texts = {key: _text(value) for key, value in (settings or {}).items()}
        new = NewTopic(name, _count(partitions, "partitions"), _count(replicas, "replicas"), config=texts)
        try:
            self._wait(f"creating the topic {name}", lambda: self._use().create_topics([new], **_LIMITS)[name])
        except TopicFailed as error:
            if not (exist_ok and error.code == "TOPIC_ALREADY_EXISTS"):
                raise

    def describe(self, name: str) -> TopicDescription:
        """The partitions of a topic and its settings. Raises `NoSuchTopic`.

        ```python
        print(len(client.topics.describe("orders").partitions))
        ```
        """
        what = f"describing the topic {name}"
        asked = TopicCollection([name])
        found = self._wait(what, lambda: self._use().describe_topics(asked, **_ASKING)[name])
        resource = ConfigResource(ResourceType.TOPIC, name)
        entries = self._wait(what, lambda: self._use().describe_configs([resource], **_ASKING)[resource])
        settings = {key: each.value or "" for key, each in sorted(entries.items())}
        own = {key for key, each in entries.items() if each.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
        partitions = sorted((_described(each) for each in found.partitions), key=lambda each: each.partition)
        return TopicDescription(name, tuple(partitions), settings, {key: settings[key] for key in sorted(own)})

    def alter(
        self,
        name: str,
        *,
        partitions: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        unset: Iterable[str] = (),
    ) -> None:
        """Change settings of a topic; those that are not given stay, those in `unset` go back to their defaults.
        `partitions` is how many it shall have, never less than before.

        ```python
        client.topics.alter("orders", settings={"retention.ms": 3_600_000}, unset=["cleanup.policy"])
        ```
        """
        changes = [_change(key, _text(value), AlterConfigOpType.SET) for key, value in (settings or {}).items()]
        changes += [_change(key, None, AlterConfigOpType.DELETE) for key in unset]
        what = f"changing the topic {name}"
        if changes:
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
            self._wait(what, lambda: self._use().incremental_alter_configs([resource], **_ASKING)[resource])
        if partitions is not None:
            more = NewPartitions(name, _count(partitions, "partitions"))
            self._wait(what, lambda: self._use().create_partitions([more], **_LIMITS)[name])

    def delete(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic with everything in it. One that is not there is `NoSuchTopic`, or, with `missing_ok`, fine."""
        try:
            self._wait(f"deleting the topic {name}", lambda: self._use().delete_topics([name], **_LIMITS)[name])
        except NoSuchTopic:
            if not missing_ok:
                raise

    def list(self, prefix: str = "", *, internal: bool = False) -> Names:
        """The names of the topics that begin with `prefix`, in order; those of the broker itself (`__consumer_offsets`)
        only if `internal`."""
        try:
            found = self._use().list_topics(timeout=_TIMEOUT_S).topics
        except KafkaException as failure:
            raise self._translated("listing topics", failure) from None
        return sorted(each for each in found if each.startswith(prefix) and (internal or not each.startswith("__")))

    def mirrors(self, name: str) -> dict[str, str]:
        """The topics here that are mirrors of a topic of this name in other clusters, each with the id of its cluster.
        Those that were taken over count.

        ```python
        print(client.topics.mirrors("orders"))
        ```
        """
        return dict(MirrorFinder(self._use, self._bootstrap, [name]).look())

    def _use(self) -> AdminClient:
        self._contact.make()
        with self._lock:
            if self._admin is None:
                self._admin = create_client(AdminClient, self._config)
            # Callbacks, such as the one for a new token, are called by `poll` only.
            self._admin.poll(0)
            return self._admin

    def _wait(self, what: str, ask: "Callable[[], Future[T]]") -> T:
        try:
            return ask().result(_TIMEOUT_S + _GRACE_S)
        except TimeoutError:
            raise Unreachable(f"{what} failed: no broker answers at {self._bootstrap}") from None
        except KafkaException as failure:
            raise self._translated(what, failure) from None

    def _translated(self, what: str, failure: KafkaException) -> ClientError:
        error = failure.args[0]
        text, code = f"{what} failed: {explain(error, self._bootstrap)}", str(error.name())
        if error.code() in UNREACHABLE:
            return Unreachable(text)
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return NoSuchTopic(f"{what} failed: there is no topic of this name", code=code)
        return TopicFailed(text, code=code)


_ASKING = {"request_timeout": _TIMEOUT_S}
_LIMITS = {"operation_timeout": _TIMEOUT_S, "request_timeout": _TIMEOUT_S}


def _described(found: Any) -> PartitionDescription:
    leader = None if found.leader is None or found.leader.id < 0 else found.leader.id
    in_sync = tuple(each.id for each in found.isr)
    return PartitionDescription(found.id, leader, tuple(each.id for each in found.replicas), in_sync)


def _change(name: str, text: str | None, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(name, text, incremental_operation=operation)


def _count(value: int | None, what: str) -> int:
    """How many; -1 leaves it to the broker."""
    if value is None:
        return -1
    if value < 1:
        raise ValueError(f"{what} must be at least 1, not {value}")
    return value


def _text(value: SettingValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def ensure(config: dict[str, Any], topic: str, like: str) -> None:
    """Make a topic with as many partitions as another, unless it is there. A broker that does not allow it may have
    made it, or make it when it is first written to: so that is no error."""
    admin = create_client(AdminClient, config)
    try:
        there = admin.list_topics(timeout=_TIMEOUT_S).topics
        if topic in there:
            return
        partitions = len(there[like].partitions) if like in there else -1
        created = admin.create_topics([NewTopic(topic, partitions, replication_factor=-1)], request_timeout=_TIMEOUT_S)
        created[topic].result(_TIMEOUT_S)
    except TimeoutError:
        log.warning("the topic %s was not made: no broker answers at %s", topic, config["bootstrap.servers"])
    except KafkaException as failure:
        error = failure.args[0]
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            log.warning("the topic %s was not made: %s", topic, explain(error, config["bootstrap.servers"]))
