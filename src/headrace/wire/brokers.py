"""The brokers of a cluster, their log directories, and the leader and the replicas of each partition."""

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.model.ids import by_topic
from headrace.model.image import Endpoint
from headrace.protocol.codec import make
from headrace.protocol.units import from_ms
from headrace.wire.connection import Build
from headrace.wire.errors import Refused, check, refusal
from headrace.wire.router import LeaderRouter, Partition

_DESCRIBE_CONFIGS, _DESCRIBE_LOG_DIRS, _ELECT_LEADERS, _ALTER_CONFIGS = 32, 35, 43, 44
_ALTER_REASSIGNMENTS, _LIST_REASSIGNMENTS, _DESCRIBE_CLUSTER = 45, 46, 60
_BROKER, _TOPIC = 4, 2
_SET, _DELETE = 0, 1
_PREFERRED = 0
_TIMEOUT_MS = 30_000


class BrokerNode(NamedTuple):
    broker_id: int
    endpoint: Endpoint
    rack: str | None
    is_fenced: bool
    """True if the broker is down or not admitted yet."""


class ClusterInfo(NamedTuple):
    cluster_id: str
    controller: int
    """The broker id of the controller; -1 while there is none."""
    brokers: Mapping[int, BrokerNode]
    """By id. Includes fenced brokers if the cluster reports them."""


class Replica(NamedTuple):
    size_bytes: int
    lag: int
    """How many offsets the replica is behind the high watermark."""


class LogDir(NamedTuple):
    path: str
    has_failed: bool
    total_bytes: int
    """Of the volume; -1 if unknown."""
    usable_bytes: int
    is_cordoned: bool
    """True if no new replicas are placed here."""
    replicas: Mapping[Partition, Replica]


class Reassignment(NamedTuple):
    replicas: tuple[int, ...]
    """All replicas while the reassignment lasts, old and new."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def describe_cluster(router: LeaderRouter) -> ClusterInfo:
    def build(schema: ModuleType) -> Any:
        return make(
            schema.DescribeClusterRequest, include_cluster_authorized_operations=False, include_fenced_brokers=True
        )

    def attempt() -> ClusterInfo:
        answer = router.any_broker(lambda connection: connection.call(_DESCRIBE_CLUSTER, 2, build))
        check("describing the cluster", answer.error_code, answer.error_message)
        return ClusterInfo(
            str(answer.cluster_id),
            int(answer.controller_id),
            {
                int(each.broker_id): BrokerNode(
                    int(each.broker_id),
                    Endpoint(str(each.host), int(each.port)),
                    each.rack or None,
                    bool(getattr(each, "is_fenced", False)),
                )
                for each in sorted(answer.brokers, key=lambda each: int(each.broker_id))
            },
        )

    return router.patiently(attempt)


def log_dirs(router: LeaderRouter, address: Endpoint) -> list[LogDir]:
    """The log directories of one broker. Not retried: a broker that is down is no reason to wait."""

    def build(schema: ModuleType) -> Any:
        return make(schema.DescribeLogDirsRequest, topics=None)

    with router.using(address) as connection:
        answer = connection.call(_DESCRIBE_LOG_DIRS, 5, build, lowest=1)
    check(f"asking {address} for its logs", getattr(answer, "error_code", ErrorCode.none))
    return [
        LogDir(
            str(found.log_dir),
            bool(found.error_code),
            int(getattr(found, "total_bytes", -1)),
            int(getattr(found, "usable_bytes", -1)),
            bool(getattr(found, "is_cordoned", False)),
            {
                (str(topic.name), int(part.partition_index)): Replica(int(part.partition_size), int(part.offset_lag))
                for topic in found.topics
                for part in topic.partitions
                if not part.is_future_key
            },
        )
        for found in answer.results
    ]


def reassign(router: LeaderRouter, targets: Mapping[Partition, tuple[int, ...] | None]) -> dict[Partition, Refused]:
    """Start reassignments to these replicas, preferred leader first, or cancel one (None). Returns the refusals."""

    def build(schema: ModuleType) -> Any:
        return make(
            schema.AlterPartitionReassignmentsRequest,
            timeout=from_ms(_TIMEOUT_MS),
            allow_replication_factor_change=True,
            topics=tuple(
                make(
                    schema.ReassignableTopic,
                    name=topic,
                    partitions=tuple(
                        make(schema.ReassignablePartition, partition_index=index, replicas=targets[topic, index])
                        for index in indexes
                    ),
                )
                for topic, indexes in by_topic(targets).items()
            ),
        )

    def attempt() -> dict[Partition, Refused]:
        answer = _ask_controller(router, _ALTER_REASSIGNMENTS, 1, build)
        check("reassigning partitions", answer.error_code, answer.error_message)
        return _refused(
            "reassigning",
            (
                (str(topic.name), int(part.partition_index), part.error_code, part.error_message)
                for topic in answer.responses
                for part in topic.partitions
            ),
        )

    return router.patiently(attempt)


def reassignments(router: LeaderRouter) -> dict[Partition, Reassignment]:
    """The reassignments in progress."""

    def build(schema: ModuleType) -> Any:
        return make(schema.ListPartitionReassignmentsRequest, timeout=from_ms(_TIMEOUT_MS), topics=None)

    def attempt() -> dict[Partition, Reassignment]:
        answer = _ask_controller(router, _LIST_REASSIGNMENTS, 0, build)
        check("listing reassignments", answer.error_code, answer.error_message)
        return {
            (str(topic.name), int(part.partition_index)): Reassignment(
                tuple(map(int, part.replicas)),
                tuple(map(int, part.adding_replicas)),
                tuple(map(int, part.removing_replicas)),
            )
            for topic in answer.topics
            for part in topic.partitions
        }

    return router.patiently(attempt)


def elect_preferred(router: LeaderRouter, partitions: Iterable[Partition] | None) -> dict[Partition, Refused]:
    """Elect the preferred leader (the first replica) of these partitions, or of all (None). Returns the refusals.

    A partition that its preferred replica leads already is not a refusal.
    """
    wanted = None if partitions is None else by_topic(partitions)

    def build(schema: ModuleType) -> Any:
        chosen: tuple[Any, ...] | None = None
        if wanted is not None:
            chosen = tuple(
                make(schema.TopicPartitions, topic=topic, partitions=tuple(indexes))
                for topic, indexes in wanted.items()
            )
        return make(
            schema.ElectLeadersRequest,
            election_type=_PREFERRED,
            topic_partitions=chosen,
            timeout=from_ms(_TIMEOUT_MS),
        )

    def attempt() -> dict[Partition, Refused]:
        answer = _ask_controller(router, _ELECT_LEADERS, 2, build)
        check("electing leaders", getattr(answer, "error_code", ErrorCode.none))
        return _refused(
            "electing the leader of",
            (
                (str(topic.topic), int(part.partition_id), part.error_code, part.error_message)
                for topic in answer.replica_election_results
                for part in topic.partition_result
                if part.error_code is not ErrorCode.election_not_needed
            ),
        )

    return router.patiently(attempt)


def set_broker_settings(router: LeaderRouter, broker_id: int | None, settings: Mapping[str, str | None]) -> None:
    """Change settings of one broker, or of all (None); a value of None resets a setting."""
    whose = "all brokers" if broker_id is None else f"broker {broker_id}"

    def build(schema: ModuleType) -> Any:
        resource: Any = make(
            schema.AlterConfigsResource,
            resource_type=_BROKER,
            resource_name="" if broker_id is None else str(broker_id),
            configs=tuple(
                make(schema.AlterableConfig, name=name, config_operation=_DELETE if text is None else _SET, value=text)
                for name, text in settings.items()
            ),
        )
        return make(schema.IncrementalAlterConfigsRequest, resources=(resource,), validate_only=False)

    def attempt() -> None:
        # Kafka wants a broker's settings to be changed at that broker. If it is down, the controller takes the change.
        address = None if broker_id is None else router.brokers().get(broker_id)
        if address is None:
            address = router.controller()
        with router.using(address) as connection:
            (result,) = connection.call(_ALTER_CONFIGS, 1, build, wait_s=_TIMEOUT_MS / 1000).responses
        check(f"changing the settings of {whose}", result.error_code, result.error_message)

    router.patiently(attempt)


def broker_settings(router: LeaderRouter, broker_id: int) -> dict[str, str]:
    """The settings of a broker that have a value, defaults included, as that broker reports them."""

    def build(schema: ModuleType) -> Any:
        resource: Any = make(
            schema.DescribeConfigsResource, resource_type=_BROKER, resource_name=str(broker_id), configuration_keys=None
        )
        return make(schema.DescribeConfigsRequest, resources=(resource,))

    def attempt() -> dict[str, str]:
        with router.using(_address(router, broker_id)) as connection:
            (result,) = connection.call(_DESCRIBE_CONFIGS, 4, build, lowest=1).results
        check(f"reading the settings of broker {broker_id}", result.error_code, result.error_message)
        return {str(entry.name): str(entry.value) for entry in result.configs if entry.value is not None}

    return router.patiently(attempt)


def topics_settings(router: LeaderRouter, names: Iterable[str], setting: str) -> dict[str, str]:
    """The value of one setting by topic; topics that do not exist are left out."""
    wanted = tuple(names)

    def build(schema: ModuleType) -> Any:
        resources: tuple[Any, ...] = tuple(
            make(
                schema.DescribeConfigsResource, resource_type=_TOPIC, resource_name=name, configuration_keys=(setting,)
            )
            for name in wanted
        )
        return make(schema.DescribeConfigsRequest, resources=resources)

    def attempt() -> dict[str, str]:
        answer = router.any_broker(lambda connection: connection.call(_DESCRIBE_CONFIGS, 4, build, lowest=1))
        return {
            str(result.resource_name): str(entry.value)
            for result in answer.results
            for entry in result.configs
            if not result.error_code and entry.name == setting
        }

    return router.patiently(attempt) if wanted else {}


def _address(router: LeaderRouter, broker_id: int) -> Endpoint:
    address = router.brokers().get(broker_id)
    if address is None:
        raise refusal(f"asking broker {broker_id}", ErrorCode.broker_not_available.value)
    return address


def _refused(what: str, answers: Iterable[tuple[str, int, ErrorCode, str | None]]) -> dict[Partition, Refused]:
    """The refusals among the answers, by partition."""
    found: dict[Partition, Refused] = {}
    for topic, index, code, message in answers:
        if code:
            found[topic, index] = refusal(f"{what} {topic}-{index}", code.value, message)
    return found


def _ask_controller(router: LeaderRouter, key: int, highest: int, build: Build) -> Any:
    with router.using(router.controller()) as connection:
        return connection.call(key, highest, build, wait_s=_TIMEOUT_MS / 1000)
