"""Changing the cluster's features: one compare-and-set, which raises the level once every broker knows the new one.

The transaction compares /cluster and the lease of every broker that was looked at. A broker that registers meanwhile
compares /cluster as well, so none that does not know the new level can come in between. A broker that is away may be of
any version: it has to come back, or to be drained, first.
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
    """Returns when these features have these versions, all or none of them.

    `InvalidFeatureLevel` and `FeatureUpdateRefused` say why that cannot be. Only those of Kafka's features in
    `may_lower` are lowered, and the level never is.
    """

    async def attempt() -> None:
        image = metadata.image
        new_level = wanted.get(FEATURE, image.feature_level)
        _check_level(image, new_level)
        if new_level != image.feature_level and not metadata.is_alone:
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
        if not metadata.is_alone:
            compares += _leases(metadata, image)
        cluster = layout.ClusterIdentity(image.cluster_id, new_level, chosen)
        await metadata.commit(compares, [Put(layout.CLUSTER, layout.encode_cluster(cluster))])
        log.info("the features of the cluster are now: %s", finalized(new_level, chosen))

    await metadata.decide(attempt)


def _check_level(image: ClusterImage, wanted: int) -> None:
    if wanted > LATEST_LEVEL:
        raise InvalidFeatureLevel(
            f"this broker knows feature levels up to {LATEST_LEVEL}, not {wanted}: upgrade it to a newer Headrace first"
        )
    if wanted < FIRST_LEVEL:
        raise InvalidFeatureLevel(f"the feature level cannot be removed: give one from {FIRST_LEVEL} on")
    if wanted < image.feature_level:
        raise FeatureUpdateRefused(
            f"the feature level is {image.feature_level} and cannot be lowered: what was written since may be "
            "unreadable for older versions"
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
    away = [broker.broker_id for broker in image.brokers.values() if not broker.is_alive]
    if away:
        raise FeatureUpdateRefused(
            f"{_named(away)} away, and nobody knows which version will come back: start it with the new version, "
            "or remove it with: headrace cluster drain"
        )
    old = [broker.broker_id for broker in image.brokers.values() if broker.max_level < wanted]
    if old:
        raise FeatureUpdateRefused(
            f"{_named(old)} of a version before {level(wanted).since}, which does not know feature level {wanted}: "
            "upgrade it first"
        )


def _leases(metadata: Metadata, image: ClusterImage) -> list[Compare]:
    return [metadata.unchanged(layout.alive_key(broker_id)) for broker_id in image.brokers]


def _named(brokers: Sequence[int]) -> str:
    ids = ", ".join(map(str, sorted(brokers)))
    return f"broker {ids} is" if len(brokers) == 1 else f"brokers {ids} are"
