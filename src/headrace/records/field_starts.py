"""Finds the first bytes of the keys or values of a batch: where schema ids are. For batches of usual records only.

Every batch of a topic with schema validation is read so. The first record of a batch is taken apart. Records after it
that have its size are compared with it column by column; others that have the same *shape*, which are most, are read
with one call each: a shape says what a record of a certain length must look like. That costs a tenth and a sixth of
taking a record apart. A usual record has lengths of one or two bytes. Others are for `reader.fields_in`.
"""

from collections.abc import Container
from itertools import chain
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from headrace.records.batch import BatchHeader
from headrace.runtime.varint import encode_varint

START_BYTES = 5
_NULL = 1
"""A length of -1, encoded."""
_MIN_RECORD_BYTES = 7
_SHORT = START_BYTES << 1
_UNUSUAL = 0x4001
"""Set in a length, still encoded, that is negative or has more than two bytes."""
_MOST_STARTS = 1_000
"""More are not worth a quick pass: a large batch might have millions."""
_MOST_SHAPES_MADE = 32
"""For one batch: making one takes longer than reading a few records."""
_MOST_SHAPES = 256
_MOST_TAILS = 100_000
"""Of all shapes together: 15 MB. Then they are dropped."""
_LONG_RUN = 16
_MOST_RUNS_TRIED = 4
"""That were no long runs: trying takes as long as a few records."""
_MOST_AT_ONCE = 4096
_ASCII = bytes(range(0x80))
"""The last byte of a number is one of these."""
_OTHERS = bytes(range(0x80, 0x100))
_LONG_ENOUGH = frozenset(range(_SHORT, 0x80, 2))
"""The lengths of one byte, encoded, of keys that have a whole start."""
_NULL_KEY = b"\x01"
_CODES = {1: "B", 2: "H"}
_NUMBERS = {2: "xH", 3: "I", 4: "xI"}
"""How the timestamp and the offset are read, by their bytes: with the attributes before them if that makes four."""

_Shapes = list["_RecordShape | None"]
"""Of records with a length of one byte, and of two."""
_shapes: "dict[_ShapeKey, _RecordShape]" = {}


class _RecordLayout(NamedTuple):
    """Where the parts of a record are."""

    start: bytes | None
    """The first bytes of the field; None for a null."""
    at: int
    field_at: int
    time_at: int
    delta_at: int
    lengths_at: int
    key_at: int
    key_end: int
    value_at: int
    headers_at: int
    end: int


def distinct_starts(
    data: bytes, header: BatchHeader, *, is_key: bool, unless: bytes, patience: int | None = None
) -> set[bytes] | None:
    """The different first bytes, `START_BYTES` at most, of all keys or values that are not null.

    `data` is the decompressed records of the batch with this header. None if a record is unusual or malformed, if
    there are too many starts, if more than `patience` records have to be taken apart, or if `unless`, the name of a
    header, may be among the headers. What does not matter for the starts is not checked.
    """
    count = header.record_count
    if count < 1 or count * _MIN_RECORD_BYTES > len(data):
        return None
    try:
        return _starts(data, count, is_key, unless, count if patience is None else patience)
    except IndexError:
        return None


def _starts(data: bytes, count: int, is_key: bool, unless: bytes, patience: int) -> set[bytes] | None:
    found: set[bytes] = set()
    has_headers = False
    shapes: _Shapes = [None, None]
    has_missed = [False, False]
    """Whether the last record that could have had this shape had not."""
    at = made = 0
    left, tries = count, _MOST_RUNS_TRIED
    while left:
        slot = data[at] >> 7
        shape = shapes[slot]
        if shape is not None:
            at, left_then = shape.skip(data, at, left, shapes)
            if left_then < left:
                left, has_missed[slot] = left_then, False
                continue
        layout = _layout(data, at, is_key)
        if layout is None or not patience:
            return None
        patience -= 1
        start, size = layout.start, layout.end - at
        has_headers = has_headers or layout.headers_at != layout.end - 1
        if start is not None and start not in found:
            found.add(start)
            if len(found) > _MOST_STARTS:
                return None
        # One record of another shape among many is no reason to look for others like it.
        is_whole = start is not None and len(start) == START_BYTES
        if (shape is None or has_missed[slot]) and is_whole and left > 1 and made < _MOST_SHAPES_MADE:
            shapes[slot] = _shape(data, layout, is_key)
            made += 1
            has_headers = has_headers or is_key  # or not: the headers of keys are not looked at
        has_missed[slot] = True
        left -= 1
        if tries and left and start is not None and data[layout.end] == data[at]:
            more = _run(data, min(left, _MOST_AT_ONCE), size, layout)
            left -= more
            at += more * size
            tries -= more < _LONG_RUN
        at += size
    if at != len(data) or (has_headers and unless in data):
        return None
    return found


def _layout(data: bytes, at: int, is_key: bool) -> _RecordLayout | None:
    """The layout of the record at a position; None if it is unusual or malformed."""
    length = data[at]
    time_at = at + 2
    if length > 0x7F:
        length = length & 0x7F | data[at + 1] << 7
        time_at = at + 3
    end = time_at - 1 + (length >> 1)
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
    return _RecordLayout(start, at, field_at, time_at, delta_at, lengths_at, key_at, key_end, value_at, headers_at, end)


def _run(data: bytes, most: int, size: int, layout: _RecordLayout) -> int:
    """How many of the `most` records after this one have its layout: equal lengths and starts, numbers of equal sizes.

    As each record has the same length as the one before it, the next one is `size` bytes further.
    """
    start, at, field_at, time_at, delta_at, lengths_at, key_at, key_end, value_at, _, _ = layout
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


class _ShapeKey(NamedTuple):
    """What records of one shape have in common."""

    is_key: bool
    start: bytes
    length_bytes: int
    """Of the encoded length of the record; so are the following."""
    time_bytes: int
    delta_bytes: int
    key_code: bytes
    """The encoded length of the key."""
    key_bytes: int
    rest_bytes: int
    """What follows the value: the headers."""


def _shape(data: bytes, layout: _RecordLayout, is_key: bool) -> "_RecordShape | None":
    """The shape of a record whose field has a whole start, from the cache; None if its numbers are too large."""
    start, at, _, time_at, delta_at, lengths_at, key_at, key_end, _, headers_at, end = layout
    if start is None or lengths_at - time_at not in _NUMBERS:
        return None
    key = _ShapeKey(
        is_key,
        start,
        time_at - 1 - at,
        delta_at - time_at,
        lengths_at - delta_at,
        data[lengths_at:key_at],
        0 if is_key else key_end - key_at,
        0 if is_key else end - headers_at,
    )
    shape = _shapes.get(key)
    if shape is None:
        if len(_shapes) >= _MOST_SHAPES:
            _shapes.clear()
        shape = _shapes[key] = _RecordShape(key)
    return shape


class _RecordShape:
    """Records of one shape: their lengths differ, and all else that matters for the start follows from the length."""

    tails_made = 0
    """By all shapes, since they were last dropped."""

    def __init__(self, key: _ShapeKey) -> None:
        self._key = key
        self._tails: dict[int, bytes] = {}
        """By the encoded length of a record: what its bytes behind the key must be, up to the end of the start.

        Empty for a length that no record of this shape has. A key is skipped; a null key is part of the tail.
        """
        self._sizes: dict[int, int] = {}
        """The size of each record that has a tail: an entry here is made before that of the tail."""
        numbers_bytes = key.time_bytes + key.delta_bytes
        shift = 8 if numbers_bytes == 3 else 0
        ends = (key.time_bytes - 1, numbers_bytes - 1)
        highest = sum(0x80 << 8 * place + shift for place in range(numbers_bytes))
        goes_on = sum(0x80 << 8 * place + shift for place in range(numbers_bytes) if place not in ends)
        head = f"<{_CODES[key.length_bytes]}{_NUMBERS[numbers_bytes]}"
        tail_bytes = START_BYTES if key.is_key else key.length_bytes + START_BYTES
        self._keys: Container[int] | None = None
        """The encoded lengths that a key may have; None for null keys."""
        if key.key_code == _NULL_KEY:
            layout = f"{head}{1 + tail_bytes}s"
        else:
            layout = f"{head}{_CODES[len(key.key_code)]}{key.key_bytes}x{tail_bytes}s"
            self._keys = (int.from_bytes(key.key_code, "little"),)
            if key.is_key and len(key.key_code) == 1:
                self._keys = _LONG_ENOUGH
        self._parts = (Struct(layout).unpack_from, self._tails, self._sizes, highest, goes_on)
        """With the bits that say whether a number goes on, and what they must be."""

    def skip(self, data: bytes, at: int, left: int, shapes: _Shapes) -> tuple[int, int]:
        """Where the first record of another shape is, from `at` on, and how many records are left then.

        Records without keys may have either of the two shapes.
        """
        if self._keys is not None:
            return self._skip_keys(data, at, left)
        shape = self
        while True:
            unpack, tails, sizes, highest, goes_on = shape._parts
            now_left, code = left, 0
            try:
                for now_left in range(left, 0, -1):
                    code, numbers, tail = unpack(data, at)
                    known = tails[code]
                    if (tail != known and not (known and tail.startswith(known))) or numbers & highest != goes_on:
                        left = now_left
                        break
                    at += sizes[code]
                else:
                    return at, 0
            except KeyError:
                shape._make_tail(code)
                left = now_left
                continue
            except StructError:
                return at, now_left
            other = shapes[data[at] >> 7]
            if other is None or other is shape or other._keys is not None:
                return at, left
            shape = other

    def _skip_keys(self, data: bytes, at: int, left: int) -> tuple[int, int]:
        """Like `skip`, of records with keys."""
        keys = self._keys or ()
        unpack, tails, sizes, highest, goes_on = self._parts
        while True:
            now_left, code = left, 0
            try:
                for now_left in range(left, 0, -1):
                    code, numbers, key, tail = unpack(data, at)
                    known = tails[code]
                    if tail != known and not (known and tail.startswith(known)):
                        return at, now_left
                    if numbers & highest != goes_on or key not in keys:
                        return at, now_left
                    at += sizes[code]
            except KeyError:
                self._make_tail(code)
                left = now_left
                continue
            except StructError:
                return at, now_left
            return at, 0

    def _make_tail(self, code: int) -> None:
        key = self._key
        length = code if key.length_bytes == 1 else code & 0x7F | code >> 8 << 7
        tail = b""
        if not length & _UNUSUAL and (key.length_bytes == 2) == bool(code & 0x80):
            value_code = self._value_code(length >> 1)
            if key.is_key:
                tail = key.start
            elif value_code:
                tail = (_NULL_KEY if key.key_code == _NULL_KEY else b"") + value_code + key.start
        self._sizes[code] = key.length_bytes + (length >> 1)
        self._tails[code] = tail
        _RecordShape.tails_made += 1
        if _RecordShape.tails_made >= _MOST_TAILS:
            _RecordShape.tails_made = 0
            _shapes.clear()

    def _value_code(self, length: int) -> bytes:
        """The encoded length of the value of a record of this length; empty if there is none of this shape.

        It has as many bytes as the encoded length of the record, or one less: then the tail is shorter than what it is
        compared with.
        """
        key = self._key
        others = 1 + key.time_bytes + key.delta_bytes + len(key.key_code) + key.key_bytes + key.rest_bytes
        for code_bytes in (key.length_bytes, key.length_bytes - 1):
            value_bytes = length - others - code_bytes
            if value_bytes >= START_BYTES and len(code := encode_varint(value_bytes)) == code_bytes:
                return code
        return b""
