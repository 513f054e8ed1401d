"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, in every version."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.config.broker import BROKER_SETTINGS
from headrace.config.group import GROUP_SETTINGS
from headrace.config.kafka_only import RETIRED
from headrace.config.settings import Kind, Setting
from headrace.config.topic import TOPIC_SETTINGS
from headrace.kafka import config_entries
from headrace.model.ids import TopicName
from headrace.protocol.codec import make

from .harness import Harness, broker

DESCRIBE, ALTER, INCREMENTAL, LIST_RESOURCES = 32, 33, 44, 74
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def describe(
    harness: Harness, version: int, kind: int, name: str, keys: tuple[str, ...] | None = None, **flags: bool
) -> Any:
    def build(schema: Any) -> Any:
        resource = schema.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        return make(schema.DescribeConfigsRequest, resources=(resource,), **flags)

    (result,) = harness.call(DESCRIBE, version, build).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def value(harness: Harness, kind: int, name: str, key: str) -> tuple[str, int]:
    (config,) = describe(harness, 4, kind, name, (key,)).configs
    return config.value, config.config_source


@pytest.mark.parametrize("version", range(1, 5))
def test_every_topic_setting_is_told_in_every_version(harness: Harness, version: int) -> None:
    harness.create("a", retention_ms="60000")
    result = describe(harness, version, TOPIC, "a", include_documentation=True, include_synonyms=True)
    configs = {config.name: config for config in result.configs}
    assert set(configs) == set(TOPIC_SETTINGS) - RETIRED
    assert {config.value for config in configs.values()}.isdisjoint({None})
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("60000", 1, False)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in retention.synonyms] == [
        ("retention.ms", "60000", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("delete", 5)
    if version >= 3:
        assert retention.config_type == Kind.LONG.value
        assert configs["cleanup.policy"].config_type == Kind.LIST.value
        assert "older than this" in retention.documentation


def test_what_was_not_asked_for_is_left_out(harness: Harness) -> None:
    harness.create("a")
    (config,) = describe(harness, 4, TOPIC, "a", ("retention.ms", "nope")).configs
    assert (config.name, config.synonyms, config.documentation) == ("retention.ms", (), None)
    assert len(describe(harness, 4, TOPIC, "a", ()).configs) == len(set(TOPIC_SETTINGS) - RETIRED)


@pytest.mark.parametrize("version", range(1, 5))
def test_every_broker_setting_is_told(tmp_path: Path, version: int) -> None:
    with broker(tmp_path, num_partitions="7") as harness:
        configs = {config.name: config for config in describe(harness, version, BROKER, "0").configs}
        assert {*BROKER_SETTINGS, "advertised.listeners", "http.listeners", "listeners", "log.dirs"} <= set(configs)
        assert {name: configs[name].value for name in ("node.id", "log.retention.hours", "num.io.threads")} == {
            "node.id": "0", "log.retention.hours": "168", "num.io.threads": "8",
        }  # fmt: skip
        assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("7", 4)
        assert not configs["num.partitions"].read_only
        assert (configs["broker.id"].value, configs["broker.id"].config_source) == ("0", 5)
        assert configs["broker.id"].read_only
        assert describe(harness, version, BROKER, "").configs == ()


def test_listeners_are_shown_under_the_names_of_kafka(tmp_path: Path) -> None:
    listeners = "plain://127.0.0.1:9092,sasl_plain://127.0.0.1:9093?name=public,sasl_plain://127.0.0.1:9094"
    with broker(tmp_path, listeners=listeners, inter_broker_listener="public") as harness:
        shown = describe(harness, 4, BROKER, "0").configs
        configs = {config.name: config.value for config in shown}
        assert len(configs) == len(shown)
        assert (
            configs["listener.security.protocol.map"]
            == "PLAINTEXT:PLAINTEXT,PUBLIC:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        )
        assert configs["inter.broker.listener.name"] == "PUBLIC"
        names = [each.partition("://")[0] for each in configs["advertised.listeners"].split(",")]
        assert names == ["PLAINTEXT", "PUBLIC", "SASL_PLAINTEXT"]


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "none", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "b@d", ErrorCode.invalid_topic_exception),
        (BROKER, "7", ErrorCode.invalid_request),
        (BROKER, "x", ErrorCode.invalid_request),
        (BROKER_LOGGER, "7", ErrorCode.invalid_request),
        (BROKER_LOGGER, "", ErrorCode.invalid_request),
        (CLIENT_METRICS, "", ErrorCode.invalid_request),
        (GROUP, "", ErrorCode.invalid_request),
        (99, "0", ErrorCode.invalid_request),
    ],
)
def test_what_cannot_be_described(harness: Harness, kind: int, name: str, error: ErrorCode) -> None:
    result = describe(harness, 4, kind, name)
    assert (result.error_code, result.configs) == (error, ())
    assert result.error_message


def test_secrets_are_hidden(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Setting("compression.type", Kind.PASSWORD, "hush", "A secret.", broker_name="compression.type")
    monkeypatch.setattr(config_entries, "rows_for", lambda _: {"compression.type": secret})
    monkeypatch.setattr(config_entries, "BROKER_SETTINGS", {"compression.type": secret})
    harness.create("a")
    (config,) = describe(harness, 4, TOPIC, "a", include_synonyms=True).configs
    assert (config.value, config.is_sensitive, config.synonyms[0].value) == (None, True, None)


def test_where_a_value_comes_from(tmp_path: Path) -> None:
    name = "log.retention.ms"
    with broker(tmp_path, log_retention_ms="4") as harness:
        harness.create("a")
        assert value(harness, TOPIC, "a", "retention.ms") == ("4", 4)
        assert change(harness, BROKER, "", (name, SET, "3")).error_code is ErrorCode.none
        assert value(harness, TOPIC, "a", "retention.ms") == ("3", 3)
        assert value(harness, BROKER, "0", name) == ("3", 3)
        assert value(harness, BROKER, "", name) == ("3", 3)
        assert change(harness, BROKER, "0", (name, SET, "2")).error_code is ErrorCode.none
        assert value(harness, TOPIC, "a", "retention.ms") == ("2", 2)
        assert change(harness, TOPIC, "a", ("retention.ms", SET, "1")).error_code is ErrorCode.none
        (config,) = describe(harness, 4, TOPIC, "a", ("retention.ms",), include_synonyms=True).configs
        assert [(synonym.value, synonym.source) for synonym in config.synonyms] == [
            ("1", 1), ("2", 2), ("3", 3), ("4", 4), ("604800000", 5),
        ]  # fmt: skip
        assert harness.metadata.settings.topic_defaults.retention_ms == 2


def change(
    harness: Harness,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    def build(schema: Any) -> Any:
        configs = tuple(
            schema.AlterableConfig(name=key, config_operation=operation, value=text) for key, operation, text in changes
        )
        resource = schema.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        return schema.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)

    (result,) = harness.call(INCREMENTAL, version, build).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize("version", range(2))
def test_single_changes_in_every_version(harness: Harness, version: int) -> None:
    harness.create("a", retention_bytes="5", segment_bytes="1000")
    result = change(
        harness,
        TOPIC,
        "a",
        ("retention.ms", SET, "60000"),
        ("retention.bytes", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
        version=version,
    )
    assert (result.error_code, result.error_message) == (ErrorCode.none, None)
    assert harness.metadata.image.topics[TopicName("a")].settings == {
        "segment.bytes": "1000",
        "retention.ms": "60000",
        "cleanup.policy": "delete,compact",
    }
    assert change(harness, TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete")).error_code is ErrorCode.none
    assert harness.metadata.image.topics[TopicName("a")].settings["cleanup.policy"] == "compact"
    assert change(harness, TOPIC, "a", ("cleanup.policy", APPEND, "compact")).error_code is ErrorCode.none
    assert harness.metadata.image.topics[TopicName("a")].settings["cleanup.policy"] == "compact"


def test_a_list_can_be_emptied(harness: Harness) -> None:
    harness.create("a")
    assert change(harness, TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete")).error_code is ErrorCode.none
    assert value(harness, TOPIC, "a", "cleanup.policy") == ("", 1)
    settings = harness.metadata.topic_settings(harness.metadata.image.topics[TopicName("a")])
    assert (settings.deletes, settings.compacts) == (False, False)


@pytest.mark.parametrize(
    ("kind", "name", "changes", "error", "reason"),
    [
        (TOPIC, "a", [("retention.mss", SET, "1")], ErrorCode.invalid_config, "did you mean retention.ms?"),
        (TOPIC, "a", [("retention.mss", APPEND, "1")], ErrorCode.invalid_config, "unknown setting"),
        (TOPIC, "a", [("retention.ms", SET, "x")], ErrorCode.invalid_config, "not a whole number"),
        (TOPIC, "a", [("retention.ms", SET, None)], ErrorCode.invalid_request, "a value is missing"),
        (TOPIC, "a", [("retention.ms", APPEND, "1")], ErrorCode.invalid_config, "is not a list"),
        (TOPIC, "a", [("retention.ms", 9, "1")], ErrorCode.invalid_request, "no operation 9"),
        (TOPIC, "a", [("flush.ms", SET, "1"), ("flush.ms", SET, "2")], ErrorCode.invalid_request, "only once"),
        (TOPIC, "none", [("retention.ms", SET, "1")], ErrorCode.unknown_topic_or_partition, "does not exist"),
        (TOPIC, "a b", [("retention.ms", SET, "1")], ErrorCode.invalid_topic_exception, "has characters other than"),
        (TOPIC, "", [("retention.ms", SET, "1")], ErrorCode.invalid_request, "name one"),
        (BROKER, "0", [("broker.id", SET, "1")], ErrorCode.invalid_config, "cannot be changed on a running broker"),
        (BROKER, "7", [("num.partitions", SET, "1")], ErrorCode.invalid_request, "this is broker 0"),
        (BROKER_LOGGER, "7", [("root", SET, "INFO")], ErrorCode.invalid_request, "this is broker 0"),
        (CLIENT_METRICS, "m", [("interval.ms", SET, "99")], ErrorCode.invalid_config, "is out of range"),
        (CLIENT_METRICS, "m", [("match", SET, "client=x")], ErrorCode.invalid_config, "NAME=PATTERN"),
        (CLIENT_METRICS, "m", [("match", SET, "client_id=(")], ErrorCode.invalid_config, "'(' is not valid: missing )"),
        (CLIENT_METRICS, "a/b", [("metrics", SET, "*")], ErrorCode.invalid_request, "no /"),
        (CLIENT_METRICS, "m", [("nope", SET, "1000")], ErrorCode.invalid_config, "unknown setting"),
        (99, "m", [("nope", SET, "1000")], ErrorCode.invalid_request, "not supported"),
        (GROUP, "", [(SESSION, SET, "50000")], ErrorCode.invalid_request, "name it"),
        (
            GROUP,
            "g",
            [(SESSION, SET, "44999")],
            ErrorCode.invalid_config,
            "group.consumer.min.session.timeout.ms=45000",
        ),
        (
            GROUP,
            "g",
            [(SESSION, SET, "60001")],
            ErrorCode.invalid_config,
            "group.consumer.max.session.timeout.ms=60000",
        ),
        (GROUP, "g", [("retention.ms", SET, "1")], ErrorCode.invalid_config, "unknown setting"),
    ],
)
def test_changes_that_are_refused(
    harness: Harness, kind: int, name: str, changes: Any, error: ErrorCode, reason: str
) -> None:
    harness.create("a")
    # One that could be made goes with it: a resource changes as a whole or not at all.
    goods = {
        BROKER: ("num.partitions", SET, "1000"),
        BROKER_LOGGER: ("headrace.kafka.server", SET, "WARN"),
        CLIENT_METRICS: ("match", SET, ""),
        GROUP: (INTERVAL, SET, "6000"),
    }
    good = goods.get(kind, ("segment.bytes", SET, "1000"))
    also = [] if any(key == good[0] for key, _, _ in changes) else [good]
    result = change(harness, kind, name, *changes, *also)
    assert result.error_code is error
    assert reason in result.error_message
    assert harness.metadata.image.topics[TopicName("a")].settings == {}
    assert harness.metadata.image.broker_settings == {}
    assert harness.metadata.image.settings_by_broker == {}
    assert harness.metadata.image.settings_by_group == {}


def test_validating_a_change(harness: Harness) -> None:
    harness.create("a")
    assert change(harness, TOPIC, "a", ("flush.ms", SET, "1"), validate_only=True).error_code is ErrorCode.none
    assert (
        change(harness, TOPIC, "a", ("flush.ms", SET, "x"), validate_only=True).error_code is ErrorCode.invalid_config
    )
    assert harness.metadata.image.topics[TopicName("a")].settings == {}


def replace_all(
    harness: Harness, version: int, *resources: tuple[int, str, dict[str, str | None]], **flags: bool
) -> Any:
    def build(schema: Any) -> Any:
        return schema.AlterConfigsRequest(
            resources=tuple(
                schema.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=tuple(schema.AlterableConfig(name=key, value=text) for key, text in configs.items()),
                )
                for kind, name, configs in resources
            ),
            validate_only=flags.get("validate_only", False),
        )

    return harness.call(ALTER, version, build).responses


@pytest.mark.parametrize("version", range(3))
def test_replacing_all_settings_in_every_version(harness: Harness, version: int) -> None:
    harness.create("a", retention_ms="1", flush_ms="2")
    results = replace_all(
        harness,
        version,
        (TOPIC, "a", {"flush.ms": "3"}),
        (TOPIC, "none", {"flush.ms": "3"}),
        (BROKER, "0", {"num.partitions": "6"}),
        (BROKER, "", {"num.partitions": None}),
    )
    assert [result.error_code for result in results] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.none,
        ErrorCode.invalid_request,
    ]
    assert harness.metadata.image.topics[TopicName("a")].settings == {"flush.ms": "3"}
    assert harness.metadata.settings.num_partitions == 6
    replace_all(harness, version, (BROKER, "0", {}))
    assert harness.metadata.settings.num_partitions == 4


def test_a_resource_named_twice_is_refused(harness: Harness) -> None:
    harness.create("a")
    results = replace_all(harness, 2, (TOPIC, "a", {"flush.ms": "3"}), (TOPIC, "a", {"flush.ms": "4"}))
    assert [result.error_code for result in results] == [ErrorCode.invalid_request] * 2
    assert harness.metadata.image.topics[TopicName("a")].settings == {}


def test_a_changed_broker_default_is_used_for_the_next_topic(harness: Harness) -> None:
    change(harness, BROKER, "", ("num.partitions", SET, "6"))
    harness.run(harness.metadata.create_topic("a"))
    assert len(harness.metadata.image.topics[TopicName("a")].partitions) == 6


def test_a_group_has_settings_of_its_own_over_a_restart(tmp_path: Path) -> None:
    with broker(tmp_path, group_consumer_heartbeat_interval_ms="7000") as harness:
        told = describe(harness, 4, GROUP, "g", include_synonyms=True)
        assert {config.name for config in told.configs} == set(GROUP_SETTINGS)
        assert value(harness, GROUP, "g", SESSION) == ("45000", 5)
        assert value(harness, GROUP, "g", INTERVAL) == ("7000", 4)
        assert change(harness, GROUP, "g", (SESSION, SET, "50000")).error_code is ErrorCode.none
        assert change(harness, GROUP, "h", (INTERVAL, SET, "9000"), validate_only=True).error_code is ErrorCode.none
    with broker(tmp_path) as harness:
        assert value(harness, GROUP, "g", SESSION) == ("50000", 8)
        assert value(harness, GROUP, "h", INTERVAL) == ("5000", 5)
        settings = harness.metadata.group_settings("g")
        assert (settings.consumer_session_timeout_ms, settings.consumer_heartbeat_interval_ms) == (50_000, 5_000)
        listed = harness.call(
            LIST_RESOURCES, 1, lambda schema: schema.ListConfigResourcesRequest(resource_types=(GROUP,))
        )
        assert [(one.resource_type, one.resource_name) for one in listed.config_resources] == [(GROUP, "g")]
    with broker(tmp_path, group_consumer_max_session_timeout_ms="46000") as harness:
        # What was allowed when it was set does not keep a broker from starting.
        assert harness.metadata.group_settings("g").consumer_session_timeout_ms == 46_000
        assert change(harness, GROUP, "g", (SESSION, DELETE, None)).error_code is ErrorCode.none
        assert harness.metadata.group_settings("g").consumer_session_timeout_ms == 45_000
        assert harness.metadata.image.settings_by_group == {}


# Loggers and metrics of clients


LOGGER = "headrace.cluster.metadata"


@pytest.fixture
def loggers() -> Iterator[None]:
    """Levels as they were before, whatever the test has done to them."""
    names = ["headrace", LOGGER]
    logging.getLogger(LOGGER)
    before = {name: logging.getLogger(name).level for name in names}
    logging.getLogger("headrace").setLevel("INFO")
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.usefixtures("loggers")
def test_the_level_of_a_logger_changes_at_once_and_goes_back(harness: Harness) -> None:
    assert value(harness, BROKER_LOGGER, "0", "root") == ("INFO", 6)
    assert value(harness, BROKER_LOGGER, "0", LOGGER) == ("INFO", 6)
    assert change(harness, BROKER_LOGGER, "0", (LOGGER, SET, "DEBUG")).error_code is ErrorCode.none
    assert value(harness, BROKER_LOGGER, "0", LOGGER)[0] == "DEBUG"
    assert logging.getLogger(LOGGER).isEnabledFor(logging.DEBUG)
    assert value(harness, BROKER_LOGGER, "0", "root")[0] == "INFO"
    assert change(harness, BROKER_LOGGER, "0", ("root", SET, "error")).error_code is ErrorCode.none
    assert change(harness, BROKER_LOGGER, "0", (LOGGER, DELETE, None)).error_code is ErrorCode.none
    assert value(harness, BROKER_LOGGER, "0", LOGGER)[0] == "ERROR"
    assert change(harness, BROKER_LOGGER, "0", (LOGGER, SET, "FATAL"), validate_only=True).error_code is ErrorCode.none
    assert value(harness, BROKER_LOGGER, "0", LOGGER)[0] == "ERROR"


@pytest.mark.usefixtures("loggers")
@pytest.mark.parametrize(
    ("changed", "error"),
    [
        (("no.such.logger", SET, "INFO"), ErrorCode.invalid_config),
        ((LOGGER, SET, "LOUD"), ErrorCode.invalid_config),
        (("root", DELETE, None), ErrorCode.invalid_request),
        ((LOGGER, APPEND, "INFO"), ErrorCode.invalid_request),
    ],
)
def test_what_a_logger_refuses(harness: Harness, changed: tuple[str, int, str | None], error: ErrorCode) -> None:
    assert change(harness, BROKER_LOGGER, "0", ("root", SET, "WARN"), changed).error_code is error
    assert change(harness, BROKER_LOGGER, "0", changed).error_code is error
    assert value(harness, BROKER_LOGGER, "0", "root")[0] == "INFO"
    (answer,) = replace_all(harness, 2, (BROKER_LOGGER, "0", {"root": "WARN"}))
    assert answer.error_code is ErrorCode.invalid_request


def test_subscriptions_to_metrics_of_clients(harness: Harness) -> None:
    def shown(name: str) -> dict[str, tuple[str, int]]:
        found = describe(harness, 4, CLIENT_METRICS, name).configs
        return {config.name: (config.value, config.config_source) for config in found}

    def listed() -> list[tuple[int, str]]:
        answer = harness.call(LIST_RESOURCES, 1, lambda schema: schema.ListConfigResourcesRequest(resource_types=()))
        return [(one.resource_type, one.resource_name) for one in answer.config_resources]

    assert shown("m") == {"interval.ms": ("300000", 5), "match": ("", 5), "metrics": ("", 5)}
    assert listed() == [(BROKER, "0"), (BROKER_LOGGER, "0")]
    pattern = "client_id=shop-.*,client_software_name=librdkafka"
    made = change(harness, CLIENT_METRICS, "m", ("interval.ms", SET, "1000"), ("match", SET, pattern))
    assert made.error_code is ErrorCode.none
    assert change(harness, CLIENT_METRICS, "m", ("metrics", APPEND, "a,b")).error_code is ErrorCode.none
    assert change(harness, CLIENT_METRICS, "m", ("metrics", SUBTRACT, "a")).error_code is ErrorCode.none
    assert shown("m") == {"interval.ms": ("1000", 7), "match": (pattern, 7), "metrics": ("b", 7)}
    assert listed()[-1] == (CLIENT_METRICS, "m")
    names = ("interval.ms", "match", "metrics")
    assert change(harness, CLIENT_METRICS, "m", *((name, DELETE, None) for name in names)).error_code is ErrorCode.none
    assert listed() == [(BROKER, "0"), (BROKER_LOGGER, "0")]
