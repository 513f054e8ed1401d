"""However a stream is cut into reads, each response comes with its request, in order, or is refused."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import ProtocolError
from headrace.protocol.exchange import SentRequest
from headrace.protocol.response_stream import ResponseStream
from headrace.runtime.buffers import BufferPool

METADATA = 3
SCRATCH_BYTES = 64


def stream_of(max_response_bytes: int = 1000) -> ResponseStream[str]:
    return ResponseStream(max_response_bytes, BufferPool(), memoryview(bytearray(SCRATCH_BYTES)))


def begin(stream: ResponseStream[str], correlation_id: int) -> bytes:
    return stream.begin(SentRequest(METADATA, 9, correlation_id), b"request", f"waiter {correlation_id}")


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return pack(">iib", 5 + len(body), correlation_id, 0) + body


def receive(stream: ResponseStream[str], data: bytes, cuts: list[int]) -> list[tuple[str, int, bytes]]:
    """Waiter, correlation id and body of each response, after reads of the given sizes."""
    found = []
    sizes = iter(cuts)
    while data:
        window = stream.window()
        chunk = data[: min(next(sizes, SCRATCH_BYTES), len(window))]
        window[: len(chunk)] = chunk
        data = data[len(chunk) :]
        for waiter, (request, frame, body_at) in stream.received(len(chunk)):
            found.append((waiter, request.correlation_id, bytes(frame[body_at:])))
            stream.release(frame)
    return found


@given(st.lists(st.binary(max_size=300), max_size=12), st.lists(st.integers(1, 200), max_size=60))
def test_each_response_comes_with_its_request(bodies: list[bytes], cuts: list[int]) -> None:
    stream = stream_of()
    for number in range(len(bodies)):
        assert begin(stream, number) == pack(">i", 7) + b"request"
    assert len(stream) == len(bodies)
    data = b"".join(response(number, body) for number, body in enumerate(bodies))
    assert receive(stream, data, cuts) == [(f"waiter {number}", number, body) for number, body in enumerate(bodies)]
    assert len(stream) == 0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (response(2), "request 1 is that to 2"),
        (response(1) + response(2), "a response without a request"),
        (pack(">i", 2) + b"ab", "shorter than its header"),
        (pack(">i", 1001), "a frame of 1001 bytes"),
        (pack(">i", -1), "a frame of -1 bytes"),
        (response(2, bytes(500)), "request 1 is that to 2"),
    ],
    ids=["another id", "one too many", "too short", "too long", "negative", "another id on a large response"],
)
@pytest.mark.parametrize("cut", [1, SCRATCH_BYTES])
def test_a_violation_of_the_protocol_is_refused(data: bytes, reason: str, cut: int) -> None:
    stream = stream_of()
    begin(stream, 1)
    with pytest.raises(ProtocolError, match=reason):
        receive(stream, data, [cut] * len(data))


def test_a_lost_connection_returns_every_waiter_once() -> None:
    stream = stream_of()
    for number in (1, 2, 3):
        begin(stream, number)
    assert receive(stream, response(1), []) == [("waiter 1", 1, b"")]
    assert stream.oldest == (SentRequest(METADATA, 9, 2), "waiter 2")
    assert stream.abandon() == ["waiter 2", "waiter 3"]
    assert stream.abandon() == []
