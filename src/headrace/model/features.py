"""Feature levels: formats that the brokers of a cluster may use once all of them support them.

A cluster has one level, stored with its id (`cluster/layout.py`). Every broker registers with the highest level it
supports. `headrace cluster upgrade` raises the cluster's level when every broker supports the new one, and never lowers
it: from then on brokers may write formats, to disk or to each other, that the level before cannot read.

Until then a newer broker writes only what the previous version can read, so that an upgrade can be rolled back broker
by broker. Every new format checks the level: a setting by `Setting.level`, a call between brokers by `Call.level`, the
records of coordinators in `coordinator/record_rewrite.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.errors import StartupError

FEATURE = "headrace.version"
"""The level's name among the features in ApiVersions and UpdateFeatures."""


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """One feature level."""

    number: int
    since: str
    """The first release that supports it."""
    brings: str
    """The features it enables, for `headrace cluster upgrade`."""
    kafka_features: Mapping[str, int] = field(default_factory=dict)
    """The Kafka features enabled at this level, each with its version."""


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
        "streams groups (KIP-1071) and their settings; users, access keys, ACLs and encryption at rest; reports "
        "of pipelines; the schema registry and schema validation; client quotas; "
        "links to other clusters; queues with a schedule; bounds on backlogs; Kafka's own record formats in "
        "__consumer_offsets and __transaction_state; shorter times and priorities in the state of queues",
        {"share.version": 2, "streams.version": 1, "transaction.version": 2},
    ),
)
CHOOSABLE: Mapping[str, tuple[int, int]] = {"transaction.version": (0, 2)}
"""Kafka features that UpdateFeatures may set, each with its lowest and highest version: brokers serve all of them."""
FIRST_LEVEL = LEVELS[0].number
LATEST_LEVEL = LEVELS[-1].number
STREAMS_LEVEL = 2
"""The first level with streams groups."""
SECURITY_LEVEL = 2
"""The first level with users, access keys and ACLs: brokers of 0.1 would ignore them."""
SCHEMAS_LEVEL = 2
"""The first level with the schema registry: to brokers of 0.1 its topic would be like any other."""
QUOTAS_LEVEL = 2
"""The first level with client quotas: brokers of 0.1 would not hold clients to them."""
SCHEDULES_LEVEL = 2
"""The first level with queues that have a schedule: brokers of 0.1 would send nothing."""
BACKLOGS_LEVEL = 2
"""The first level with bounds on backlogs: brokers of 0.1 would not hold producers to them."""
NARROW_TIMES_LEVEL = 2
"""The first level at which the state of queues has delays, times to live and priorities in fewer bytes."""
LINKS_LEVEL = 2
"""The first level with links: brokers of 0.1 would let producers write to mirror topics."""
STALLS_LEVEL = 2
"""The first level with a setting for the stalls of event loops, which brokers of 0.1 would not know."""
PIPELINES_LEVEL = 2
"""The first level with reports of pipelines: to brokers of 0.1 their topic would be like any other."""


def level(number: int) -> FeatureLevel:
    """The feature level with this number."""
    return LEVELS[number - FIRST_LEVEL]


def finalized(number: int, chosen: Mapping[str, int]) -> dict[str, int]:
    """The finalized features at a level, with those that were chosen; disabled ones (version 0) are omitted."""
    features = {FEATURE: number, **level(number).kafka_features, **chosen}
    return {name: version for name, version in features.items() if version}


def needed(what: str, wanted: int, current: int) -> str:
    """The error message for a feature that needs a higher level than the cluster's."""
    return (
        f"{what} needs feature level {wanted}, and the cluster is at {current}: upgrade every broker to Headrace "
        f"{level(wanted).since} or newer, then run: headrace cluster upgrade"
    )


def check_readable(number: int, where: str) -> None:
    """Raise `StartupError` if this version does not support the cluster's feature level."""
    if number > LATEST_LEVEL:
        raise StartupError(
            f"{where} has a cluster of feature level {number}, and this version of Headrace supports levels up to "
            f"{LATEST_LEVEL}: start a newer version"
        )
