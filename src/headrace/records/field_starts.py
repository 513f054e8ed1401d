"""Finds the first bytes of the keys or values of a batch: where schema ids are. For batches of usual records only.

A record of usual size has lengths of one or two bytes, as `reader.fields_in` has them in its fast path. Here nothing is
copied but the start of one field, since each batch of a topic with schema validation is read so.
"""

from headrace.records.batch import BatchHeader

START_BYTES = 5
_NULL = 1
"""A length of -1, encoded."""
_MIN_RECORD_BYTES = 7


def distinct_starts(data: bytes, header: BatchHeader, *, is_key: bool) -> set[bytes] | None:
    """The different first bytes, `START_BYTES` at most, of all keys or values that are not null.

    `data` is the decompressed records of the batch with this header. None if a record is unusual or malformed.
    """
    count = header.record_count
    if count < 1 or count * _MIN_RECORD_BYTES > len(data):
        return None
    try:
        return _starts(data, count, is_key)
    except IndexError:
        return None


def _starts(data: bytes, count: int, is_key: bool) -> set[bytes] | None:
    found: set[bytes] = set()
    last: bytes | None = None
    at = 0
    for _ in range(count):
        length = data[at]
        at += 1
        if length > 0x7F:
            length = length & 0x7F | data[at] << 7
            at += 1
        end = at + (length >> 1)
        at += 1
        while data[at] > 0x7F:
            at += 1
        at += 1
        while data[at] > 0x7F:
            at += 1
        key_length = data[at + 1]
        at += 2
        if key_length == _NULL:
            key_at = -1
            key_length = 0
        else:
            if key_length > 0x7F:
                key_length = key_length & 0x7F | data[at] << 7
                at += 1
            key_at = at
            at += key_length >> 1
        value_length = data[at]
        at += 1
        if value_length == _NULL:
            value_at = -1
            value_length = 0
        else:
            if value_length > 0x7F:
                value_length = value_length & 0x7F | data[at] << 7
                at += 1
            value_at = at
            at += value_length >> 1
        # A third byte of a length, a negative one, or a field that does not fit its record.
        if (length | key_length | value_length) & 0x4001 or at >= end:
            return None
        if is_key:
            start = data[key_at : key_at + min(START_BYTES, key_length >> 1)] if key_at >= 0 else last
        else:
            start = data[value_at : value_at + min(START_BYTES, value_length >> 1)] if value_at >= 0 else last
        if start != last and start is not None:
            found.add(start)
            last = start
        at = end
    return found if at == len(data) else None
