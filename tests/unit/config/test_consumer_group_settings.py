"""Settings of consumer groups that do not go together are refused."""

import pytest

from headrace.config.broker import broker_settings
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
        {"group.coordinator.rebalance.protocols": "streams"},
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
