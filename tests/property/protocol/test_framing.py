"""However a stream is cut into reads, the frames that come out are the frames that went in."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import ProtocolError
from headrace.protocol.frames import FrameReader
from headrace.runtime.buffers import BufferPool


def receive(reader: FrameReader, stream: bytes, cuts: list[int], scratch_bytes: int = 64) -> list[bytes]:
    """What a connection does with reads of the given sizes."""
    frames: list[bytes] = []
    at = 0
    sizes = iter(cuts)
    while at < len(stream):
        size = max(1, next(sizes, scratch_bytes))
        if reader.wants_window:
            window = reader.window()
            chunk = stream[at : at + min(size, len(window))]
            window[: len(chunk)] = chunk
            frame = reader.advance(len(chunk))
            if frame is not None:
                frames.append(bytes(frame))
                reader.release(frame)
        else:
            chunk = stream[at : at + min(size, scratch_bytes)]
            frames.extend(bytes(frame) for frame in reader.feed(memoryview(chunk)))
        at += len(chunk)
    return frames


@given(st.lists(st.binary(max_size=300), max_size=12), st.lists(st.integers(1, 200), max_size=60))
def test_frames_survive_any_cutting(frames: list[bytes], cuts: list[int]) -> None:
    reader = FrameReader(1000, BufferPool())
    stream = b"".join(pack(">i", len(frame)) + frame for frame in frames)
    assert receive(reader, stream, cuts) == frames
    assert not reader.is_inside_frame


@given(st.binary(max_size=200), st.lists(st.integers(1, 50), max_size=30))
def test_garbage_is_frames_or_a_protocol_error(stream: bytes, cuts: list[int]) -> None:
    reader = FrameReader(100, BufferPool())
    try:
        frames = receive(reader, stream, cuts)
    except ProtocolError:
        return
    assert sum(len(frame) + 4 for frame in frames) <= len(stream)


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_length_out_of_bounds_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError):
        FrameReader(1000, BufferPool()).feed(memoryview(pack(">i", size)))


def test_room_grows_with_what_came_not_with_what_was_announced() -> None:
    reader = FrameReader(100 * 1024 * 1024, BufferPool())
    reader.feed(memoryview(pack(">i", 100 * 1024 * 1024) + b"x"))
    assert reader.needed_bytes <= 64 * 1024


def test_a_large_frame_is_received_in_place() -> None:
    payload = bytes(range(256)) * 4096
    reader = FrameReader(2 * len(payload), BufferPool())
    assert receive(reader, pack(">i", len(payload)) + payload, [70_000] * 100, 1 << 18) == [payload]


def test_a_full_batch_that_fills_the_first_read_is_not_copied_again() -> None:
    taken: list[int] = []

    class Counted(BufferPool):
        def take(self, size: int) -> bytearray:
            taken.append(size)
            return super().take(size)

    size, scratch_bytes = 960 * 1024, 256 * 1024
    reader = FrameReader(2 * size, Counted())
    receive(reader, pack(">i", size) + bytes(size), [scratch_bytes] * 10, scratch_bytes)
    assert taken == [size]
