"""Arrow columns as record batches: sizes, sequences, times, and what is refused."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from headrace.model.errors import InvalidRecord
from headrace.records.batch import check_batch, check_counts
from headrace.records.columns import decode, encode
from headrace.records.compression import Codec
from headrace.records.reader import Record, iter_records

NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def block(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def records(batches: list[bytes]) -> list[Record]:
    for one in batches:
        check_counts(check_batch(one))
    return [record for one in batches for record in iter_records(one)]


@pytest.mark.parametrize("codec", list(Codec))
def test_rows_become_records(codec: Codec) -> None:
    rows = block(
        key=pa.array([b"a", None, b""]),
        value=pa.array(["text", None, "größer"]),
        timestamp=pa.array([NOW * 1000 + 999, None, (NOW - 5) * 1000], pa.timestamp("us", tz="UTC")),
        headers=pa.array([[("trace", b"x"), ("none", None)], None, []], HEADERS),
        other=[1, 2, 3],
    )
    [batch] = encode(rows, timestamp_ms=NOW + 1, codec=codec)
    assert records([batch]) == [
        Record(0, NOW, b"a", b"text", (("trace", b"x"), ("none", None))),
        Record(1, NOW + 1, None, None),
        Record(2, NOW - 5, b"", "größer".encode()),
    ]
    header = check_batch(batch)
    assert (header.codec, header.max_timestamp, header.producer_id, header.base_sequence) == (codec, NOW + 1, -1, -1)


def test_columns_that_are_missing_are_null() -> None:
    assert records(encode(block(value=[b"v"]), timestamp_ms=NOW)) == [Record(0, NOW, None, b"v")]
    assert records(encode(block(key=["k"]), timestamp_ms=NOW)) == [Record(0, NOW, b"k", None)]


def test_no_rows_make_no_batches() -> None:
    assert encode(block(value=pa.array([], pa.binary())), timestamp_ms=NOW) == []


def test_batches_fit_their_size_and_number_on() -> None:
    values = [bytes(n % 500) for n in range(20_000)]
    batches = encode(
        block(value=values, key=[b"k"] * 20_000), timestamp_ms=NOW, target_bytes=50_000,
        producer_id=9, producer_epoch=2, base_sequence=2**31 - 10_000, transactional=True,
    )  # fmt: skip
    assert [record.value for record in records(batches)] == values
    assert all(45_000 < len(one) <= 50_000 for one in batches[:-1])
    sequence = 2**31 - 10_000
    for one in batches:
        header = check_batch(one)
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, sequence)
        sequence = (sequence + header.record_count) % 2**31
    assert sequence == 10_000


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    values = [b"a", bytes(5_000), b"b", b"c"]
    batches = encode(block(value=values), timestamp_ms=NOW, target_bytes=1_000)
    assert [[record.value for record in iter_records(one)] for one in batches] == [[b"a"], [bytes(5_000)], [b"b", b"c"]]


def test_times_far_apart_fit_the_size_too() -> None:
    times = pa.array([-(2**62), 2**62, 0, -(2**61)] * 100, pa.timestamp("ms"))
    batches = encode(block(value=[b""] * 400, timestamp=times), timestamp_ms=NOW, target_bytes=1_000)
    assert [record.timestamp for record in records(batches)] == times.cast(pa.int64()).to_pylist()
    assert max(map(len, batches)) <= 1_000


def test_parts_and_other_layouts_of_columns_are_taken() -> None:
    whole = block(
        key=pa.array([f"k{n}" for n in range(10)], pa.large_string()),
        value=pa.array([b"x" * n for n in range(10)], pa.large_binary()),
        timestamp=[datetime.fromtimestamp(n, UTC) for n in range(10)],
        headers=pa.array([[("h", b"%d" % n)] * (n % 3) for n in range(10)], HEADERS),
    )
    expected = records(encode(whole, timestamp_ms=NOW))
    part = records(encode(whole.slice(3, 4), timestamp_ms=NOW))
    assert [one._replace(offset=0) for one in part] == [one._replace(offset=0) for one in expected[3:7]]
    table = pa.Table.from_batches([whole.slice(0, 2), whole.slice(2, 5), whole.slice(7)])
    assert records(encode(table, timestamp_ms=NOW)) == expected
    assert expected[5] == Record(5, 5_000, b"k5", b"xxxxx", (("h", b"5"), ("h", b"5")))


def test_bytes_under_a_null_are_not_written() -> None:
    """Arrow allows anything there."""
    bounds = pa.py_buffer(np.array([0, 3, 6], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), bounds, pa.py_buffer(b"abcdef")])
    assert [one.value for one in records(encode(block(value=column), timestamp_ms=NOW))] == [None, b"def"]


def test_much_is_laid_out_in_parts() -> None:
    values = pa.array([b"v" * 1_000_000] * 90)
    batches = encode(block(value=values), timestamp_ms=NOW, producer_id=1, producer_epoch=0, base_sequence=0)
    assert [check_batch(one).base_sequence for one in batches] == list(range(90))
    [found] = decode(batches[-1], topic="t", partition=0)
    assert found.column("value")[0].as_py() == b"v" * 1_000_000


def test_columns_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="column key is of type int64"):
        encode(block(key=[1], value=[b""]), timestamp_ms=NOW)
    with pytest.raises(InvalidRecord, match="column headers"):
        encode(block(headers=["text"], value=[b""]), timestamp_ms=NOW)


def test_a_header_without_a_key_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="header has no key"):
        encode(block(value=[b"", b""], headers=pa.array([None, [(None, b"x")]], HEADERS)), timestamp_ms=NOW)
