"""UpdateFeatures (57), versions 0-2: raise the cluster's feature level, as `headrace cluster upgrade` does.

- `headrace.version` is the level. It is raised once every broker of the cluster is there and knows the new level; else
  FEATURE_UPDATE_FAILED names the broker. It is never lowered: FEATURE_UPDATE_FAILED, whatever kind of downgrade is
  asked for.
- Kafka's own names (`transaction.version`, `share.version`) follow from the level. Asking for what they are succeeds;
  anything else is FEATURE_UPDATE_FAILED. A name or a level that this broker does not know is INVALID_UPDATE_VERSION.
- All updates of a request are made, or none. With `validate_only` (v1) nothing is changed.
- v0 and v1 answer for each feature; v2 has one error for all.

Any broker answers. The new level is durable, and in force on this broker, when the answer leaves.
"""

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.cluster.feature_level import raise_level
from headrace.cluster.metadata import Metadata
from headrace.kafka.dispatch import Answer, Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.model.errors import FeatureUpdateRefused, HeadraceError, InvalidFeatureLevel
from headrace.model.features import FEATURE, LEVELS, level
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

KEY = 57
_ONE_ERROR_FROM = 2


@handles(KEY, 0, 2)
async def update_features(ctx: Context, request: Any) -> Answer:
    wanted = {update.feature: update.max_version_level for update in request.feature_updates}
    failure: HeadraceError | None = None
    try:
        await _update(ctx.services.metadata, wanted, validate_only=getattr(request, "validate_only", False))
    except HeadraceError as error:
        failure = error
    return _answer(ctx, tuple(wanted), failure)


async def _update(metadata: Metadata, wanted: Mapping[str, int], *, validate_only: bool) -> None:
    new_level = wanted.get(FEATURE, metadata.image.feature_level)
    for name, version in wanted.items():
        if name != FEATURE:
            _check_kafka_feature(name, version, new_level)
    if FEATURE in wanted:
        await raise_level(metadata, new_level, validate_only=validate_only)


def _check_kafka_feature(name: str, version: int, new_level: int) -> None:
    if not any(name in each.kafka_features for each in LEVELS):
        raise InvalidFeatureLevel(f"this broker does not know the feature {name}")
    if new_level in (each.number for each in LEVELS) and level(new_level).kafka_features.get(name, 0) != version:
        raise FeatureUpdateRefused(
            f"{name} is {level(new_level).kafka_features.get(name, 0)} at {FEATURE} {new_level}, and follows from it"
        )


def _answer(ctx: Context, features: tuple[str, ...], failure: HeadraceError | None) -> Answer:
    schema = ctx.schema
    code = ErrorCode.none if failure is None else error_code(failure)
    message = None if failure is None else error_message(failure)
    if ctx.version >= _ONE_ERROR_FROM:
        return make(schema.UpdateFeaturesResponse, throttle_time=NO_THROTTLE, error_code=code, error_message=message)
    return make(
        schema.UpdateFeaturesResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        results=tuple(
            make(schema.UpdatableFeatureResult, feature=name, error_code=code, error_message=message)
            for name in features
        ),
    )
