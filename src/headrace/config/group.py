"""Every setting of a single group: Kafka's names. What a group does not set is as the broker's `group.*` say.

The broker's minimums and maximums bound what may be set. Should they be changed afterwards, a setting that lies outside
counts as the closest value that is allowed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.config.broker import BROKER_SETTINGS, BrokerSettings
from headrace.config.settings import Kind, Setting, parse_all, table
from headrace.model.errors import SettingsError
from headrace.model.features import FIRST_LEVEL

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


def _row(name: str, doc: str, level: int = FIRST_LEVEL) -> Setting:
    """One that a group has from its broker, with bounds."""
    of_broker = BROKER_SETTINGS[f"group.{name}"]
    return Setting(
        name, of_broker.kind, of_broker.default, doc, of_broker.minimum, broker_name=of_broker.name, level=level
    )


GROUP_SETTINGS: Mapping[str, Setting] = table(
    _row("consumer.heartbeat.interval.ms", "How often members of this group heartbeat (KIP-848)."),
    _row("consumer.session.timeout.ms", "A member of this group that is silent for this long is removed (KIP-848)."),
    Setting("errors.deadletterqueue.copy.record.enable", Kind.BOOLEAN, False,
            "Whether a dead letter of this share group has the key and the value of its record.", level=2),
    Setting("errors.deadletterqueue.topic.name", Kind.STRING, "",
            "The topic to which records go that members of this share group reject, or that were delivered as often as "
            "they may be (KIP-1191). Empty: nowhere. It needs errors.deadletterqueue.group.enable=true.", level=2),
    Setting("share.auto.offset.reset", Kind.STRING, LATEST,
            "Where a share group begins in a partition that is new to it: latest, earliest, or by_duration:PT1H for "
            "what is not older than that (ISO 8601)."),
    _row("share.delivery.count.limit",
         "A record that was given out this often to members of this share group, and never accepted, is not given out "
         "again (KIP-1240).", level=2),
    _row("share.heartbeat.interval.ms", "How often members of this share group heartbeat (KIP-932)."),
    Setting("share.isolation.level", Kind.STRING, "read_uncommitted",
            "Whether a share group gets records of transactions that are not committed.",
            choices=("read_uncommitted", READ_COMMITTED)),
    _row("share.partition.max.record.locks",
         "Records of one partition that members of this share group may have at a time (KIP-1240).", level=2),
    _row("share.record.lock.duration.ms", "How long a record belongs to the member that it was given to."),
    Setting("share.renew.acknowledge.enable", Kind.BOOLEAN, True,
            "Whether members of this share group may keep a record for longer by renewing it (KIP-1222)."),
    _row("share.session.timeout.ms", "A member of this share group that is silent for this long is removed (KIP-932)."),
)  # fmt: skip


def group_settings(overrides: Mapping[str, str], broker: BrokerSettings) -> GroupSettings:
    """The settings in force for a group with these overrides."""
    values: dict[str, Any] = {}
    for name, row in GROUP_SETTINGS.items():
        value: Any = row.parse(overrides[name]) if name in overrides else None
        if row.broker_name is not None:
            low, default, high = _bounds(row.broker_name, broker)
            values[row.attribute] = default if value is None else min(max(low, value), high)
        else:
            values[row.attribute] = row.default if value is None else value
    return GroupSettings(**values)


def check_group_settings(overrides: Mapping[str, str], broker: BrokerSettings) -> None:
    """`SettingsError` on one that is unknown, invalid or out of bounds, or on two that disagree."""
    parse_all(GROUP_SETTINGS, overrides)
    for name, text in overrides.items():
        broker_name = GROUP_SETTINGS[name].broker_name
        if broker_name is None:
            continue
        low, _, high = _bounds(broker_name, broker)
        if not low <= int(text) <= high:
            lowest, highest = _bound_name(broker_name, "min"), _bound_name(broker_name, "max")
            raise SettingsError(f"{name}={text} is not from {lowest}={low} to {highest}={high}")
    settings = group_settings(overrides, broker)
    parse_reset(settings.share_auto_offset_reset)
    letters = settings.errors_deadletterqueue_topic_name
    problem = dead_letter_topic_problem(letters, broker) if letters else None
    if problem is not None:
        raise SettingsError(f"errors.deadletterqueue.topic.name={letters} is not allowed: {problem}")
    for kind in ("consumer", "share"):
        interval_ms = getattr(settings, f"{kind}_heartbeat_interval_ms")
        timeout_ms = getattr(settings, f"{kind}_session_timeout_ms")
        if interval_ms >= timeout_ms:
            raise SettingsError(
                f"{kind}.heartbeat.interval.ms={interval_ms} must be below {kind}.session.timeout.ms={timeout_ms}"
            )


def dead_letter_topic_problem(name: str, broker: BrokerSettings) -> str | None:
    """Why a topic of this name may have no dead letters of share groups, whatever its settings; None if it may."""
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
    """`earliest`, `latest`, or how old in ms what is wanted may be."""
    if text in (EARLIEST, LATEST):
        return text
    found = _DURATION.fullmatch(text.removeprefix(_BY_DURATION)) if text.startswith(_BY_DURATION) else None
    if found is None or not any(found.groups()):
        raise SettingsError(f"share.auto.offset.reset={text} is not latest, earliest, or by_duration: and PnDTnHnMn.nS")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    thousandths = int((found.group(5) or "0").ljust(3, "0"))
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + thousandths


def _bounds(broker_name: str, broker: BrokerSettings) -> tuple[int, int, int]:
    """What a broker allows at the least, has by default, and allows at the most."""
    low, default, high = (
        broker.value(name) for name in (_bound_name(broker_name, "min"), broker_name, _bound_name(broker_name, "max"))
    )
    return low, default, high  # type: ignore[return-value]


def _bound_name(broker_name: str, bound: str) -> str:
    """`group.share.min.session.timeout.ms` for the least of `group.share.session.timeout.ms`."""
    group, kind, what = broker_name.split(".", 2)
    return f"{group}.{kind}.{bound}.{what}"
