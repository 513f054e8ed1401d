"""ApiVersions (18), versions 0-4: what this broker serves, derived from the registered handlers.

- A version that is not served is answered with a v0 body, error UNSUPPORTED_VERSION and the range of this API itself,
  so that the client can ask again; the connection stays open.
- From v3 on the client names its software; a name or version outside `[a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?`
  is INVALID_REQUEST.
- Features: `transaction.version` 2 is finalized, by which clients know that a transaction may be written to without
  naming its partitions first, and that each has an epoch of its own (KIP-890). `share.version` 1 is: there are share
  groups (KIP-932).
- Envelope is told only to those who say that they are brokers: it is how brokers call each other, and of no use to
  anybody else.
- The response header is v0 in every version (see `protocol/codec.py`).
"""

import re
from struct import Struct
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import APIS, Answer, Context, handles
from headrace.protocol.codec import API_VERSIONS_KEY, make
from headrace.protocol.units import NO_THROTTLE
from headrace.replication.peers import BROKER_SOFTWARE

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_MAX_LENGTH = 128
_FEATURES_FROM = 3
_FEATURES = {"share.version": 1, "transaction.version": 2}
_BETWEEN_BROKERS = frozenset({58})
_UNSUPPORTED = Struct(">ihihhh")


@handles(API_VERSIONS_KEY, 0, 4)
def api_versions(ctx: Context, request: Any) -> Answer:
    name = getattr(request, "client_software_name", "unknown")
    software_version = getattr(request, "client_software_version", "unknown")
    error = ErrorCode.none if _is_software(name) and _is_software(software_version) else ErrorCode.invalid_request
    if error is ErrorCode.none:
        ctx.peer.client_software = f"{name} {software_version}"
    schema = ctx.schema
    keys = tuple(
        schema.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        for api in sorted(APIS.values(), key=lambda api: api.key)
        if api.key not in _BETWEEN_BROKERS or name == BROKER_SOFTWARE
    )
    return make(
        schema.ApiVersionsResponse,
        error_code=error,
        api_keys=keys if error is ErrorCode.none else (),
        throttle_time=NO_THROTTLE,
        supported_features=tuple(
            make(schema.SupportedFeatureKey, name=name, min_version=0, max_version=level)
            for name, level in _FEATURES.items()
        )
        if ctx.version >= _FEATURES_FROM
        else (),
        finalized_features_epoch=0,
        finalized_features=tuple(
            make(schema.FinalizedFeatureKey, name=name, min_version_level=level, max_version_level=level)
            for name, level in _FEATURES.items()
        )
        if ctx.version >= _FEATURES_FROM
        else (),
    )


def unsupported_version_answer(correlation_id: int) -> bytes:
    """Header and v0 body for a version of ApiVersions that is not served."""
    own = APIS[API_VERSIONS_KEY]
    return _UNSUPPORTED.pack(
        correlation_id, ErrorCode.unsupported_version.value, 1, own.key, own.min_version, own.max_version
    )


def _is_software(text: str) -> bool:
    return len(text) <= _SOFTWARE_MAX_LENGTH and _SOFTWARE.fullmatch(text) is not None
