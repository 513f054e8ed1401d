"""Kafka's settings that have no effect here: accepted, stored and shown, but for what would be unsafe to ignore."""

import pytest
from kio.schema.errors import ErrorCode

from headrace.cluster import layout
from headrace.cluster.layout import ClusterIdentity
from headrace.cluster.store import Put
from headrace.config.broker import BROKER_SETTINGS
from headrace.config.group import GROUP_SETTINGS
from headrace.config.topic import TOPIC_SETTINGS
from headrace.model.features import FIRST_LEVEL
from headrace.model.ids import TopicName

from .harness import Harness
from .test_configs import BROKER, DELETE, GROUP, SET, TOPIC, change, describe, replace_all, value
from .test_topic_admin import create, topic

NAMES = {
    kind: [row for row in rows.values() if not row.has_effect and (row.dynamic or kind != BROKER)]
    for kind, rows in ((TOPIC, TOPIC_SETTINGS), (BROKER, BROKER_SETTINGS), (GROUP, GROUP_SETTINGS))
}
RESOURCES = [(TOPIC, "a"), (BROKER, "0"), (BROKER, ""), (GROUP, "g")]


def stored(harness: Harness) -> list[str]:
    """The names of all settings that are stored."""
    image = harness.metadata.image
    places = [*(topic.settings for topic in image.topics.values()), image.broker_settings]
    places += [*image.settings_by_broker.values(), *image.settings_by_group.values()]
    return sorted(name for place in places for name in place)


@pytest.mark.parametrize(("kind", "name"), RESOURCES)
def test_each_can_be_set_to_its_default_shown_and_deleted(harness: Harness, kind: int, name: str) -> None:
    harness.create("a")
    rows = NAMES[kind]
    changed = change(harness, kind, name, *((row.name, SET, row.render(row.default)) for row in rows))
    assert (changed.error_code, changed.error_message) == (ErrorCode.none, None)
    assert stored(harness) == sorted(row.name for row in rows)
    told = {config.name: config for config in describe(harness, 4, kind, name, include_documentation=True).configs}
    for row in rows:
        shown = told[row.name]
        assert shown.value == (None if shown.is_sensitive else row.render(row.default)), row.name
        assert "No effect in Headrace" in shown.documentation
        assert shown.config_source in (1, 2, 3, 8)
    assert change(harness, kind, name, *((row.name, DELETE, None) for row in rows)).error_code is ErrorCode.none
    assert stored(harness) == []


@pytest.mark.parametrize(
    ("kind", "name", "setting", "text"),
    [
        (TOPIC, "a", "preallocate", "true"),
        (TOPIC, "a", "local.retention.ms", "1000"),
        (TOPIC, "a", "leader.replication.throttled.replicas", "0:1,1:2"),
        (TOPIC, "a", "follower.replication.throttled.replicas", "*"),
        (TOPIC, "a", "message.format.version", "2.8"),
        (TOPIC, "a", "message.downconversion.enable", "false"),
        (BROKER, "0", "num.io.threads", "32"),
        (BROKER, "", "log.preallocate", "true"),
        (BROKER, "0", "replica.alter.log.dirs.io.max.bytes.per.second", "1000"),
        (GROUP, "g", "streams.assignment.interval.ms", "1"),
    ],
)
def test_one_is_kept_and_the_log_says_once_that_it_does_nothing(
    harness: Harness, caplog: pytest.LogCaptureFixture, kind: int, name: str, setting: str, text: str
) -> None:
    harness.create("a")
    for _ in range(2):
        assert change(harness, kind, name, (setting, SET, text)).error_code is ErrorCode.none
        assert value(harness, kind, name, setting)[0] == text
        change(harness, kind, name, (setting, DELETE, None))
    assert caplog.text.count(f"{setting} was set on") == 1
    assert "No effect in Headrace" in caplog.text


@pytest.mark.parametrize(
    ("kind", "name", "setting", "text", "reason"),
    [
        (TOPIC, "a", "unclean.leader.election.enable", "true", "it loses acknowledged records"),
        (TOPIC, "a", "remote.storage.enable", "true", "there is no tiered storage"),
        (TOPIC, "a", "leader.replication.throttled.replicas", "all", "all is not * or PARTITION:BROKER"),
        (TOPIC, "a", "local.retention.ms", "-3", "at least -2"),
        (TOPIC, "a", "preallocate", "yes", "not a boolean"),
        (BROKER, "0", "num.io.threads", "0", "at least 1"),
        (BROKER, "0", "ssl.keystore.location", "/x", "security is configured with listeners"),
        (BROKER, "0", "queued.max.requests", "500", "cannot be changed on a running broker"),
        (BROKER, "0", "num.io.threadz", "8", "did you mean num.io.threads?"),
        (TOPIC, "a", "preallocated", "true", "did you mean preallocate?"),
    ],
)
def test_what_is_unsafe_invalid_or_mistyped_is_refused_with_the_reason(
    harness: Harness, kind: int, name: str, setting: str, text: str, reason: str
) -> None:
    harness.create("a")
    refused = change(harness, kind, name, (setting, SET, text))
    assert refused.error_code is ErrorCode.invalid_config
    assert reason in refused.error_message
    assert stored(harness) == []


def test_a_refusal_does_not_tell_a_secret(harness: Harness) -> None:
    refused = change(harness, BROKER, "0", ("ssl.keystore.password", SET, "hush"))
    assert refused.error_code is ErrorCode.invalid_config
    assert "hush" not in refused.error_message


@pytest.mark.parametrize(("kind", "name"), RESOURCES)
def test_deleting_an_unknown_setting_succeeds(harness: Harness, kind: int, name: str) -> None:
    harness.create("a")
    assert change(harness, kind, name, ("no.such.name", DELETE, None)).error_code is ErrorCode.none
    assert stored(harness) == []


def test_a_topic_is_created_as_asked_for_with_kafkas_settings(harness: Harness) -> None:
    (created,) = create(harness, 7, topic("a", 3, 1, preallocate="true", remote_storage_enable="false"))
    assert (created.error_code, created.num_partitions) == (ErrorCode.none, 3)
    configs = {config.name: (config.value, config.config_source) for config in created.configs}
    assert configs["preallocate"] == ("true", 1)
    (refused,) = create(harness, 7, topic("b", 3, 1, remote_storage_enable="true"))
    assert refused.error_code is ErrorCode.invalid_config
    assert "there is no tiered storage" in refused.error_message


def test_all_settings_can_be_replaced_by_those_that_were_described(harness: Harness) -> None:
    """As programs do that copy settings from topic to topic with AlterConfigs."""
    harness.create("a")
    texts = {config.name: config.value for config in describe(harness, 4, TOPIC, "a").configs}
    (answer,) = replace_all(harness, 2, (TOPIC, "a", texts))
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    assert set(stored(harness)) == set(texts)


def at_level_one(harness: Harness) -> None:
    founded = ClusterIdentity(harness.metadata.image.cluster_id, FIRST_LEVEL)
    harness.run(harness.metadata.commit([], [Put(layout.CLUSTER, layout.encode_cluster(founded))]))


@pytest.mark.parametrize(("kind", "name"), RESOURCES)
def test_before_the_upgrade_defaults_and_deletions_succeed_and_nothing_is_stored(
    harness: Harness, kind: int, name: str
) -> None:
    harness.create("a")
    at_level_one(harness)
    rows = NAMES[kind]
    defaults = [(row.name, SET, row.render(row.default)) for row in rows]
    assert change(harness, kind, name, *defaults).error_message is None
    assert change(harness, kind, name, *((row.name, DELETE, None) for row in rows)).error_message is None
    assert stored(harness) == []


def test_before_the_upgrade_other_values_wait_for_it(harness: Harness) -> None:
    at_level_one(harness)
    (created,) = create(harness, 7, topic("a", 3, 1, preallocate="false", compression_gzip_level="-1"))
    assert created.error_code is ErrorCode.none
    assert harness.metadata.image.topics[TopicName("a")].settings == {}
    refused = change(harness, TOPIC, "a", ("preallocate", SET, "true"))
    assert refused.error_code is ErrorCode.invalid_config
    assert "preallocate needs feature level 2" in refused.error_message
    assert change(harness, BROKER, "", ("num.io.threads", SET, "9")).error_code is ErrorCode.invalid_config
    emptied = change(harness, TOPIC, "a", ("cleanup.policy", SET, ""))
    assert "cleanup.policy without a value needs feature level 2" in emptied.error_message
    assert change(harness, GROUP, "g", ("streams.num.standby.replicas", SET, "1")).error_code is (
        ErrorCode.invalid_config
    )
    assert stored(harness) == []
