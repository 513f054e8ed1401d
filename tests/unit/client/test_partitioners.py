from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.partitioners import RoundRobin, Sticky, by_key
from headrace.model.murmur import murmur2


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # From the tests of Apache Kafka's Utils.murmur2, where the numbers are signed.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_java(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32


@given(st.binary(), st.integers(1, 1000))
def test_a_key_has_one_partition(key: bytes, partitions: int) -> None:
    assert by_key(key, partitions) == by_key(key, partitions)
    assert 0 <= by_key(key, partitions) < partitions
    assert 0 <= by_key(None, partitions) < partitions


def test_round_robin_takes_turns() -> None:
    choose = RoundRobin()
    assert [choose(b"same", 3) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


@given(st.integers(1, 5), st.integers(1, 10))
def test_sticky_stays_for_a_run_and_then_moves(run: int, partitions: int) -> None:
    choose = Sticky(run)
    runs = [{choose(None, partitions) for _ in range(run)} for _ in range(20)]
    assert all(len(each) == 1 for each in runs)
    if partitions > 1:
        assert all(a != b for a, b in pairwise(runs))


def test_sticky_survives_a_topic_with_fewer_partitions() -> None:
    choose = Sticky(10, choose=lambda n: n - 1)
    assert choose(None, 8) == 7
    assert choose(None, 2) in (0, 1)
