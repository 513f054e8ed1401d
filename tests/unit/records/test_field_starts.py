"""The first bytes of keys and values, against the reader that decodes records one by one."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import RecordError
from headrace.records import field_starts
from headrace.records.batch import HEADER_SIZE, read_header
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.field_starts import START_BYTES, distinct_starts
from headrace.records.reader import Record, decompressed, fields_in
from headrace.runtime.varint import encode_varint

NAME = b"__value_schema_id"
FIELDS = st.none() | st.binary(max_size=12) | st.builds(bytes, st.integers(60, 300))
RECORD = st.builds(
    Record,
    st.just(0),
    st.integers(0, 2**40),
    FIELDS,
    FIELDS,
    st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=2).map(tuple),
)
RUNS = st.lists(st.tuples(RECORD, st.integers(1, 100)), min_size=1, max_size=3)
"""Records, each repeated with other timestamps: those have one layout."""
RECORDS = st.lists(RECORD, min_size=1, max_size=20) | RUNS.map(
    lambda runs: [
        record._replace(timestamp=record.timestamp + step // 3) for record, count in runs for step in range(count)
    ]
)


def expected(records: list[Record], is_key: bool) -> set[bytes]:
    fields = (record.key if is_key else record.value for record in records)
    return {field[:START_BYTES] for field in fields if field is not None}


def numbered(records: list[Record]) -> list[Record]:
    return [record._replace(offset=offset) for offset, record in enumerate(records)]


@given(RECORDS, st.booleans())
def test_what_is_found_is_what_the_records_have(records: list[Record], is_key: bool) -> None:
    batch = build_batch(numbered(records))
    found = distinct_starts(batch[HEADER_SIZE:], read_header(batch), is_key=is_key, unless=NAME)
    assert found == expected(records, is_key)


def test_long_records_are_left_to_the_other_reader() -> None:
    batch = build_batch([Record(0, 1, None, bytes(8_200))])
    assert distinct_starts(batch[HEADER_SIZE:], read_header(batch), is_key=False, unless=NAME) is None


@given(RECORDS, st.booleans(), st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_records_are_never_read_differently(records: list[Record], is_key: bool, at: int, byte: int) -> None:
    batch = build_batch(numbered(records))
    data = bytearray(batch[HEADER_SIZE:])
    data[at % len(data)] = byte
    header = read_header(batch)
    found = distinct_starts(bytes(data), header, is_key=is_key, unless=NAME)
    try:
        fields = [Record._make(each) for each in fields_in(bytes(data), header)]
    except RecordError:
        return
    assert found is None or found == expected(fields, is_key)


def test_a_header_of_this_name_is_left_to_the_other_reader() -> None:
    plain, with_header = Record(0, 1, None, b"value"), Record(1, 1, None, b"value", ((NAME.decode(), b""),))
    for records, is_read in (([plain], True), ([plain, with_header], False)):
        batch = build_batch(records)
        found = distinct_starts(batch[HEADER_SIZE:], read_header(batch), is_key=False, unless=NAME)
        assert (found is not None) == is_read


def test_many_different_starts_make_few_shapes() -> None:
    """Making one takes a while: a batch of a hostile producer must not cause thousands."""
    values = [b"\0" + number.to_bytes(4) + b"x" * (number % 7) for number in range(500) for _ in range(20)]
    batch = build_batch([Record(offset, 1, None, value) for offset, value in enumerate(values)])
    field_starts._shapes.clear()
    found = distinct_starts(batch[HEADER_SIZE:], read_header(batch), is_key=False, unless=NAME)
    assert found == {value[:START_BYTES] for value in values}
    assert len(field_starts._shapes) <= 32


def test_what_is_known_about_shapes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_starts, "_MOST_SHAPES", 3)
    monkeypatch.setattr(field_starts, "_MOST_TAILS", 50)
    for number in range(20):
        values = [b"\0" + number.to_bytes(4) + bytes(size) for size in range(200)]
        batch = build_batch([Record(offset, 1, None, value) for offset, value in enumerate(values)])
        found = distinct_starts(batch[HEADER_SIZE:], read_header(batch), is_key=False, unless=NAME)
        assert found == {b"\0" + number.to_bytes(4)}
        assert len(field_starts._shapes) <= 3


def test_records_that_are_all_different_are_left_to_the_other_reader_where_time_is_short() -> None:
    batch = build_batch([Record(offset, 1, b"k" * (offset % 50), b"value" * 5) for offset in range(100)])
    data, header = batch[HEADER_SIZE:], read_header(batch)
    assert distinct_starts(data, header, is_key=False, unless=NAME, patience=10) is None
    assert distinct_starts(data, header, is_key=False, unless=NAME) == {b"value"}


def test_a_key_cannot_be_taken_for_the_value_by_a_long_offset() -> None:
    """An offset delta of two bytes whose second one is that of a null key: behind it is a key that begins as values."""
    good = b"\x00\x00%c\x01\x90\x01" + b"START" + bytes(67) + b"\x00"
    odd = b"\x00\x00\x82\x01\x90\x01" + b"START" + bytes(67)
    records = [encode_varint(len(good) - 1) + good % (2 * number) for number in range(3)]
    batch = build_batch([Record(offset, 1, None, b"") for offset in range(4)])
    header = read_header(batch)
    # The key has 72 bytes and the value 3, or the key and the value are as in the others.
    wrong = odd + b"\x06bad\x00"
    for last, value in ((wrong, b"bad"), (good % 6, b"START")):
        data = b"".join(records) + encode_varint(len(last)) + last
        found = distinct_starts(data, header, is_key=False, unless=NAME)
        assert found is None or value in found


ALIKE = st.builds(
    lambda start, sizes, key, headers, times, others: numbered(
        [
            *(
                Record(0, time, key, start + bytes(size), headers)
                for size, time in zip(sizes, itertools.cycle(times), strict=False)
            ),
            *others,
        ]
    ),
    st.sampled_from((b"\0\0\0\0\1", b"\0\0\0\0\2")),
    st.lists(st.integers(0, 130) | st.integers(0, 9_000), min_size=60, max_size=80) | st.just([30] * 200),
    st.none() | st.binary(max_size=70),
    st.sampled_from(((), (("a", b"b"),), (("trace", b"x" * 70),))),
    st.lists(st.integers(0, 200) | st.integers(0, 2**22), min_size=1, max_size=3),
    st.lists(RECORD, max_size=2),
)
"""Records that differ in the lengths of their values, and a few others: most have one shape."""


@given(ALIKE, st.booleans(), st.randoms(use_true_random=False))
def test_records_of_one_shape_are_what_the_other_reader_finds(
    records: list[Record], is_key: bool, chance: random.Random
) -> None:
    chance.shuffle(records)
    batch = build_batch(numbered(records))
    data, header = bytearray(batch[HEADER_SIZE:]), read_header(batch)
    found = distinct_starts(bytes(data), header, is_key=is_key, unless=NAME)
    fields = expected(records, is_key)
    assert found == fields or (found is None and any(len(record.value or b"") > 8_000 for record in records))
    for _ in range(5):
        # Copies of heads, and bytes that are wrong, anywhere.
        at, source = chance.randrange(len(data)), chance.randrange(len(data))
        size = chance.randrange(1, 15)
        data[at : at + size] = data[source : source + size][: len(data) - at].ljust(min(size, len(data) - at), b"\x01")
        found = distinct_starts(bytes(data), header, is_key=is_key, unless=NAME)
        try:
            decoded = [Record._make(each) for each in fields_in(bytes(data), header)]
        except RecordError:
            continue
        assert found is None or found == expected(decoded, is_key)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_all_codecs_are_found_once_they_are_decompressed(codec: Codec) -> None:
    values = [None, *(b"\0\0\0\0\7" + b"v" * size for size in range(300))]
    batch = build_batch([Record(offset, 1, None, value) for offset, value in enumerate(values)], codec=codec)
    header = read_header(batch)
    assert distinct_starts(decompressed(batch, header), header, is_key=False, unless=NAME) == {b"\0\0\0\0\7"}
