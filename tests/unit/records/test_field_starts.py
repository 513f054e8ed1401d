"""The first bytes of keys and values, against the reader that decodes records one by one."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import RecordError
from headrace.records import field_starts
from headrace.records.batch import HEADER_SIZE, read_header
from headrace.records.builder import build_batch
from headrace.records.field_starts import START_BYTES, distinct_starts
from headrace.records.reader import Record, fields_in

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


def test_many_different_starts_make_few_expressions() -> None:
    """Each takes up to a millisecond: a batch of a hostile producer must not cause thousands."""
    values = [b"\0" + number.to_bytes(4) + b"x" * (number % 7) for number in range(500) for _ in range(20)]
    batch = build_batch([Record(offset, 1, None, value) for offset, value in enumerate(values)])
    before = len(field_starts._expressions)
    found = distinct_starts(batch[HEADER_SIZE:], read_header(batch), is_key=False, unless=NAME)
    assert found == {value[:START_BYTES] for value in values}
    assert len(field_starts._expressions) <= before + 4
