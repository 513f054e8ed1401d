"""UpdateFeatures: one compare-and-set raises the cluster's feature level once every broker supports the new one.

The transaction compares /cluster and the lease of every broker that was checked. A broker that registers concurrently
compares /cluster as well, so no broker that lacks the new level can slip in. A broker that is down may run any version:
it must be restarted or drained first.
"""

import logging
from collections.abc import Container, Mapping, Sequence

from headrace.cluster import layout
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import Compare, Put
from headrace.model.errors import FeatureUpdateRefused, InvalidFeatureLevel
from headrace.model.features import CHOOSABLE, FEATURE, FIRST_LEVEL, LATEST_LEVEL, finalized, level, needed
from headrace.model.image import ClusterImage

log = logging.getLogger(__name__)


async def update_features(
    metadata: Metadata,
    wanted: Mapping[str, int],
    *,
    may_lower: Container[str] = (),
    validate_only: bool = False,
) -> None:
    """Set these features to these versions, all or none; returns when the change is committed.

    Raises `InvalidFeatureLevel` or `FeatureUpdateRefused`. Only Kafka features in `may_lower` may be lowered; the
    feature level never is.
    """

    async def attempt() -> None:
        image = metadata.image
        new_level = wanted.get(FEATURE, image.feature_level)
        _check_level(image, new_level)
        if new_level != image.feature_level and not metadata.is_single_node:
            _check_brokers(image, new_level)
        chosen = dict(image.chosen_features)
        for name, version in wanted.items():
            if name != FEATURE:
                _check_choice(image, new_level, name, version, may_lower)
                chosen[name] = version
        chosen = {name: version for name, version in chosen.items() if name in CHOOSABLE}
        if validate_only or (new_level, chosen) == (image.feature_level, image.chosen_features):
            return
        compares = [metadata.unchanged(layout.CLUSTER)]
        if not metadata.is_single_node:
            compares += _leases(metadata, image)
        cluster = layout.ClusterIdentity(image.cluster_id, new_level, chosen)
        await metadata.commit(compares, [Put(layout.CLUSTER, layout.encode_cluster(cluster))])
        log.info("the features of the cluster are now: %s", finalized(new_level, chosen))

    await metadata.decide(attempt)


def _check_level(image: ClusterImage, wanted: int) -> None:
    if wanted > LATEST_LEVEL:
        raise InvalidFeatureLevel(
            f"this broker supports feature levels up to {LATEST_LEVEL}, not {wanted}: upgrade Headrace first"
        )
    if wanted < FIRST_LEVEL:
        raise InvalidFeatureLevel(f"the feature level cannot be removed: give one from {FIRST_LEVEL} on")
    if wanted < image.feature_level:
        raise FeatureUpdateRefused(
            f"the feature level is {image.feature_level} and cannot be lowered: older versions may be unable to read "
            "data written since"
        )


def _check_choice(image: ClusterImage, new_level: int, name: str, wanted: int, may_lower: Container[str]) -> None:
    follows = level(new_level).kafka_features
    if name not in follows:
        raise InvalidFeatureLevel(f"there is no feature {name} at {FEATURE} {new_level}")
    if name not in CHOOSABLE:
        if wanted != follows[name]:
            raise FeatureUpdateRefused(f"{name} is {follows[name]} at {FEATURE} {new_level}, and cannot be chosen")
        return
    lowest, highest = CHOOSABLE[name]
    if not lowest <= wanted <= highest:
        raise InvalidFeatureLevel(f"{name} can be from {lowest} to {highest}, not {wanted}")
    current = finalized(image.feature_level, image.chosen_features).get(name, 0)
    if wanted < current and name not in may_lower:
        raise FeatureUpdateRefused(f"{name} is {current}: to lower it to {wanted}, ask for a downgrade")
    if wanted != current and new_level == FIRST_LEVEL:
        raise FeatureUpdateRefused(needed(f"choosing {name}", FIRST_LEVEL + 1, new_level))


def _check_brokers(image: ClusterImage, wanted: int) -> None:
    down = [broker.broker_id for broker in image.brokers.values() if not broker.is_alive]
    if down:
        raise FeatureUpdateRefused(
            f"{_named(down)} down, so its version is unknown: start it with the new version, "
            "or remove it with: headrace cluster drain"
        )
    old = [broker.broker_id for broker in image.brokers.values() if broker.max_level < wanted]
    if old:
        raise FeatureUpdateRefused(
            f"{_named(old)} of a version before {level(wanted).since}, which does not support feature level {wanted}: "
            "upgrade it first"
        )


def _leases(metadata: Metadata, image: ClusterImage) -> list[Compare]:
    return [metadata.unchanged(layout.alive_key(broker_id)) for broker_id in image.brokers]


def _named(brokers: Sequence[int]) -> str:
    ids = ", ".join(map(str, sorted(brokers)))
    return f"broker {ids} is" if len(brokers) == 1 else f"brokers {ids} are"
