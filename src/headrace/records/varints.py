"""Reads and writes zigzag-encoded varints at a whole array of positions, with numpy.

Nothing is read outside the buffer: a position beyond it reads as the nearest byte, and the caller, which checks every
position against the bounds of its record afterwards, discards such a number.
"""

import numpy as np
import numpy.typing as npt

from headrace.model.errors import InvalidRecord
from headrace.runtime.varint import INT32_BYTES as INT32_BYTES
from headrace.runtime.varint import INT64_BYTES as INT64_BYTES

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

_NONE = np.empty(0, np.int64)


def read_varints(data: Bytes, places: Integers, max_bytes: int = INT32_BYTES) -> tuple[Integers, Integers]:
    """The numbers at `places` and their end positions; `InvalidRecord` if one is longer than its type allows."""
    numbers, after, wrong = try_varints(data, places, max_bytes)
    if len(wrong):
        raise InvalidRecord(f"a record has a number that is longer than {max_bytes} bytes or does not fit its type")
    return numbers, after


def try_varints(data: Bytes, places: Integers, max_bytes: int = INT32_BYTES) -> tuple[Integers, Integers, Integers]:
    """Like `read_varints`, but returns the indexes of varints that are too long, whose numbers are undefined."""
    first = data.take(places, mode="clip")
    after = places + 1
    if not (first & 0x80).any():
        value = first.astype(np.int64)
        return (value >> 1) ^ -(value & 1), after, _NONE
    value = (first & 0x7F).astype(np.int64)
    longer = first >= 0x80
    # None stands for all rows, while all varints continue.
    rows = None if longer.all() else np.flatnonzero(longer)
    wrong = _NONE
    for shift in range(7, 7 * max_bytes, 7):
        at = after if rows is None else after[rows]
        byte = data.take(at, mode="clip")
        bits = (byte & 0x7F).astype(np.int64) << shift
        longer = byte >= 0x80
        if rows is None:
            value |= bits
            after += 1
            if shift == 63:
                wrong = np.flatnonzero(byte > 1)
            if longer.all():
                continue
            rows = np.flatnonzero(longer)
        else:
            value[rows] |= bits
            after[rows] = at + 1
            if shift == 63:
                wrong = rows[byte > 1]
            rows = rows[longer]
        if not len(rows):
            break
    else:
        wrong = np.arange(len(places)) if rows is None else np.union1d(rows, wrong)
    if max_bytes == INT32_BYTES:
        wrong = np.union1d(wrong, np.flatnonzero(value >> 32)) if (value >> 32).any() else wrong
    # The shift must be logical: a 64-bit number may have its highest bit set.
    return (value.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(value & 1), after, wrong


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
