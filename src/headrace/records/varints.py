"""Reads and writes varints, zigzag-encoded or unsigned, at a whole array of positions, with numpy.

Nothing is read outside the buffer: a position beyond it reads as the nearest byte, and the caller, which checks every
position against the bounds of its record afterwards, discards such a number.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.model.errors import InvalidRecord
from headrace.runtime.varint import INT32_BYTES as INT32_BYTES
from headrace.runtime.varint import INT64_BYTES as INT64_BYTES

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

_NONE = np.empty(0, np.int64)
_WORD_BYTES = 8
_TOP_BITS = np.uint64(0x8080_8080_8080_8080)
_HALVES = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F_007F_007F_007F, 0x7F00_7F00_7F00_7F00, 1),
        (0x0000_3FFF_0000_3FFF, 0x3FFF_0000_3FFF_0000, 2),
        (0x0000_0000_0FFF_FFFF, 0x0FFF_FFFF_0000_0000, 4),
    )
)
"""Masks that join groups of seven bits to ones of 14, 28 and 56."""


def read_varints(data: Bytes, places: Integers, max_bytes: int = INT32_BYTES) -> tuple[Integers, Integers]:
    """The numbers at `places` and their end positions; `InvalidRecord` if one is longer than its type allows."""
    numbers, after, wrong = try_varints(data, places, max_bytes)
    if len(wrong):
        raise InvalidRecord(f"a record has a number that is longer than {max_bytes} bytes or does not fit its type")
    return numbers, after


def try_varints(data: Bytes, places: Integers, max_bytes: int = INT32_BYTES) -> tuple[Integers, Integers, Integers]:
    """Like `read_varints`, but returns the indexes of varints that are too long, whose numbers are undefined."""
    value, after, wrong = try_uvarints(data, places, max_bytes)
    if max_bytes == INT32_BYTES:
        wrong = np.union1d(wrong, np.flatnonzero(value >> 32)) if (value >> 32).any() else wrong
    # The shift must be logical: a 64-bit number may have its highest bit set.
    return (value.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(value & 1), after, wrong


def try_uvarints(data: Bytes, places: Integers, max_bytes: int = INT32_BYTES) -> tuple[Integers, Integers, Integers]:
    """The unsigned numbers at `places`, their end positions, and the indexes of those that are too long.

    A number with the highest of 64 bits is negative here.
    """
    first = data.take(places, mode="clip")
    longer = first >= 0x80
    if not longer.any():
        return first.astype(np.int64), places + 1, _NONE
    if longer.all():
        value, sizes = _long_uvarints(data, places)
    else:
        value, sizes = first.astype(np.int64), np.ones(len(places), np.int64)
        rows = np.flatnonzero(longer)
        value[rows], sizes[rows] = _long_uvarints(data, places[rows])
    wrong = sizes > max_bytes
    return value, places + sizes, np.flatnonzero(wrong) if wrong.any() else _NONE


def words_at(data: Bytes, places: Integers, kind: str) -> npt.NDArray[Any]:
    """The numbers of a fixed size at `places`, such as `<u8`; undefined where the buffer ends before."""
    size = np.dtype(kind).itemsize
    if len(data) < size:
        return np.zeros(len(places), kind)
    every = np.ndarray((len(data) - size + 1,), kind, data, strides=(1,))
    return every[np.clip(places, 0, len(data) - size)]


def _long_uvarints(data: Bytes, places: Integers) -> tuple[Integers, Integers]:
    """Numbers of several bytes and their sizes, 11 for those that are too long: eight bytes at once, then the rest."""
    if len(data) < _WORD_BYTES:
        data = np.concatenate([data, np.zeros(_WORD_BYTES, np.uint8)])
    words = words_at(data, places, "<u8")
    beyond = places - (len(data) - _WORD_BYTES)
    if len(beyond) and beyond.max() > 0:
        words >>= (np.clip(beyond, 0, _WORD_BYTES - 1) * 8).astype(np.uint64)
    ends = ~words & _TOP_BITS
    last = ends & (~ends + np.uint64(1))
    within = last ^ (last - np.uint64(1))
    bits = words & within & ~_TOP_BITS
    for low, high, shift in _HALVES:
        bits = (bits & low) | ((bits & high) >> shift)
    value, sizes = bits.view(np.int64), np.bitwise_count(within).astype(np.int64) >> 3
    if (more := np.flatnonzero(ends == 0)).size:
        ninth, tenth = (data.take(places[more] + at, mode="clip").astype(np.int64) for at in (8, 9))
        value[more] |= (ninth & 0x7F) << 56
        value[more] |= np.where(ninth >= 0x80, tenth << 63, 0)
        sizes[more] = np.where(ninth < 0x80, 9, np.where(tenth <= 1, 10, 11))
    return value, sizes


def zigzag(numbers: Integers) -> npt.NDArray[np.uint64]:
    """The numbers in zigzag encoding, before they are split into seven bits per byte."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def varint_sizes(coded: npt.NDArray[np.uint64]) -> Integers:
    """The encoded size of each number."""
    sizes = np.ones(len(coded), np.int64)
    for shift in range(7, 70, 7):
        longer = coded >= np.uint64(1 << shift)
        if not longer.any():
            break
        sizes += longer
    return sizes


def write_varints(data: Bytes, places: Integers, coded: npt.NDArray[np.uint64], sizes: Integers) -> None:
    """Write numbers of these sizes at these positions; the buffer must have room for them."""
    rest, at, left = coded, places, sizes
    while len(rest):
        byte = (rest & np.uint64(0x7F)).astype(np.uint8)
        goes_on = left > 1
        byte |= goes_on.astype(np.uint8) << 7
        data[at] = byte
        if goes_on.all():
            rest, at, left = rest >> np.uint64(7), at + 1, left - 1
        else:
            rest, at, left = rest[goes_on] >> np.uint64(7), at[goes_on] + 1, left[goes_on] - 1
