"""Finds the first bytes of the keys or values of a batch: where schema ids are. For batches of usual records only.

Every batch of a topic with schema validation is read so, and in most of them all starts are equal. A record that begins
like the one before it is recognized by a regular expression, a run of records of one layout column by column: that
costs half and a tenth of decoding it. A usual record has lengths of one or two bytes. Others are for
`reader.fields_in`.
"""

import re
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from headrace.records.batch import BatchHeader

START_BYTES = 5
_NULL = 1
"""A length of -1, encoded."""
_MIN_RECORD_BYTES = 7
_SHORT = START_BYTES << 1
_UNUSUAL = 0x4001
"""Set in a length, still encoded, that is negative or has more than two bytes."""
_TRY_EVERY = 64
_LONG_RUN = 16
_MOST_AT_ONCE = 4096
_ASCII = bytes(range(0x80))
"""The last byte of a number is one of these."""
_OTHERS = bytes(range(0x80, 0x100))
_WORTH_AN_EXPRESSION = 16
_MOST_EXPRESSIONS_MADE = 4
"""For one batch: each takes up to a millisecond, so that many different ids must not cause many."""
_MOST_EXPRESSIONS = 256
_MOST_STARTS = 1_000
"""More are not worth a quick pass: a large batch might have millions."""

_Match = Callable[[bytes, int], re.Match[bytes] | None]
_expressions: dict[tuple[bytes, bool], _Match] = {}


class _RecordLayout(NamedTuple):
    """Where the parts of a record are."""

    start: bytes | None
    """The first bytes of the field; None for a null."""
    field_at: int
    time_at: int
    delta_at: int
    lengths_at: int
    key_at: int
    key_end: int
    value_at: int
    headers_at: int


def distinct_starts(data: bytes, header: BatchHeader, *, is_key: bool, unless: bytes) -> set[bytes] | None:
    """The different first bytes, `START_BYTES` at most, of all keys or values that are not null.

    `data` is the decompressed records of the batch with this header. None if a record is unusual or malformed, if
    there are too many starts, or if `unless`, the name of a header, may be among the headers. What does not matter for
    the starts is not checked.
    """
    count = header.record_count
    if count < 1 or count * _MIN_RECORD_BYTES > len(data):
        return None
    try:
        return _starts(data, count, is_key, unless)
    except IndexError:
        return None


def _starts(data: bytes, count: int, is_key: bool, unless: bytes) -> set[bytes] | None:
    found: set[bytes] = set()
    has_headers = False
    last: bytes | None = None
    begins_as_last: _Match | None = None
    at = index = size = try_from = repeated = made = 0
    while index < count:
        length = data[at]
        if length > 0x7F:
            length = length & 0x7F | data[at + 1] << 7
            time_at = at + 3
        else:
            time_at = at + 2
        end = time_at - 1 + (length >> 1)
        if begins_as_last is not None and (end - at != size or index < try_from) and begins_as_last(data, at):
            has_headers = True  # or not: that was not looked at
            size = end - at
            at = end
            index += 1
            continue
        layout = _layout(data, at, time_at, end, length, is_key)
        if layout is None:
            return None
        start = layout.start
        has_headers = has_headers or layout.headers_at != end - 1
        if start != last and start is not None:
            found.add(start)
            if len(found) > _MOST_STARTS:
                return None
            last = start
            begins_as_last = _expressions.get((start, is_key))
            repeated = 0
        elif begins_as_last is None and start is not None and len(start) == START_BYTES:
            repeated += 1
            if repeated == _WORTH_AN_EXPRESSION and made < _MOST_EXPRESSIONS_MADE:
                begins_as_last = _expression(start, is_key)
                made += 1
        index += 1
        if end - at != size:
            size = end - at
        elif index >= try_from and start is not None:
            more = _run(data, at, size, min(count - index, _MOST_AT_ONCE), layout)
            index += more
            end += more * size
            try_from = index if more >= _LONG_RUN else index + _TRY_EVERY
        at = end
    if at != len(data) or (has_headers and unless in data):
        return None
    return found


def _layout(data: bytes, at: int, time_at: int, end: int, length: int, is_key: bool) -> _RecordLayout | None:
    """The layout of a record; None if it is unusual or malformed."""
    place = time_at
    while data[place] > 0x7F:
        place += 1
    delta_at = place + 1
    place = delta_at
    while data[place] > 0x7F:
        place += 1
    lengths_at = place + 1
    key_at = lengths_at + 1
    key_length = data[lengths_at]
    if key_length > 0x7F:
        key_length = key_length & 0x7F | data[key_at] << 7
        key_at += 1
    has_key = key_length != _NULL
    key_end = key_at + (key_length >> 1)
    value_at = key_end + 1
    value_length = data[key_end]
    if value_length > 0x7F:
        value_length = value_length & 0x7F | data[value_at] << 7
        value_at += 1
    has_value = value_length != _NULL
    headers_at = value_at + (value_length >> 1)
    if (length | (key_length if has_key else 0) | (value_length if has_value else 0)) & _UNUSUAL or headers_at >= end:
        return None
    start = None
    if is_key:
        if has_key:
            start = data[key_at : key_at + START_BYTES] if key_length > _SHORT else data[key_at:key_end]
    elif has_value:
        start = data[value_at : value_at + START_BYTES] if value_length > _SHORT else data[value_at:headers_at]
    field_at = key_at if is_key else value_at
    return _RecordLayout(start, field_at, time_at, delta_at, lengths_at, key_at, key_end, value_at, headers_at)


def _expression(start: bytes, is_key: bool) -> _Match:
    """A function that matches a record of usual lengths whose key, or value without a key, begins so. It is cached."""
    low, high = (b"[" + re.escape(bytes(range(first, first + 0x80, 2))) + b"]" for first in (0, 0x80))
    long_enough = b"[" + re.escape(bytes(range(2 * START_BYTES, 0x80, 2))) + b"]"
    head = b"(?s:(?:" + high + rb"[\x00-\x7f]|" + low + rb").[\x80-\xff]{0,9}[\x00-\x7f][\x80-\xff]{0,4}[\x00-\x7f])"
    field = b"(?:" + high + rb"[\x01-\x7f]|" + long_enough + b")" + re.escape(start)
    made = re.compile(head + (b"" if is_key else rb"\x01") + field).match
    if len(_expressions) >= _MOST_EXPRESSIONS:
        _expressions.clear()
    _expressions[start, is_key] = made
    return made


def _run(data: bytes, at: int, size: int, most: int, layout: _RecordLayout) -> int:
    """How many records after the one at `at` have its layout: equal lengths and starts, and numbers of the same sizes.

    As each record has the same length as the one before it, the next one is `size` bytes further.
    """
    start, field_at, time_at, delta_at, lengths_at, key_at, key_end, value_at, _ = layout
    count = min(most + 1, (len(data) - at) // size)
    equal = (range(at, time_at - 1), range(lengths_at, key_at), range(key_end, value_at))
    for place in chain(*equal, range(field_at, field_at + len(start or b""))):
        column = data[place : place + (count - 1) * size + 1 : size]
        count = len(column) - len(column.lstrip(column[:1]))
    last_bytes, others = (delta_at - 1, lengths_at - 1), (range(time_at, delta_at - 1), range(delta_at, lengths_at - 1))
    for places, allowed in ((last_bytes, _ASCII), (chain(*others), _OTHERS)):
        for place in places:
            column = data[place : place + (count - 1) * size + 1 : size]
            count = len(column) - len(column.lstrip(allowed))
    return count - 1
