"""The times of one chunk's messages, packed into four bytes each, in order. Pure.

Times are counted in steps of `STEP_MS`, rounded up: none is early, and none later by more than a step. Each takes 20
bits for the steps since the previous one (up to 18 hours) and 12 for the message's number in the chunk; a longer gap
takes another four bytes. Neighbours with the same time share an item, for two bytes more, where that is shorter.
"""

from collections.abc import Iterable, Iterator
from itertools import repeat
from struct import Struct, pack, unpack

from headrace.queues.engine.stored import CHUNK, CHUNK_BITS, TimesValue

_STEP_BITS = 6
STEP_MS = 1 << _STEP_BITS
_LAST_STEP = 1 << 39
"""A thousand years: later times are cut to it."""
_IN_CHUNK = CHUNK - 1
_FAR = (1 << 20) - 1
_TIME = Struct("<I")
_LENGTH = Struct("<H")

Span = tuple[int, int, int]
"""A step, and the first and last of the messages that have it."""


def step_of(time_ms: int) -> int:
    return min(max(0, -(-time_ms >> _STEP_BITS)), _LAST_STEP)


def time_of(step: int) -> int:
    return step << _STEP_BITS


def packed(spans: Iterable[Span]) -> TimesValue:
    """Pack the times of messages, which are given by their numbers in the chunk."""
    ordered = sorted(spans)
    if not ordered:
        return TimesValue()
    count = sum(last - first + 1 for _, first, last in ordered)
    has_lengths = len(ordered) * (_TIME.size + _LENGTH.size) < count * _TIME.size
    if not has_lengths and len(ordered) < count:
        ordered = [(step, number, number) for step, first, last in ordered for number in range(first, last + 1)]
    times: list[int] = []
    lengths: list[int] = []
    at = ordered[0][0]
    for step, first, last in ordered:
        ahead = step - at
        while ahead >= _FAR:
            leap = min(ahead // _FAR, CHUNK)
            times.append(_FAR << CHUNK_BITS | leap - 1)
            lengths.append(0)
            ahead -= leap * _FAR
        times.append(ahead << CHUNK_BITS | first)
        lengths.append(last - first)
        at = step
    return TimesValue(
        ordered[0][0],
        memoryview(pack(f"<{len(times)}I", *times)),
        memoryview(pack(f"<{len(lengths)}H", *lengths) if has_lengths else b""),
    )


def spans_of(times: TimesValue, base: int = 0) -> Iterator[Span]:
    """The spans by time; messages by offset, if the chunk begins at `base`."""
    step = times.start
    lengths = _LENGTH.iter_unpack(times.lengths) if times.lengths else repeat((0,))
    for (time,), (length,) in zip(_TIME.iter_unpack(times.times), lengths, strict=False):
        ahead, number = time >> CHUNK_BITS, time & _IN_CHUNK
        if ahead == _FAR:
            step += (number + 1) * _FAR
        else:
            step += ahead
            first = base + number
            yield step, first, first + length


def offsets_of(times: TimesValue, base: int) -> list[int]:
    """The messages that have a time: faster than `spans_of`."""
    if times.lengths:
        return [offset for _, first, last in spans_of(times, base) for offset in range(first, last + 1)]
    found = unpack(f"<{len(times.times) // _TIME.size}I", times.times)
    return [base + (time & _IN_CHUNK) for time in found if time >> CHUNK_BITS != _FAR]
