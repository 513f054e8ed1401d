"""Limits of share groups (KIP-1240): bounds of the broker, and the feature level that they wait for."""

import pytest

from headrace.config.broker import BrokerSettings, broker_settings
from headrace.config.group import GROUP_SETTINGS, check_group_settings, group_settings
from headrace.config.settings import storable
from headrace.model.errors import SettingsError

LIMITS = ("share.delivery.count.limit", "share.partition.max.record.locks")


@pytest.mark.parametrize(
    "texts",
    [
        {"group.share.delivery.count.limit": "6", "group.share.max.delivery.count.limit": "5"},
        {"group.share.delivery.count.limit": "2", "group.share.min.delivery.count.limit": "3"},
        {"group.share.partition.max.record.locks": "5000"},
        {"group.share.max.delivery.count.limit": "4"},
    ],
)
def test_limits_outside_their_bounds_are_refused(texts: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        broker_settings(texts)


def test_a_group_has_the_broker_s_limits_unless_it_sets_others() -> None:
    broker = broker_settings({"group.share.delivery.count.limit": "7"})
    assert group_settings({}, broker).share_delivery_count_limit == 7
    own = group_settings({"share.delivery.count.limit": "3", "share.partition.max.record.locks": "4000"}, broker)
    assert (own.share_delivery_count_limit, own.share_partition_max_record_locks) == (3, 4000)


def test_a_limit_that_its_broker_allows_no_more_counts_as_the_closest() -> None:
    broker = broker_settings({"group.share.max.delivery.count.limit": "6"})
    overrides = {"share.delivery.count.limit": "9"}
    assert group_settings(overrides, broker).share_delivery_count_limit == 6
    with pytest.raises(SettingsError, match=r"group\.share\.max\.delivery\.count\.limit=6"):
        check_group_settings(overrides, broker)


def test_limits_of_groups_are_not_stored_while_older_brokers_may_read_them() -> None:
    for name, text in zip(LIMITS, ("7", "700"), strict=True):
        with pytest.raises(SettingsError, match="feature level 2"):
            storable(GROUP_SETTINGS, {name: text}, 1, lambda row: row.default)
        assert storable(GROUP_SETTINGS, {name: text}, 2, lambda row: row.default) == {name: text}
    check_group_settings(dict.fromkeys(LIMITS[:1], "10"), BrokerSettings())
