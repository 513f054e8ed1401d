"""ApiVersions (18), versions 0-4: the APIs and versions that this broker serves, from the registered handlers.

- A version that is not served is answered with a v0 body, error UNSUPPORTED_VERSION and the range of this API itself,
  so that the client can ask again; the connection stays open.
- From v3 on the client names its software; a name or version outside `[a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?`
  is INVALID_REQUEST.
- Features: the finalized ones follow from the cluster's feature level (`model/features.py`), which is shown as
  `headrace.version`, and from UpdateFeatures. `transaction.version` 2 means that a transaction may write to partitions
  without adding them first, and that each transaction has its own epoch (KIP-890); `share.version` 1 that share groups
  are supported (KIP-932), 2 also their dead-letter topics (KIP-1191); `streams.version` 1 that streams groups are
  supported (KIP-1071).
- A feature that may be off (minimum 0) is left out of the supported ones below v4: Java clients 3.3 to 3.7 refuse to
  connect to a broker that lists one (KAFKA-17492).
- Envelope is listed only for clients that identify as brokers or as links: it carries calls between brokers, and other
  clients have no use for it.
- The response header is v0 in every version (see `protocol/codec.py`).
"""

import re
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import APIS, Context, handles
from headrace.kafka.permissions import NOTHING
from headrace.model.features import FEATURE, FIRST_LEVEL, LATEST_LEVEL, finalized, level
from headrace.protocol.codec import API_VERSIONS_KEY, make
from headrace.protocol.units import NO_THROTTLE
from headrace.replication.peers import BROKER_SOFTWARE, CLIENT_SOFTWARE

if TYPE_CHECKING:
    from kio.schema.api_versions.v4.request import ApiVersionsRequest
    from kio.schema.api_versions.v4.response import ApiVersionsResponse

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_MAX_LENGTH = 128
_FEATURES_FROM = 3
_MINIMUM_ZERO_FROM = 4
_BETWEEN_BROKERS = frozenset({58})
_CALLERS = (BROKER_SOFTWARE, CLIENT_SOFTWARE)
_UNSUPPORTED = Struct(">ihihhh")


@handles(API_VERSIONS_KEY, 0, 4, needs=NOTHING)
def api_versions(ctx: Context, request: "ApiVersionsRequest") -> "ApiVersionsResponse":
    name = getattr(request, "client_software_name", "unknown")
    software_version = getattr(request, "client_software_version", "unknown")
    error = ErrorCode.none if _is_software(name) and _is_software(software_version) else ErrorCode.invalid_request
    if error is ErrorCode.none:
        ctx.peer.set_software(f"{name} {software_version}")
    schema, image = ctx.schema, ctx.services.metadata.image
    keys = tuple(
        schema.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        for api in sorted(APIS.values(), key=lambda api: api.key)
        if api.key not in _BETWEEN_BROKERS or name in _CALLERS
    )
    return make(
        schema.ApiVersionsResponse,
        error_code=error,
        api_keys=keys if error is ErrorCode.none else (),
        throttle_time=NO_THROTTLE,
        supported_features=tuple(
            make(schema.SupportedFeatureKey, name=name, min_version=lowest, max_version=highest)
            for name, lowest, highest in _SUPPORTED
            if ctx.version >= _FEATURES_FROM and (lowest > 0 or ctx.version >= _MINIMUM_ZERO_FROM)
        ),
        finalized_features_epoch=image.features_revision,
        finalized_features=tuple(
            make(schema.FinalizedFeatureKey, name=name, min_version_level=version, max_version_level=version)
            for name, version in finalized(image.feature_level, image.chosen_features).items()
            if ctx.version >= _FEATURES_FROM
        ),
    )


def _supported() -> Iterator[tuple[str, int, int]]:
    """Yield each feature with the lowest and the highest version that this broker supports."""
    yield FEATURE, FIRST_LEVEL, LATEST_LEVEL
    for name, version in level(LATEST_LEVEL).kafka_features.items():
        yield name, 0, version


_SUPPORTED = tuple(_supported())


def unsupported_version_answer(correlation_id: int) -> bytes:
    """Encode header and v0 body of the answer to a version of ApiVersions that is not served."""
    own = APIS[API_VERSIONS_KEY]
    return _UNSUPPORTED.pack(
        correlation_id, ErrorCode.unsupported_version.value, 1, own.key, own.min_version, own.max_version
    )


def _is_software(text: str) -> bool:
    return len(text) <= _SOFTWARE_MAX_LENGTH and _SOFTWARE.fullmatch(text) is not None
