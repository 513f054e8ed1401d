"""The client's side of a connection: which frame answers which request, and which version both sides have."""

from struct import pack

import pytest
from kio.schema.errors import ErrorCode

from headrace.model.errors import ProtocolError
from headrace.protocol.codec import API_VERSIONS_KEY, peek_api
from headrace.protocol.exchange import (
    NEWEST_API_VERSIONS,
    Correlator,
    SentRequest,
    ServedApis,
    api_versions_request,
    is_unknown_version,
    lower_api_versions,
    read_served_apis,
)

METADATA = 3


def test_each_request_has_its_own_correlation_id() -> None:
    correlator = Correlator("client")
    write = correlator.writer(api_versions_request(3, "tests"))
    sent = [correlator.begin(API_VERSIONS_KEY, 3, write) for _ in range(3)]
    assert [request.correlation_id for request, _ in sent] == [1, 2, 3]
    assert [peek_api(frame) for _, frame in sent] == [(API_VERSIONS_KEY, 3, number) for number in (1, 2, 3)]


def test_an_answer_belongs_to_the_request_of_its_correlation_id() -> None:
    request = SentRequest(METADATA, 9, 7)
    assert request.body_at(pack(">ib", 7, 0)) == 5
    with pytest.raises(ProtocolError, match="request 7 is that to 8"):
        request.body_at(pack(">ib", 8, 0))
    with pytest.raises(ProtocolError, match="shorter than its header"):
        request.body_at(b"\x00\x00")


@pytest.mark.parametrize(
    ("highest", "lowest", "best"), [(9, 0, 7), (5, 0, 5), (2, 0, None), (9, 8, None), (3, 3, 3), (7, 7, 7)]
)
def test_the_best_version_is_the_highest_that_both_sides_have(highest: int, lowest: int, best: int | None) -> None:
    served = ServedApis(ErrorCode.none, {METADATA: (3, 7)}, {}, {})
    assert served.best_version(METADATA, highest, lowest) == best
    assert served.best_version(METADATA + 1, highest, lowest) is None


def test_a_version_is_served_or_not() -> None:
    served = ServedApis(ErrorCode.none, {METADATA: (3, 7)}, {}, {})
    assert [version for version in range(10) if served.serves(METADATA, version)] == [3, 4, 5, 6, 7]


def test_api_versions_is_tried_down_to_version_0() -> None:
    version, tried = NEWEST_API_VERSIONS, [NEWEST_API_VERSIONS]
    while (lower := lower_api_versions(version)) is not None:
        version = lower
        tried.append(version)
    assert tried == [4, 3, 0]


def test_a_broker_that_does_not_know_the_version() -> None:
    assert is_unknown_version(pack(">ihi", 1, ErrorCode.unsupported_version.value, 0), 4)
    assert not is_unknown_version(pack(">ihi", 1, 0, 0), 4)
    with pytest.raises(ProtocolError, match="ends before its error code"):
        is_unknown_version(pack(">i", 1), 4)


def test_version_0_tells_no_features() -> None:
    served = read_served_apis(0, pack(">ihihhh", 1, 0, 1, METADATA, 3, 7), 4)
    assert served == ServedApis(ErrorCode.none, {METADATA: (3, 7)}, {}, {})
