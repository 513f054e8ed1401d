"""Creates, changes and deletes topics, through the controller."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.model.ids import by_topic
from headrace.protocol.codec import make
from headrace.protocol.units import from_ms
from headrace.wire.connection import Build
from headrace.wire.errors import check, refusal
from headrace.wire.router import LeaderRouter, Partition

_CREATE_TOPICS, _DELETE_TOPICS, _DELETE_RECORDS, _DESCRIBE_CONFIGS = 19, 20, 21, 32
_CREATE_PARTITIONS, _ALTER_CONFIGS = 37, 44
_TOPIC, _SET = 2, 0
_TIMEOUT_MS = 30_000


def create_topic(
    router: LeaderRouter, name: str, partitions: int, replication_factor: int, settings: Mapping[str, str]
) -> bool:
    """Create a topic and wait until all of its partitions have leaders. False if it exists already."""

    def build(schema: ModuleType) -> Any:
        topic: Any = make(
            schema.CreatableTopic,
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=(),
            configs=tuple(make(schema.CreatableTopicConfig, name=key, value=value) for key, value in settings.items()),
        )
        return make(schema.CreateTopicsRequest, topics=(topic,), timeout=from_ms(_TIMEOUT_MS), validate_only=False)

    def attempt() -> bool:
        (result,) = _ask_controller(router, _CREATE_TOPICS, 7, build).topics
        if result.error_code is ErrorCode.topic_already_exists:
            return False
        check(f"creating the topic {name}", result.error_code, getattr(result, "error_message", None))
        return True

    def await_leaders() -> None:
        topic = router.topics([name]).get(name)
        if topic is None or not topic.partitions or any(part.leader < 0 for part in topic.partitions):
            raise refusal(f"waiting for the leaders of {name}", ErrorCode.leader_not_available.value)

    is_new = router.patiently(attempt)
    router.patiently(await_leaders)
    return is_new


def delete_topic(router: LeaderRouter, name: str) -> bool:
    """Delete a topic. False if it does not exist."""

    def build(schema: ModuleType) -> Any:
        return make(schema.DeleteTopicsRequest, topic_names=(name,), timeout=from_ms(_TIMEOUT_MS))

    def attempt() -> bool:
        (result,) = _ask_controller(router, _DELETE_TOPICS, 5, build).responses
        if result.error_code is ErrorCode.unknown_topic_or_partition:
            return False
        check(f"deleting the topic {name}", result.error_code, getattr(result, "error_message", None))
        return True

    return router.patiently(attempt)


def add_partitions(router: LeaderRouter, name: str, count: int) -> None:
    """Raise the number of partitions of a topic to `count`."""

    def build(schema: ModuleType) -> Any:
        topic: Any = make(schema.CreatePartitionsTopic, name=name, count=count, assignments=None)
        return make(schema.CreatePartitionsRequest, topics=(topic,), timeout=from_ms(_TIMEOUT_MS), validate_only=False)

    def attempt() -> None:
        (result,) = _ask_controller(router, _CREATE_PARTITIONS, 3, build).results
        check(f"adding partitions to {name}", result.error_code, result.error_message)

    router.patiently(attempt)


def topic_settings(router: LeaderRouter, name: str) -> dict[str, str]:
    """The settings of a topic that have a value, defaults included."""

    def build(schema: ModuleType) -> Any:
        resource: Any = make(
            schema.DescribeConfigsResource, resource_type=_TOPIC, resource_name=name, configuration_keys=None
        )
        return make(schema.DescribeConfigsRequest, resources=(resource,))

    def attempt() -> dict[str, str]:
        answer = router.any_broker(lambda connection: connection.call(_DESCRIBE_CONFIGS, 4, build, lowest=1))
        (result,) = answer.results
        check(f"reading the settings of {name}", result.error_code, result.error_message)
        return {entry.name: entry.value for entry in result.configs if entry.value is not None}

    return router.patiently(attempt)


def set_topic_settings(router: LeaderRouter, name: str, settings: Mapping[str, str]) -> None:
    def build(schema: ModuleType) -> Any:
        resource: Any = make(
            schema.AlterConfigsResource,
            resource_type=_TOPIC,
            resource_name=name,
            configs=tuple(
                make(schema.AlterableConfig, name=key, config_operation=_SET, value=value)
                for key, value in settings.items()
            ),
        )
        return make(schema.IncrementalAlterConfigsRequest, resources=(resource,), validate_only=False)

    def attempt() -> None:
        (result,) = _ask_controller(router, _ALTER_CONFIGS, 1, build).responses
        check(f"changing the settings of {name}", result.error_code, result.error_message)

    router.patiently(attempt)


def delete_records(router: LeaderRouter, before: Mapping[Partition, int]) -> None:
    """Delete the records before these offsets."""

    def build_for(part: Mapping[Partition, int]) -> Callable[[ModuleType], Any]:
        def build(schema: ModuleType) -> Any:
            return make(
                schema.DeleteRecordsRequest,
                timeout=from_ms(_TIMEOUT_MS),
                topics=tuple(
                    make(
                        schema.DeleteRecordsTopic,
                        name=topic,
                        partitions=tuple(
                            make(schema.DeleteRecordsPartition, partition_index=index, offset=part[topic, index])
                            for index in indexes
                        ),
                    )
                    for topic, indexes in by_topic(part).items()
                ),
            )

        return build

    def attempt() -> None:
        for address, part in router.by_leader(before).items():
            with router.using(address) as connection:
                answer = connection.call(_DELETE_RECORDS, 2, build_for(part))
                for topic in answer.topics:
                    for partition in topic.partitions:
                        what = f"removing records of {topic.name}-{partition.partition_index}"
                        check(what, partition.error_code)

    router.patiently(attempt)


def _ask_controller(router: LeaderRouter, key: int, highest: int, build: Build) -> Any:
    with router.using(router.controller()) as connection:
        return connection.call(key, highest, build, wait_s=_TIMEOUT_MS / 1000)
