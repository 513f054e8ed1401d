"""Zigzag-coded integers, many at a time: read at, or written to, a whole array of places with numpy.

Nothing is read outside the buffer: a place that lies beyond it reads as the nearest byte, and the caller, who checks
every place against the bounds of its record afterwards, throws such a number away.
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
    """The numbers at `places` and the places behind them; `InvalidRecord` if one is longer than its type allows."""
    numbers, after, wrong = try_varints(data, places, max_bytes)
    if len(wrong):
        raise InvalidRecord(f"a record has a number that is longer than {max_bytes} bytes or does not fit its type")
    return numbers, after


def try_varints(data: Bytes, places: Integers, max_bytes: int = INT32_BYTES) -> tuple[Integers, Integers, Integers]:
    """The same, but what is longer than its type allows is told, by index, and its number means nothing."""
    first = data.take(places, mode="clip")
    after = places + 1
    if not (first & 0x80).any():
        value = first.astype(np.int64)
        return (value >> 1) ^ -(value & 1), after, _NONE
    value = (first & 0x7F).astype(np.int64)
    longer = first >= 0x80
    # None stands for all of them, as long as all go on.
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
    # The shift must bring in zeros: a number of 64 bits has its uppermost one set.
    return (value.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(value & 1), after, wrong


def zigzag(numbers: Integers) -> npt.NDArray[np.uint64]:
    """The numbers as they are written, seven bits to a byte."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def varint_sizes(coded: npt.NDArray[np.uint64]) -> Integers:
    """The bytes that each of these takes."""
    sizes = np.ones(len(coded), np.int64)
    for shift in range(7, 70, 7):
        longer = coded >= np.uint64(1 << shift)
        if not longer.any():
            break
        sizes += longer
    return sizes


def write_varints(data: Bytes, places: Integers, coded: npt.NDArray[np.uint64], sizes: Integers) -> None:
    """Write the numbers of these sizes to these places, which have room for them."""
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
