"""The settings of schema validation, by our names and by those of Confluent and Redpanda."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.config.schema_aliases import ALIASES
from headrace.model.ids import TopicName
from headrace.protocol.codec import make

from .harness import Harness, broker
from .test_configs import ALTER, DELETE, INCREMENTAL, SET, TOPIC, describe

CREATE_TOPICS = 19
JAVA = "io.confluent.kafka.serializers.subject."


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with broker(tmp_path) as made:
        made.create("a")
        yield made


def alter(harness: Harness, *changes: tuple[str, str | None]) -> tuple[ErrorCode, str | None]:
    """Set what has a value, and delete what has none."""

    def build(schema: Any) -> Any:
        configs = tuple(
            schema.AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
            for name, value in changes
        )
        resource = schema.AlterConfigsResource(resource_type=TOPIC, resource_name="a", configs=configs)
        return schema.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)

    (answer,) = harness.call(INCREMENTAL, 1, build).responses
    return answer.error_code, answer.error_message


def replace_all(harness: Harness, **settings: str) -> ErrorCode:
    def build(schema: Any) -> Any:
        configs = tuple(schema.AlterableConfig(name=name, value=value) for name, value in settings.items())
        resource = schema.AlterConfigsResource(resource_type=TOPIC, resource_name="a", configs=configs)
        return schema.AlterConfigsRequest(resources=(resource,), validate_only=False)

    (answer,) = harness.call(ALTER, 2, build).responses
    return ErrorCode(answer.error_code)


def stored(harness: Harness) -> dict[str, str]:
    return dict(harness.services.metadata.image.topics[TopicName("a")].settings)


@pytest.mark.parametrize(
    ("name", "given", "own", "value"),
    [
        ("value.schema.validation", "payload", "value.schema.validation", "payload"),
        ("confluent.value.schema.validation", "true", "value.schema.validation", "id"),
        ("confluent.key.schema.validation", "TRUE", "key.schema.validation", "id"),
        ("redpanda.value.schema.id.validation", "true", "value.schema.validation", "id"),
        ("redpanda.key.schema.id.validation", "false", "key.schema.validation", "off"),
        (
            "confluent.value.subject.name.strategy",
            f"{JAVA}RecordNameStrategy",
            "value.subject.name.strategy",
            "RecordNameStrategy",
        ),
        (
            "redpanda.key.subject.name.strategy",
            "TopicRecordNameStrategy",
            "key.subject.name.strategy",
            "TopicRecordNameStrategy",
        ),
        (
            "value.subject.name.strategy",
            f"{JAVA}TopicNameStrategy",
            "value.subject.name.strategy",
            "TopicNameStrategy",
        ),
    ],
)
def test_a_setting_can_be_set_by_any_of_its_names(
    harness: Harness, name: str, given: str, own: str, value: str
) -> None:
    assert alter(harness, (name, given)) == (ErrorCode.none, None)
    assert stored(harness) == {own: value}
    assert replace_all(harness, **{"retention.ms": "1000"}) is ErrorCode.none
    assert replace_all(harness, **{name: given}) is ErrorCode.none
    assert stored(harness) == {own: value}
    assert alter(harness, (name, None)) == (ErrorCode.none, None)
    assert stored(harness) == {}


def test_a_topic_can_be_created_with_aliases(harness: Harness) -> None:
    def build(schema: Any) -> Any:
        given = {"confluent.value.schema.validation": "true", "value.schema.validation": "id"}
        configs = tuple(schema.CreatableTopicConfig(name=name, value=value) for name, value in given.items())
        topic: Any = make(
            schema.CreatableTopic, name="b", num_partitions=1, replication_factor=1, assignments=(), configs=configs
        )
        return make(schema.CreateTopicsRequest, topics=(topic,), timeout=timedelta(seconds=1))

    (answer,) = harness.call(CREATE_TOPICS, 7, build).topics
    assert answer.error_code is ErrorCode.none
    settings = harness.services.metadata.topic_settings(harness.services.metadata.image.topics[TopicName("b")])
    assert settings.value_schema_validation == "id"
    assert settings.checks_schemas


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ((("confluent.value.schema.validation", "id"),), "true or false"),
        ((("value.schema.validation", "true"),), "off or id or payload"),
        ((("value.subject.name.strategy", "com.example.MyStrategy"),), "TopicNameStrategy"),
        (
            (("value.schema.validation", "payload"), ("confluent.value.schema.validation", "false")),
            "contradicts another name of value.schema.validation",
        ),
        ((("value.schema.validation", "id"), ("redpanda.value.schema.id.validation", None)), "contradicts"),
        ((("queue.type", "standard"), ("value.schema.validation", "id")), "queue"),
    ],
)
def test_what_is_refused(harness: Harness, changes: tuple[tuple[str, str | None], ...], words: str) -> None:
    code, message = alter(harness, *changes)
    assert code is ErrorCode.invalid_config
    assert words in (message or "")
    assert stored(harness) == {}


def test_aliases_are_described_when_they_are_asked_for(harness: Harness) -> None:
    alter(harness, ("value.schema.validation", "payload"), ("value.subject.name.strategy", "RecordNameStrategy"))
    found = {each.name: each.value for each in describe(harness, 4, TOPIC, "a", tuple(ALIASES)).configs}
    assert found == {
        "confluent.key.schema.validation": "false",
        "confluent.key.subject.name.strategy": f"{JAVA}TopicNameStrategy",
        "confluent.value.schema.validation": "true",
        "confluent.value.subject.name.strategy": f"{JAVA}RecordNameStrategy",
        "redpanda.key.schema.id.validation": "false",
        "redpanda.key.subject.name.strategy": "TopicNameStrategy",
        "redpanda.value.schema.id.validation": "true",
        "redpanda.value.subject.name.strategy": "RecordNameStrategy",
    }
    assert not {each.name for each in describe(harness, 4, TOPIC, "a").configs} & ALIASES.keys()
