"""Requests and responses of a client, sans-IO: correlation ids, and version negotiation.

The blocking client (`wire/connection.py`) and the links between brokers (`replication/peers.py`) share it. Both read
responses through `response_stream.py`. A violation of the protocol is a `ProtocolError` here.
"""

import itertools
from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.model.errors import ProtocolError
from headrace.protocol.client_codec import read_response, read_response_header, request_schema, write_request
from headrace.protocol.codec import API_VERSIONS_KEY, make
from headrace.protocol.frames import Frame

_LAST_CORRELATION_ID = 0x7FFF_FFFF
_CODE = Struct(">h")
_FEATURES_FROM = 3
NEWEST_API_VERSIONS = 4

WriteFrame = Callable[[int], bytes]
"""Encodes a request with its header, without the frame length, for a correlation id."""
VersionRange = tuple[int, int]
"""The lowest and the highest version."""


class SentRequest(NamedTuple):
    key: int
    version: int
    correlation_id: int

    def body_at(self, frame: Frame) -> int:
        """The position of the response body in `frame`; `ProtocolError` unless it answers this request."""
        correlation_id, body_at = read_response_header(self.key, self.version, frame)
        if correlation_id != self.correlation_id:
            raise ProtocolError(f"the answer to request {self.correlation_id} is that to {correlation_id}")
        return body_at

    def answered_by(self, frame: memoryview) -> "ResponseFrame":
        """The response in `frame`; `ProtocolError` unless it answers this request."""
        return ResponseFrame(self, frame, self.body_at(frame))


class ResponseFrame(NamedTuple):
    """A response as received, not decoded yet."""

    request: SentRequest
    frame: memoryview
    """Header and body, without the length."""
    body_at: int

    @property
    def version(self) -> int:
        return self.request.version

    def read(self) -> Any:
        """The response as a kio entity."""
        return read_response(self.request.key, self.request.version, self.frame, self.body_at)


class Correlator:
    """Gives correlation ids to the requests of one client."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self._correlation_ids = itertools.count(1)

    def begin(self, key: int, version: int, write: WriteFrame) -> tuple[SentRequest, bytes]:
        """Encode a request by `write`. Returns it with its frame."""
        correlation_id = next(self._correlation_ids) & _LAST_CORRELATION_ID
        return SentRequest(key, version, correlation_id), write(correlation_id)

    def writer(self, request: Any) -> WriteFrame:
        """The encoder of a kio request entity."""
        return lambda correlation_id: write_request(request, correlation_id, self.client_id)


# -- version negotiation


class ServedApis(NamedTuple):
    """The ApiVersions response of a broker."""

    error_code: ErrorCode
    versions: Mapping[int, VersionRange]
    features: Mapping[str, int]
    """The finalized level of each feature."""
    supported: Mapping[str, VersionRange]

    def serves(self, key: int, version: int) -> bool:
        return self.best_version(key, version, version) is not None

    def best_version(self, key: int, highest: int, lowest: int = 0) -> int | None:
        """The highest version from `lowest` to `highest` that the broker serves."""
        broker_lowest, broker_highest = self.versions.get(key, (0, -1))
        best = min(broker_highest, highest)
        return best if best >= max(broker_lowest, lowest) else None


def api_versions_request(version: int, software: str) -> Any:
    schema = request_schema(API_VERSIONS_KEY, version)
    return make(schema.ApiVersionsRequest, client_software_name=software, client_software_version="1")


def lower_api_versions(version: int) -> int | None:
    """The version of ApiVersions to try after one that the broker does not support."""
    if version == 0:
        return None
    return _FEATURES_FROM if version > _FEATURES_FROM else 0


def is_unknown_version(frame: Frame, body_at: int) -> bool:
    """True if the broker does not support this version of ApiVersions: it then answers in the layout of version 0."""
    try:
        return bool(_CODE.unpack_from(frame, body_at)[0] == ErrorCode.unsupported_version.value)
    except StructError:
        raise ProtocolError("the answer to ApiVersions ends before its error code") from None


def read_served_apis(version: int, frame: Frame, body_at: int) -> ServedApis:
    found = read_response(API_VERSIONS_KEY, version, frame, body_at)
    finalized = getattr(found, "finalized_features", ())
    supported = getattr(found, "supported_features", ())
    return ServedApis(
        found.error_code,
        {api.api_key: (api.min_version, api.max_version) for api in found.api_keys},
        {feature.name: feature.max_version_level for feature in finalized},
        {feature.name: (feature.min_version, feature.max_version) for feature in supported},
    )
