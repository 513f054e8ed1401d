"""Finds the first bytes of the keys or values of a batch: where schema ids are. For batches of usual records only.

Every batch of a topic with schema validation is read so: nothing is copied but the start of a field, and a run of
records of one layout is compared column by column, which costs a tenth. A usual record has lengths of one or two bytes.
Others, and malformed ones, are for `reader.fields_in`.
"""

from collections.abc import Sequence

from headrace.records.batch import BatchHeader

START_BYTES = 5
_NULL = 1
"""A length of -1, encoded."""
_MIN_RECORD_BYTES = 7
_UNUSUAL = 0x4001
"""Set in a length, still encoded, that is negative or has more than two bytes."""
_SHORT = START_BYTES << 1
_TRY_EVERY = 64
_LONG_RUN = 16
_MOST_AT_ONCE = 4096
_ASCII = bytes(range(0x80))
"""The last byte of a number is one of these."""
_OTHERS = bytes(range(0x80, 0x100))


def distinct_starts(data: bytes, header: BatchHeader, *, is_key: bool, unless: bytes) -> set[bytes] | None:
    """The different first bytes, `START_BYTES` at most, of all keys or values that are not null.

    `data` is the decompressed records of the batch with this header. None if a record is unusual or malformed, or if
    records have headers and `unless`, the name of one, is in the data.
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
    at = index = size = try_from = 0
    while index < count:
        length = data[at]
        if length > 0x7F:
            length = length & 0x7F | data[at + 1] << 7
            time_at = at + 3
        else:
            time_at = at + 2
        end = time_at - 1 + (length >> 1)
        place = time_at
        while data[place] > 0x7F:
            place += 1
        delta_at = place + 1
        place = delta_at
        while data[place] > 0x7F:
            place += 1
        lengths_at = place + 1
        key_length = data[lengths_at]
        key_at = lengths_at + 1
        if key_length == _NULL:
            key_length = 0
            place = key_at
            start = None
        else:
            if key_length > 0x7F:
                key_length = key_length & 0x7F | data[key_at] << 7
                key_at += 1
            place = key_at + (key_length >> 1)
            start = data[key_at:place] if key_length <= _SHORT else data[key_at : key_at + START_BYTES]
        key_end = place
        value_length = data[place]
        place += 1
        if value_length == _NULL:
            value_length = 0
            start = start if is_key else None
        else:
            if value_length > 0x7F:
                value_length = value_length & 0x7F | data[place] << 7
                place += 1
            if not is_key:
                stop = place + (value_length >> 1) if value_length <= _SHORT else place + START_BYTES
                start = data[place:stop]
        headers_at = place + (value_length >> 1)
        if (length | key_length | value_length) & _UNUSUAL or headers_at >= end:
            return None
        if headers_at != end - 1 and not has_headers:
            if unless in data:
                return None
            has_headers = True
        if start != last and start is not None:
            found.add(start)
            last = start
        index += 1
        if end - at != size:
            size = end - at
        elif index >= try_from and start is not None:
            field_at = key_at if is_key else place
            same = (*range(at, time_at - 1), *range(lengths_at, key_at), *range(key_end, place))
            same += tuple(range(field_at, field_at + len(start)))
            others = (*range(time_at, delta_at - 1), *range(delta_at, lengths_at - 1))
            more = _run(data, at, size, min(count - index, _MOST_AT_ONCE), same, (delta_at - 1, lengths_at - 1), others)
            index += more
            end += more * size
            try_from = index if more >= _LONG_RUN else index + _TRY_EVERY
        at = end
    return found if at == len(data) else None


def _run(
    data: bytes, at: int, size: int, most: int, same: Sequence[int], last_bytes: Sequence[int], others: Sequence[int]
) -> int:
    """How many records after the one at `at` have its layout: equal bytes at `same`, and numbers of the same sizes.

    `last_bytes` and `others` are the places of the last bytes of numbers, and of the bytes before those. As each record
    has the same length as the one before it, the next one is `size` bytes further.
    """
    count = min(most + 1, (len(data) - at) // size)
    for place in same:
        column = data[place : place + (count - 1) * size + 1 : size]
        count = len(column) - len(column.lstrip(column[:1]))
    for places, allowed in ((last_bytes, _ASCII), (others, _OTHERS)):
        for place in places:
            column = data[place : place + (count - 1) * size + 1 : size]
            count = len(column) - len(column.lstrip(allowed))
    return count - 1
