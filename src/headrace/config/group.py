"""The group settings, with Kafka's names. The broker's `group.*` settings are the defaults.

The broker's minimums and maximums bound the allowed values. If they are changed later, a value outside of them is
clamped.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.config.broker import BROKER_SETTINGS, BrokerSettings
from headrace.config.kafka_only import GROUP_ROWS
from headrace.config.settings import Kind, Setting, Value, parse_all, table
from headrace.model.errors import SettingsError
from headrace.model.features import FIRST_LEVEL, STREAMS_LEVEL

EARLIEST, LATEST = "earliest", "latest"
READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings in force for one group, typed. Attribute names are the setting names with `_` for `.`."""

    consumer_heartbeat_interval_ms: int
    consumer_session_timeout_ms: int
    errors_deadletterqueue_copy_record_enable: bool
    errors_deadletterqueue_topic_name: str
    share_auto_offset_reset: str
    share_delivery_count_limit: int
    share_heartbeat_interval_ms: int
    share_isolation_level: str
    share_partition_max_record_locks: int
    share_record_lock_duration_ms: int
    share_renew_acknowledge_enable: bool
    share_session_timeout_ms: int
    streams_heartbeat_interval_ms: int
    streams_initial_rebalance_delay_ms: int
    streams_num_standby_replicas: int
    streams_session_timeout_ms: int

    def value(self, row: Setting) -> Value:
        """The value in force of a group setting; the default of one without effect."""
        return getattr(self, row.attribute) if row.has_effect else row.default


def _row(name: str, doc: str, level: int = FIRST_LEVEL) -> Setting:
    """A group setting whose default and bounds are broker settings."""
    of_broker = BROKER_SETTINGS[f"group.{name}"]
    return Setting(
        name, of_broker.kind, of_broker.default, doc, of_broker.minimum, broker_name=of_broker.name, level=level
    )


GROUP_SETTINGS: Mapping[str, Setting] = table(
    _row("consumer.heartbeat.interval.ms", "How often members of this group heartbeat (KIP-848)."),
    _row("consumer.session.timeout.ms",
         "A member of this group without a heartbeat for this long is removed (KIP-848)."),
    Setting("errors.deadletterqueue.copy.record.enable", Kind.BOOLEAN, False,
            "Whether a dead letter of this share group includes the key and the value of its record.", level=2),
    Setting("errors.deadletterqueue.topic.name", Kind.STRING, "",
            "The dead-letter topic for records that members of this share group reject, or that reached the delivery "
            "count limit (KIP-1191). Empty: none. It must have errors.deadletterqueue.group.enable=true.", level=2),
    Setting("share.auto.offset.reset", Kind.STRING, LATEST,
            "Where a share group starts in a partition that is new to it: latest, earliest, or by_duration:PT1H for "
            "records not older than that (ISO 8601)."),
    _row("share.delivery.count.limit",
         "A record that was delivered this often to members of this share group, and never accepted, is not delivered "
         "again (KIP-1240).", level=2),
    _row("share.heartbeat.interval.ms", "How often members of this share group heartbeat (KIP-932)."),
    Setting("share.isolation.level", Kind.STRING, "read_uncommitted",
            "Whether a share group gets records of uncommitted transactions.",
            choices=("read_uncommitted", READ_COMMITTED)),
    _row("share.partition.max.record.locks",
         "The number of records of one partition that this share group may have acquired at a time (KIP-1240).",
         level=2),
    _row("share.record.lock.duration.ms", "How long the member that acquired a record holds its lock."),
    Setting("share.renew.acknowledge.enable", Kind.BOOLEAN, True,
            "Whether members of this share group may renew the lock of a record (KIP-1222)."),
    _row("share.session.timeout.ms",
         "A member of this share group without a heartbeat for this long is removed (KIP-932)."),
    _row("streams.heartbeat.interval.ms", "How often members of this streams group heartbeat (KIP-1071).",
         STREAMS_LEVEL),
    _row("streams.initial.rebalance.delay.ms",
         "How long this streams group, while empty, waits for more members before its tasks are assigned (KIP-1071).",
         STREAMS_LEVEL),
    _row("streams.num.standby.replicas",
         "The number of standbys of each stateful task of this streams group (KIP-1071).",
         STREAMS_LEVEL),
    _row("streams.session.timeout.ms",
         "A member of this streams group without a heartbeat for this long is removed (KIP-1071).", STREAMS_LEVEL),
    *GROUP_ROWS,
)  # fmt: skip


def group_settings(overrides: Mapping[str, str], broker: BrokerSettings) -> GroupSettings:
    """The settings in force for a group with these overrides."""
    values: dict[str, Any] = {}
    for name, row in GROUP_SETTINGS.items():
        if not row.has_effect:
            continue
        value: Any = row.parse(overrides[name]) if name in overrides else None
        if row.broker_name is not None:
            low, default, high = _bounds(row.broker_name, broker)
            values[row.attribute] = default if value is None else min(max(low, value), high)
        else:
            values[row.attribute] = row.default if value is None else value
    return GroupSettings(**values)


def check_group_settings(overrides: Mapping[str, str], broker: BrokerSettings) -> None:
    """Raise `SettingsError` if a setting is unknown, invalid or out of bounds, or if two conflict."""
    parse_all(GROUP_SETTINGS, overrides)
    for name, text in overrides.items():
        broker_name = GROUP_SETTINGS[name].broker_name
        if broker_name is None:
            continue
        low, _, high = _bounds(broker_name, broker)
        if not low <= int(text) <= high:
            lowest, highest = _bound_names(broker_name)
            raise SettingsError(f"{name}={text} is not from {_shown(lowest, low)} to {_shown(highest, high)}")
    settings = group_settings(overrides, broker)
    parse_reset(settings.share_auto_offset_reset)
    letters = settings.errors_deadletterqueue_topic_name
    problem = dead_letter_topic_problem(letters, broker) if letters else None
    if problem is not None:
        raise SettingsError(f"errors.deadletterqueue.topic.name={letters} is not allowed: {problem}")
    for kind in ("consumer", "share", "streams"):
        interval_ms = getattr(settings, f"{kind}_heartbeat_interval_ms")
        timeout_ms = getattr(settings, f"{kind}_session_timeout_ms")
        if interval_ms >= timeout_ms:
            raise SettingsError(
                f"{kind}.heartbeat.interval.ms={interval_ms} must be below {kind}.session.timeout.ms={timeout_ms}"
            )


def dead_letter_topic_problem(name: str, broker: BrokerSettings) -> str | None:
    """Why a topic of this name cannot be a share group's dead-letter topic, whatever its settings; None if it can."""
    prefix = broker.errors_deadletterqueue_topic_name_prefix
    if _TOPIC.fullmatch(name) is None:
        return "it has at most 249 ASCII letters, digits, '.', '_' and '-'"
    if name.startswith("__"):
        return "names that begin with __ are for internal topics"
    if not name.startswith(prefix):
        return f"it does not begin with errors.deadletterqueue.topic.name.prefix={prefix}"
    return None


_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_BY_DURATION = "by_duration:"
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3})\d*)?S)?)?", re.ASCII)


def parse_reset(text: str) -> str | int:
    """Parse `share.auto.offset.reset`: `earliest`, `latest`, or the maximum age of records in ms."""
    if text in (EARLIEST, LATEST):
        return text
    found = _DURATION.fullmatch(text.removeprefix(_BY_DURATION)) if text.startswith(_BY_DURATION) else None
    if found is None or not any(found.groups()):
        raise SettingsError(f"share.auto.offset.reset={text} is not latest, earliest, or by_duration: and PnDTnHnMn.nS")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    thousandths = int((found.group(5) or "0").ljust(3, "0"))
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + thousandths


def _bounds(broker_name: str, broker: BrokerSettings) -> tuple[int, int, int]:
    """The broker's minimum, default and maximum of a group setting."""
    lowest, highest = _bound_names(broker_name)
    low = 0 if lowest is None else broker.value(lowest)
    high = 2**31 - 1 if highest is None else broker.value(highest)
    return low, broker.value(broker_name), high  # type: ignore[return-value]


def _bound_names(broker_name: str) -> tuple[str | None, str | None]:
    """The names of a setting's bounds, as `group.share.min.session.timeout.ms` and the same with `max` for
    `group.share.session.timeout.ms`; None where there is no bound."""
    group, kind, what = broker_name.split(".", 2)
    names = (f"{group}.{kind}.min.{what}", f"{group}.{kind}.max.{what.removeprefix('num.')}")
    lowest, highest = (name if name in BROKER_SETTINGS else None for name in names)
    return lowest, highest


def _shown(name: str | None, bound: int) -> str:
    return str(bound) if name is None else f"{name}={bound}"
