"""UpdateFeatures (57), versions 0-2: raise the cluster's feature level, as `headrace cluster upgrade` does.

- `headrace.version` is the level. It is raised if every broker of the cluster is alive and supports the new level; else
  FEATURE_UPDATE_FAILED names the broker. It is never lowered: FEATURE_UPDATE_FAILED for any kind of downgrade.
- `transaction.version` may be 0, 1 or 2: clients choose their protocol by it, and the broker serves each. It is lowered
  only by a downgrade, of either kind. Kafka's other features follow from the level: a request for the current version
  succeeds, any other is FEATURE_UPDATE_FAILED.
- A name or a version that this broker does not know is INVALID_UPDATE_VERSION.
- All updates of a request are made, or none. With `validate_only` (v1) nothing is changed.
- Permissions: ALTER on the cluster, else CLUSTER_AUTHORIZATION_FAILED for the request.
- v0 and v1 answer for each feature; v2 has one error for all.

Any broker answers. The features are durable, and in effect on this broker, when the answer is sent.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.cluster import feature_level
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import ALTER_CLUSTER, not_authorized
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
    from kio.schema.update_features.v2.response import UpdateFeaturesResponse

KEY = 57
_UPGRADE = 1
_ONE_ERROR_FROM = 2


@handles(KEY, 0, 2, needs=(ALTER_CLUSTER,))
async def update_features(ctx: Context, request: "UpdateFeaturesRequest") -> "UpdateFeaturesResponse":
    if not ctx.allows(ALTER_CLUSTER):
        denied = not_authorized(ALTER_CLUSTER)
        return make(
            ctx.schema.UpdateFeaturesResponse,
            throttle_time=NO_THROTTLE,
            error_code=error_code(denied),
            error_message=error_message(denied),
            results=(),
        )
    wanted = {update.feature: update.max_version_level for update in request.feature_updates}
    failure: HeadraceError | None = None
    try:
        await feature_level.update_features(
            ctx.services.metadata,
            wanted,
            may_lower={update.feature for update in request.feature_updates if _is_downgrade(update)},
            validate_only=getattr(request, "validate_only", False),
        )
    except HeadraceError as error:
        failure = error
    return _answer(ctx, tuple(wanted), failure)


def _is_downgrade(update: "FeatureUpdateKey") -> bool:
    """Whether the update is a downgrade: by a flag in version 0, by the upgrade type in later ones."""
    return bool(getattr(update, "allow_downgrade", False)) or getattr(update, "upgrade_type", _UPGRADE) > _UPGRADE


def _answer(ctx: Context, features: tuple[str, ...], failure: HeadraceError | None) -> "UpdateFeaturesResponse":
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
