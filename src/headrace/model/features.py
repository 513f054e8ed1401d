"""Feature levels: what the brokers of a cluster may use once all of them know it.

A cluster has one level, stored with its id (`cluster/layout.py`). Every broker announces the highest level that it
knows. `headrace cluster upgrade` raises the cluster's level when every broker knows the new one, and never lowers it:
from then on things may be written, to disk or to each other, that brokers of the level before cannot read.

Until then a newer broker writes only what those before can read, so that an upgrade can be taken back broker by broker.
Whatever is new in a format checks the level: a setting by `Setting.level`, a call between brokers by `Call.level`, the
records of coordinators in `coordinator/record_rewrite.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.errors import StartupError

FEATURE = "headrace.version"
"""The name under which the level appears among the features of ApiVersions and UpdateFeatures."""


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    number: int
    since: str
    """The first release that knows it."""
    brings: str
    """What it turns on, for `headrace cluster upgrade`."""
    kafka_features: Mapping[str, int] = field(default_factory=dict)
    """Kafka's names for what is on at this level, each with its version."""


LEVELS = (
    FeatureLevel(
        1,
        "0.1",
        "everything of Headrace 0.1",
        {"share.version": 1, "transaction.version": 2},
    ),
    FeatureLevel(
        2,
        "0.2",
        "the topic settings compression.gzip.level, compression.lz4.level and compression.zstd.level, an empty "
        "cleanup.policy, and storing Kafka's settings that have no effect here; the group settings "
        "share.delivery.count.limit and share.partition.max.record.locks; dead-letter topics of share groups; "
        "streams groups (KIP-1071) and their settings; Kafka's own record formats in __consumer_offsets and "
        "__transaction_state",
        {"share.version": 2, "streams.version": 1, "transaction.version": 2},
    ),
)
CHOOSABLE: Mapping[str, tuple[int, int]] = {"transaction.version": (0, 2)}
"""Kafka's features that may be held back, from the lowest to the highest version: brokers serve clients of each."""
FIRST_LEVEL = LEVELS[0].number
LATEST_LEVEL = LEVELS[-1].number
STREAMS_LEVEL = 2
"""From here on groups may be streams groups."""


def level(number: int) -> FeatureLevel:
    """The description of a level that this version knows."""
    return LEVELS[number - FIRST_LEVEL]


def finalized(number: int, chosen: Mapping[str, int]) -> dict[str, int]:
    """The features in force at a level, with those that were chosen; what is off is left out."""
    features = {FEATURE: number, **level(number).kafka_features, **chosen}
    return {name: version for name, version in features.items() if version}


def needed(what: str, wanted: int, current: int) -> str:
    """The sentence that refuses something because the cluster's level is too low."""
    return (
        f"{what} needs feature level {wanted}, and the cluster is at {current}: upgrade every broker to Headrace "
        f"{level(wanted).since} or newer, then run: headrace cluster upgrade"
    )


def check_readable(number: int, where: str) -> None:
    """`StartupError` for a cluster of a level that this version does not know."""
    if number > LATEST_LEVEL:
        raise StartupError(
            f"{where} holds a cluster of feature level {number}, and this version of Headrace knows levels up to "
            f"{LATEST_LEVEL}: start a newer version"
        )
