"""The features of a cluster: their finalized versions, and the versions that each broker supports."""

from types import ModuleType
from typing import Any, NamedTuple

from headrace.model.image import Endpoint
from headrace.protocol.codec import make
from headrace.protocol.units import from_ms
from headrace.wire.connection import WireConnection
from headrace.wire.errors import check
from headrace.wire.router import LeaderRouter

_UPDATE_FEATURES = 57
_UPGRADE = 1
_TIMEOUT_MS = 30_000


class Feature(NamedTuple):
    finalized: int
    """The finalized version of the cluster; 0 if the feature is off."""
    highest: int
    """The highest version that the asked broker supports; 0 if it does not know the feature."""


NO_FEATURE = Feature(0, 0)


def feature(router: LeaderRouter, name: str, address: Endpoint | None = None) -> Feature:
    """A feature as the broker at `address`, or any broker, reports it."""

    def look(connection: WireConnection) -> Feature:
        _, highest = connection.served.supported.get(name, (0, 0))
        return Feature(connection.served.features.get(name, 0), highest)

    if address is None:
        return router.patiently(lambda: router.any_broker(look))
    with router.using(address) as connection:
        return look(connection)


def upgrade_feature(router: LeaderRouter, name: str, version: int) -> None:
    """Raise a feature to a version; `Refused` has the reason if the cluster cannot."""

    def build(schema: ModuleType) -> Any:
        update: Any = make(schema.FeatureUpdateKey, feature=name, max_version_level=version, upgrade_type=_UPGRADE)
        return make(
            schema.UpdateFeaturesRequest,
            timeout=from_ms(_TIMEOUT_MS),
            feature_updates=(update,),
            validate_only=False,
        )

    def attempt() -> None:
        answer = router.any_broker(
            lambda connection: connection.call(_UPDATE_FEATURES, 2, build, lowest=1, wait_s=_TIMEOUT_MS / 1000)
        )
        what = f"raising {name} to {version}"
        check(what, answer.error_code, answer.error_message)
        for result in getattr(answer, "results", ()):
            check(what, result.error_code, result.error_message)

    router.patiently(attempt)
