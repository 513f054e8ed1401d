"""Raising the cluster's feature level: one compare-and-set, once every broker knows the new one.

The transaction compares /cluster and the lease of every broker that was looked at. A broker that registers meanwhile
compares /cluster as well, so none that does not know the new level can come in between. A broker that is away may be of
any version: it has to come back, or to be drained, first.
"""

import logging
from collections.abc import Sequence

from headrace.cluster import layout
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import Compare, Put
from headrace.model.errors import FeatureUpdateRefused, InvalidFeatureLevel
from headrace.model.features import FIRST_LEVEL, LATEST_LEVEL, level
from headrace.model.image import ClusterImage

log = logging.getLogger(__name__)


async def raise_level(metadata: Metadata, wanted: int, *, validate_only: bool = False) -> None:
    """Returns when the level is `wanted`. `InvalidFeatureLevel` and `FeatureUpdateRefused` say why it cannot be."""

    async def attempt() -> None:
        image = metadata.image
        _check(image, wanted)
        if not metadata.is_alone:
            _check_brokers(image, wanted)
        if validate_only or wanted == image.feature_level:
            return
        compares = [metadata.unchanged(layout.CLUSTER)]
        if not metadata.is_alone:
            compares += _leases(metadata, image)
        await metadata.commit(compares, [Put(layout.CLUSTER, layout.encode_cluster(image.cluster_id, wanted))])
        log.info("the cluster's feature level is %d now, it was %d", wanted, image.feature_level)

    await metadata.decide(attempt)


def _check(image: ClusterImage, wanted: int) -> None:
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
