"""Every setting of a single group: Kafka's names. What a group does not set is as the broker's `group.consumer.*` say.

The broker's minimums and maximums bound what may be set. Should they be changed afterwards, a setting that lies outside
counts as the closest value that is allowed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.config.broker import BROKER_SETTINGS, BrokerSettings
from headrace.config.settings import Setting, parse_all, table
from headrace.model.errors import SettingsError


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings in force for one group, typed. Attribute names are the setting names with `_` for `.`."""

    consumer_heartbeat_interval_ms: int
    consumer_session_timeout_ms: int


def _row(name: str, doc: str) -> Setting:
    of_broker = BROKER_SETTINGS[f"group.{name}"]
    return Setting(name, of_broker.kind, of_broker.default, doc, of_broker.minimum, broker_name=of_broker.name)


GROUP_SETTINGS: Mapping[str, Setting] = table(
    _row("consumer.heartbeat.interval.ms", "How often members of this group heartbeat (KIP-848)."),
    _row("consumer.session.timeout.ms", "A member of this group that is silent for this long is removed (KIP-848)."),
)


def group_settings(overrides: Mapping[str, str], broker: BrokerSettings) -> GroupSettings:
    """The settings in force for a group with these overrides."""
    values = {}
    for name, row in GROUP_SETTINGS.items():
        low, default, high = _bounds(name, broker)
        values[row.attribute] = min(max(low, int(overrides[name])), high) if name in overrides else default
    return GroupSettings(**values)


def check_group_settings(overrides: Mapping[str, str], broker: BrokerSettings) -> None:
    """`SettingsError` on one that is unknown, invalid or out of bounds, or on two that disagree."""
    parse_all(GROUP_SETTINGS, overrides)
    for name, text in overrides.items():
        low, _, high = _bounds(name, broker)
        if not low <= int(text) <= high:
            what = name.removeprefix("consumer.")
            raise SettingsError(
                f"{name}={text} is not from group.consumer.min.{what}={low} to group.consumer.max.{what}={high}"
            )
    settings = group_settings(overrides, broker)
    if settings.consumer_heartbeat_interval_ms >= settings.consumer_session_timeout_ms:
        raise SettingsError(
            f"consumer.heartbeat.interval.ms={settings.consumer_heartbeat_interval_ms} must be below "
            f"consumer.session.timeout.ms={settings.consumer_session_timeout_ms}"
        )


def _bounds(name: str, broker: BrokerSettings) -> tuple[int, int, int]:
    """What a broker allows at the least, has by default, and allows at the most."""
    what = name.removeprefix("consumer.").replace(".", "_")
    low, default, high = (getattr(broker, f"group_consumer_{part}{what}") for part in ("min_", "", "max_"))
    return low, default, high
