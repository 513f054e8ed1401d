"""Settings of groups that do not go together are refused."""

import pytest

from headrace.config.broker import broker_settings
from headrace.config.group import check_group_settings, group_settings
from headrace.model.errors import SettingsError


@pytest.mark.parametrize(
    "texts",
    [
        {"group.consumer.session.timeout.ms": "1000"},
        {"group.consumer.session.timeout.ms": "100000"},
        {"group.consumer.heartbeat.interval.ms": "100"},
        {"group.consumer.min.session.timeout.ms": "5000", "group.consumer.session.timeout.ms": "5000"},
        {"group.consumer.assignors": ""},
        {"group.consumer.assignors": "sticky"},
        {"group.coordinator.rebalance.protocols": "raft"},
        {"group.streams.session.timeout.ms": "1000"},
        {"group.streams.heartbeat.interval.ms": "100"},
        {"group.streams.num.standby.replicas": "3"},
    ],
)
def test_what_does_not_go_together_is_refused(texts: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        broker_settings(texts)


def test_shorter_times_are_allowed_where_the_bounds_are() -> None:
    settings = broker_settings(
        {"group.consumer.min.session.timeout.ms": "6000", "group.consumer.session.timeout.ms": "6000"}
    )
    assert settings.group_consumer_session_timeout_ms == 6000


@pytest.mark.parametrize(
    "texts",
    [
        {"streams.session.timeout.ms": "44999"},
        {"streams.heartbeat.interval.ms": "15001"},
        {"streams.num.standby.replicas": "3"},
        {"streams.num.standby.replicas": "-1"},
        {"streams.initial.rebalance.delay.ms": "-1"},
    ],
)
def test_a_streams_group_is_held_to_the_bounds_of_its_broker(texts: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        check_group_settings(texts, broker_settings({}))


def test_a_streams_group_has_what_is_set_or_what_its_broker_has() -> None:
    texts = {"streams.num.standby.replicas": "2", "streams.initial.rebalance.delay.ms": "0"}
    check_group_settings(texts, broker_settings({}))
    settings = group_settings(texts, broker_settings({"group.streams.max.standby.replicas": "1"}))
    assert (settings.streams_num_standby_replicas, settings.streams_initial_rebalance_delay_ms) == (1, 0)
    settings = group_settings({}, broker_settings({"group.streams.num.standby.replicas": "1"}))
    assert (settings.streams_num_standby_replicas, settings.streams_session_timeout_ms) == (1, 45_000)
