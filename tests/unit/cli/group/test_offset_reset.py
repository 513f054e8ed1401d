import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.errors import BadArgument
from headrace.cli.group.offset_reset import parse_topic
from headrace.groups.offset_reset import Bounds, ResetTarget, new_offset

HELD = Bounds(first=10, end=50)


def test_targets() -> None:
    assert new_offset(ResetTarget(to_earliest=True), HELD, 30) == 10
    assert new_offset(ResetTarget(to_latest=True), HELD, 30) == 50
    assert new_offset(ResetTarget(to_offset=20), HELD, 30) == 20
    assert new_offset(ResetTarget(shift_by=-5), HELD, 30) == 25
    assert new_offset(ResetTarget(shift_by=5), HELD, None) == 15
    assert new_offset(ResetTarget(to_time_ms=1), Bounds(10, 50, at_time=33), 30) == 33
    assert new_offset(ResetTarget(to_time_ms=1), HELD, 30) == 50


@given(st.integers(0, 100), st.integers(0, 100), st.integers(-200, 200), st.none() | st.integers(0, 300))
def test_never_leaves_what_the_partition_holds(first: int, size: int, shift: int, committed: int | None) -> None:
    bounds = Bounds(first, first + size)
    for target in (ResetTarget(shift_by=shift), ResetTarget(to_offset=abs(shift))):
        assert first <= new_offset(target, bounds, committed) <= first + size


def test_topics_with_partitions() -> None:
    assert parse_topic("orders") == ("orders", None)
    assert parse_topic("orders:0,3") == ("orders", [0, 3])
    for wrong in ("orders:", "orders:x", ":1", "orders:1,-2"):
        with pytest.raises(BadArgument, match="--topic"):
            parse_topic(wrong)
