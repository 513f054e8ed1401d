"""Rows go where every other client would send them."""

import random

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from headrace.client.partitioners import by_key
from headrace.model.errors import InvalidRecord
from headrace.records.partitioner import murmur2, rows_by_partition


def test_hashes_are_those_of_java() -> None:
    made = random.Random(4)
    keys = [made.randbytes(size) for size in [*range(40), *(made.randrange(300) for _ in range(300))]]
    expected = [kafka_python_murmur2(key) & 0xFFFFFFFF for key in keys]
    assert murmur2(pa.array(keys, pa.binary())).tolist() == expected
    assert murmur2(pa.array(keys, pa.binary()).slice(7, 50)).tolist() == expected[7:57]
    assert murmur2(pa.array(["größe"])).tolist() == [kafka_python_murmur2("größe".encode()) & 0xFFFFFFFF]
    assert murmur2(pa.array([], pa.binary())).tolist() == []


def test_keys_go_where_the_client_sends_them() -> None:
    keys = [b"key %d" % n for n in range(1_000)]
    found = rows_by_partition(7, 1_000, keys=pa.array(keys))
    assert sorted(row for rows in found.values() for row in rows) == list(range(1_000))
    for partition, rows in found.items():
        assert rows.tolist() == sorted(rows)
        assert {by_key(keys[row], 7) for row in rows} == {partition}


def test_a_named_partition_comes_before_the_key() -> None:
    by_hash = by_key(b"a", 5)
    named, first = (by_hash + 1) % 5, (by_hash + 2) % 5
    explicit = pa.array([named, None, named, None], pa.int32())
    found = rows_by_partition(5, 4, keys=pa.array([b"a", b"a", None, None]), explicit=explicit, start=first)
    assert {number: rows.tolist() for number, rows in found.items()} == {named: [0, 2], by_hash: [1], first: [3]}


def test_rows_without_a_key_go_in_runs() -> None:
    found = rows_by_partition(3, 10, keys=pa.nulls(10, pa.binary()), start=2, run_rows=3)
    assert {number: rows.tolist() for number, rows in found.items()} == {
        2: [0, 1, 2, 9],
        0: [3, 4, 5],
        1: [6, 7, 8],
    }
    dealt = rows_by_partition(3, 5, run_rows=1)
    assert {number: rows.tolist() for number, rows in dealt.items()} == {0: [0, 3], 1: [1, 4], 2: [2]}
    assert rows_by_partition(3, 0) == {}


@pytest.mark.parametrize("wrong", [-1, 3, 2**31])
def test_a_partition_that_is_not_there_is_refused(wrong: int) -> None:
    with pytest.raises(InvalidRecord, match=f"row 1 names partition {wrong}") as caught:
        rows_by_partition(3, 3, explicit=pa.array([0, wrong, None], pa.int64()))
    assert caught.value.record_indexes == (1,)
