"""Finds the fields of many records at once: the fast path of `columns`.

Only the starts of the records need a walk, as each length must be read before the next start is known: through many
batches at once if they are small, record by record in a large one, except for runs of records of one size. Every other
field is read in one pass over all records. The walk checks nothing. The passes after it prove the chain: each record
ends where the next one begins, the last one ends with its batch, and every field lies inside its record.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.model.errors import InvalidRecord
from headrace.records.batch import LOG_APPEND_TIME, BatchHeader, Buffer
from headrace.records.varints import INT32_BYTES, INT64_BYTES, Bytes, Integers, read_varints
from headrace.runtime.varint import VarintTooLong, read_uvarint

_MIN_RECORD_BYTES = 7
_SKIPS = [1 + (byte >> 1) if byte < 0x80 else 2 + ((byte & 0x7F) >> 1) for byte in range(256)]
"""The distance to the next record by the first byte of a length, as far as that byte determines it."""
_STEP_WORTH_RECORDS = 160
"""One step through many batches at once takes as long as a walk over this many records."""
_STRETCH = 64
"""After so many records, check whether the following ones are of one size."""
_MOST_HEADERS = 1000
"""One pass reads one header of each record: a record with more headers than this goes to the slow path."""


class BatchRecords(NamedTuple):
    """The decompressed records of one batch, from `start` to `end` of a buffer."""

    start: int
    end: int
    header: BatchHeader


class Headers(NamedTuple):
    counts: Integers
    """The number of headers of each record; those of one record are adjacent in the fields below."""
    key_starts: Integers
    key_lengths: Integers
    value_starts: Integers
    value_lengths: Integers
    """-1: null."""


class Fields(NamedTuple):
    """One entry per record. Starts are positions in the buffer; a length of -1 is a null."""

    offsets: Integers
    timestamps_ms: Integers
    timestamp_types: npt.NDArray[np.int32]
    key_starts: Integers
    key_lengths: Integers
    value_starts: Integers
    value_lengths: Integers
    headers_starts: Integers
    ends: Integers

    def where(self, wanted: npt.NDArray[np.bool_]) -> "Fields":
        return Fields._make(column[wanted] for column in self)


def read_fields(buffer: Buffer, sections: Sequence[BatchRecords]) -> Fields:
    """The fields of all records of these sections, which hold at least one.

    Raises `InvalidRecord`, without an exact reason, if anything is malformed: the slow path then decides.
    """
    data = np.frombuffer(buffer, np.uint8)
    section_starts, section_ends, bases, last_deltas, base_times, max_times, appended, counts = np.array(
        [
            (
                section.start,
                section.end,
                section.header.base_offset,
                section.header.last_offset_delta,
                section.header.base_timestamp,
                section.header.max_timestamp,
                bool(section.header.attributes & LOG_APPEND_TIME),
                section.header.record_count,
            )
            for section in sections
        ],
        np.int64,
    ).T
    if (counts < 1).any() or (counts * _MIN_RECORD_BYTES > section_ends - section_starts).any():
        raise InvalidRecord("a batch has too few bytes for its records")
    starts = _starts(buffer, data, section_starts, counts)
    last = np.cumsum(counts) - 1
    lengths, at = read_varints(data, starts)
    ends = at + lengths
    following = np.append(starts[1:], 0)
    following[last] = section_ends
    first = last - counts + 1
    if (starts[first] != section_starts).any() or (ends != following).any() or lengths.min() < _MIN_RECORD_BYTES - 1:
        raise InvalidRecord("a record does not end where the next one begins")
    time_deltas, at = read_varints(data, at + 1, INT64_BYTES)
    deltas, at = read_varints(data, at)
    rising = np.empty(len(deltas), np.bool_)
    np.greater(deltas[1:], deltas[:-1], out=rising[1:])
    rising[first] = deltas[first] >= 0
    if not rising.all() or (deltas[last] > last_deltas).any():
        raise InvalidRecord("the offsets of a batch do not rise")
    key_lengths, key_starts = read_varints(data, at)
    value_lengths, value_starts = read_varints(data, key_starts + np.maximum(key_lengths, 0))
    headers_starts = value_starts + np.maximum(value_lengths, 0)
    if min(key_lengths.min(), value_lengths.min()) < -1 or (headers_starts >= ends).any():
        raise InvalidRecord("a key or a value does not fit its record")
    if ((data.take(headers_starts) == 0) != (headers_starts + 1 == ends)).any():
        raise InvalidRecord("a record does not end with its headers")
    timestamps_ms = np.repeat(base_times, counts) + time_deltas
    types = np.repeat(appended.astype(np.int32), counts)
    if appended.any():
        timestamps_ms = np.where(types, np.repeat(max_times, counts), timestamps_ms)
    return Fields(
        np.repeat(bases, counts) + deltas,
        timestamps_ms,
        types,
        key_starts,
        key_lengths,
        value_starts,
        value_lengths,
        headers_starts,
        ends,
    )


def read_headers(buffer: Buffer, fields: Fields) -> Headers:
    """The headers of the records that `read_fields` found."""
    data = np.frombuffer(buffer, np.uint8)
    counts, at = read_varints(data, fields.headers_starts)
    if counts.min() < 0 or counts.max() > _MOST_HEADERS or (2 * counts > fields.ends - at).any():
        raise InvalidRecord("a record claims headers that it has no bytes for")
    begins = np.cumsum(counts) - counts
    columns = np.zeros((4, int(counts.sum())), np.int64)
    rows = np.flatnonzero(counts)
    step = 0
    while len(rows):
        key_lengths, key_starts = read_varints(data, at[rows])
        value_lengths, value_starts = read_varints(data, key_starts + np.maximum(key_lengths, 0))
        after = value_starts + np.maximum(value_lengths, 0)
        if key_lengths.min() < 0 or value_lengths.min() < -1 or (after > fields.ends[rows]).any():
            raise InvalidRecord("a header does not fit its record")
        columns[:, begins[rows] + step] = key_starts, key_lengths, value_starts, value_lengths
        at[rows] = after
        step += 1
        rows = rows[counts[rows] > step]
    if (at != fields.ends).any():
        raise InvalidRecord("a record does not end with its headers")
    return Headers(counts, *columns)


def _starts(buffer: Buffer, data: Bytes, section_starts: Integers, counts: Integers) -> Integers:
    if int(counts.max()) * _STEP_WORTH_RECORDS < int(counts.sum()):
        return _starts_side_by_side(data, section_starts, counts)
    try:
        walks = map(_walk, repeat(buffer), repeat(data), section_starts.tolist(), counts.tolist())
        starts = chain.from_iterable(chain.from_iterable(walks))
        return np.fromiter(starts, np.int64, int(counts.sum()))
    except IndexError:
        raise InvalidRecord("a record ends behind its batch") from None
    except VarintTooLong as error:
        raise InvalidRecord(f"a record is invalid: {error}") from None


def _starts_side_by_side(data: Bytes, section_starts: Integers, counts: Integers) -> Integers:
    """Find the n-th start of every batch in one step. Longest batches first, so that unfinished ones are a prefix."""
    order = np.argsort(-counts, kind="stable")
    going_on = np.searchsorted(-counts[order], -np.arange(counts.max()), side="left")
    places = (np.cumsum(counts) - counts)[order]
    starts = np.empty(counts.sum(), np.int64)
    at = section_starts[order]
    for step, active in enumerate(going_on.tolist()):
        at = at[:active]
        starts[places[:active] + step] = at
        lengths, at = read_varints(data, at)
        at += lengths
    return starts


def _walk(buffer: Buffer, data: Bytes, at: int, count: int) -> Iterator[Sequence[int]]:
    """The starts of the records of one batch, in runs: a run of records of one size is found in one step."""
    reach = _STRETCH
    while count > 0:
        *stretch, at = _one_by_one(buffer, at, min(count, _STRETCH))
        yield stretch
        count -= len(stretch)
        size = at - stretch[-1]
        while count > 0 and len(stretch) > 1 and size == stretch[-1] - stretch[-2]:
            tried = min(count, reach)
            same = _same_size(data, at, size, tried)
            yield range(at, at + same * size, size)
            at += same * size
            count -= same
            if same < tried:
                reach = _STRETCH
                break
            reach *= 8


def _same_size(data: Bytes, at: int, size: int, most: int) -> int:
    """How many of `most` records from `at` on have the same length as the one before, which has `size` bytes."""
    most = min(most, (len(data) - at) // size)
    same = np.ones(most, np.bool_)
    for before in range(at - size, at - size + INT32_BYTES):
        same &= data[before + size : before + most * size + 1 : size] == data[before]
        if data[before] < 0x80:
            break
    return most if same.all() else int(same.argmin())


def _one_by_one(buffer: Buffer, at: int, count: int) -> Iterator[int]:
    """The starts of `count` records, and the end of the last. A Python loop, so lengths of one and two bytes, the
    common ones, are decoded inline."""
    skips = _SKIPS
    for _ in repeat(None, count):
        yield at
        byte = buffer[at]
        if byte < 0x80:
            at += skips[byte]
            continue
        second = buffer[at + 1]
        if second < 0x80:
            at += skips[byte] + (second << 6)
        else:
            at = _behind_long(buffer, at)
    yield at


def _behind_long(buffer: Buffer, at: int) -> int:
    """The end of a record whose length has more than two bytes."""
    coded, at = read_uvarint(buffer, at)
    return at + (coded >> 1)
