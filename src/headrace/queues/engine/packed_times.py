"""The times of one chunk's messages, packed into two to four bytes each, in order. Pure.

Times are counted in steps of `STEP_MS`, rounded up: none is early, and none later by more than a step. Each takes 12
bits for the message's number in the chunk, and the others for the steps since the previous one: of four bytes that is
up to 18 hours, of three 4 minutes. A longer gap takes another item. Neighbours with the same time share an item, for
two bytes more, where that is shorter. A chunk has the shortest items for its times: three bytes
if they are within days.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import pairwise
from struct import pack, unpack

from headrace.queues.engine.stored import CHUNK, CHUNK_BITS, ITEM_BYTES, WIDE_ITEM_BYTES, TimesValue

_STEP_BITS = 6
STEP_MS = 1 << _STEP_BITS
_LAST_STEP = 1 << 39
"""A thousand years: later times are cut to it."""
_IN_CHUNK = CHUNK - 1
_LENGTH_BYTES = 2

Span = tuple[int, int, int]
"""A step, and the first and last of the messages that have it."""


def step_of(time_ms: int) -> int:
    return min(max(0, -(-time_ms >> _STEP_BITS)), _LAST_STEP)


def time_of(step: int) -> int:
    return step << _STEP_BITS


def _far(item_bytes: int) -> int:
    """The steps that mark an item as a part of a longer gap: one more than an item has otherwise."""
    return (1 << 8 * item_bytes - CHUNK_BITS) - 1


def packed(spans: Iterable[Span], *, may_be_narrow: bool = True) -> TimesValue:
    """Pack the times of messages, which are given by their numbers in the chunk; in four bytes each, unless they
    `may_be_narrow`."""
    ordered = sorted(spans)
    if not ordered:
        return TimesValue()
    count = sum(last - first + 1 for _, first, last in ordered)
    item_bytes = _shortest(ordered) if may_be_narrow else WIDE_ITEM_BYTES
    has_lengths = len(ordered) * (item_bytes + _LENGTH_BYTES) < count * item_bytes
    if not has_lengths and len(ordered) < count:
        ordered = [(step, number, number) for step, first, last in ordered for number in range(first, last + 1)]
    far = _far(item_bytes)
    times: list[int] = []
    lengths: list[int] = []
    at = ordered[0][0]
    for step, first, last in ordered:
        ahead = step - at
        while ahead >= far:
            leap = min(ahead // far, CHUNK)
            times.append(far << CHUNK_BITS | leap - 1)
            lengths.append(0)
            ahead -= leap * far
        times.append(ahead << CHUNK_BITS | first)
        lengths.append(last - first)
        at = step
    return TimesValue(
        ordered[0][0],
        memoryview(_joined(times, item_bytes)),
        memoryview(pack(f"<{len(lengths)}H", *lengths) if has_lengths else b""),
        item_bytes,
    )


def _shortest(ordered: list[Span]) -> int:
    """The size of items with which these times take the fewest bytes, the largest of those."""
    gaps = sorted(after[0] - before[0] for before, after in pairwise(ordered))

    def cost(item_bytes: int) -> int:
        far = _far(item_bytes)
        long = gaps[bisect_left(gaps, far) :]
        return item_bytes * (len(ordered) + sum([-(-(gap // far) // CHUNK) for gap in long]))

    return min(reversed(ITEM_BYTES), key=cost)


def _joined(times: list[int], item_bytes: int) -> bytes:
    wide = bytearray(pack(f"<{len(times)}I", *times))
    for dropped in range(WIDE_ITEM_BYTES, item_bytes, -1):
        del wide[dropped - 1 :: dropped]
    return bytes(wide)


def _split(data: memoryview, item_bytes: int) -> tuple[int, ...]:
    count = len(data) // item_bytes
    wide = bytearray(count * WIDE_ITEM_BYTES)
    for place in range(item_bytes):
        wide[place::WIDE_ITEM_BYTES] = data[place::item_bytes]
    return unpack(f"<{count}I", wide)


def spans_of(times: TimesValue, base: int = 0) -> Iterator[Span]:
    """The spans by time; messages by offset, if the chunk begins at `base`."""
    if times.lengths:
        return _long_spans(times, base)
    return _short_spans(times.start, times.times, times.item_bytes, base)


def _short_spans(step: int, data: memoryview, item_bytes: int, base: int) -> Iterator[Span]:
    """Reads one item after another: thousands of chunks are read at the same time, in the order of all times."""
    far = _far(item_bytes)
    for at in range(0, len(data), item_bytes):
        time = int.from_bytes(data[at : at + item_bytes], "little")
        ahead = time >> CHUNK_BITS
        if ahead == far:
            step += ((time & _IN_CHUNK) + 1) * far
        else:
            step += ahead
            offset = base + (time & _IN_CHUNK)
            yield step, offset, offset


def _long_spans(times: TimesValue, base: int) -> Iterator[Span]:
    step, far = times.start, _far(times.item_bytes)
    lengths = unpack(f"<{len(times.lengths) // _LENGTH_BYTES}H", times.lengths)
    for time, length in zip(_split(times.times, times.item_bytes), lengths, strict=False):
        ahead, number = time >> CHUNK_BITS, time & _IN_CHUNK
        if ahead == far:
            step += (number + 1) * far
        else:
            step += ahead
            first = base + number
            yield step, first, first + length


def offsets_of(times: TimesValue, base: int) -> list[int]:
    """The messages that have a time: faster than `spans_of`."""
    if times.lengths:
        return [offset for _, first, last in spans_of(times, base) for offset in range(first, last + 1)]
    far = _far(times.item_bytes)
    return [base + (time & _IN_CHUNK) for time in _split(times.times, times.item_bytes) if time >> CHUNK_BITS != far]
