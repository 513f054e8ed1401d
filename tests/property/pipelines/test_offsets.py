"""The planning of what to read, for any offsets: nothing twice, nothing left out, never more than allowed."""

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.source.offsets import (
    OffsetLoss,
    OffsetRange,
    from_json,
    in_turn,
    limited,
    limited_bytes,
    parse_offsets,
    ranges,
    split,
    to_json,
)

PARTITIONS = st.tuples(st.sampled_from(["orders", "payments", "ä.b-c"]), st.integers(0, 20))
SMALL = st.integers(0, 1000)


@st.composite
def backlogs(draw: st.DrawFn) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
    """Where partitions are read up to, and where they end."""
    start = draw(st.dictionaries(PARTITIONS, SMALL, max_size=8))
    return start, {partition: offset + draw(st.integers(0, 500)) for partition, offset in start.items()}


@given(st.dictionaries(PARTITIONS, st.integers(-2, 2**63 - 1)))
def test_json_there_and_back(offsets: dict[tuple[str, int], int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets
    assert parse_offsets(json.dumps(to_json(offsets))) == offsets
    shuffled = dict(reversed(list(offsets.items())))
    assert json.dumps(to_json(shuffled)) == json.dumps(to_json(offsets)), "Spark compares the text"


@given(backlogs(), st.integers(1, 2000))
def test_a_limit_is_kept_and_reached(
    backlog: tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]], limit: int
) -> None:
    start, latest = backlog
    end = limited(start, latest, limit)
    assert end.keys() == latest.keys()
    assert all(start[partition] <= end[partition] <= latest[partition] for partition in latest)
    total = sum(latest.values()) - sum(start.values())
    assert sum(end.values()) - sum(start.values()) == min(limit, total)


@given(backlogs(), st.integers(1, 50))
def test_no_partition_starves(
    backlog: tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]], limit: int
) -> None:
    """Every partition that has something gets on within as many micro-batches as there are partitions."""
    for by_bytes in (False, True):
        at, latest = backlog
        first, after = dict(at), None
        for _ in range(len(latest)):
            end = limited_bytes(at, latest, limit, {}, after) if by_bytes else limited(at, latest, limit, after)
            after = next(iter(in_turn(at, end, after)), None)
            at = end
        assert all(at[partition] > first[partition] or at[partition] == latest[partition] for partition in latest)


@given(backlogs(), st.integers(1, 100_000), st.dictionaries(PARTITIONS, st.floats(0, 1e6, allow_nan=False), max_size=8))
def test_bytes_are_limited_and_something_is_read(
    backlog: tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]],
    limit: int,
    weights: dict[tuple[str, int], float],
) -> None:
    start, latest = backlog
    end = limited_bytes(start, latest, limit, weights)
    assert all(start[partition] <= end[partition] <= latest[partition] for partition in latest)
    taken = {partition: end[partition] - start[partition] for partition in latest}
    if start != latest:
        assert sum(taken.values()) > 0
    weight = sum(count * max(weights.get(partition, 1.0), 0.001) for partition, count in taken.items())
    one = max((max(weights.get(partition, 1.0), 0.001) for partition in latest), default=0)
    assert weight <= limit * 1.001 + one


@given(
    st.dictionaries(PARTITIONS, SMALL, max_size=6),
    st.dictionaries(PARTITIONS, SMALL, max_size=6),
    st.dictionaries(PARTITIONS, SMALL, max_size=6),
)
def test_everything_is_read_or_lost(
    start: dict[tuple[str, int], int], end: dict[tuple[str, int], int], earliest: dict[tuple[str, int], int]
) -> None:
    found, losses = ranges(start, end, earliest)
    for one in found:
        where = one[:2]
        assert earliest[where] <= one.start < one.end == end[where], "what is read is there"
    for partition, until in end.items():
        begin = start.get(partition)
        read = {offset for one in found if one[:2] == partition for offset in range(one.start, one.end)}
        lost = {offset for one in losses if one[:2] == partition for offset in range(one.start, one.end)}
        if begin is None:
            assert partition not in earliest or not lost, "a new partition has lost nothing"
        elif begin <= until:
            assert read | lost == set(range(begin, until))
            assert not read & lost
        else:
            assert lost == set(range(until, begin)) or partition not in earliest


@given(
    st.lists(
        st.builds(OffsetRange, st.just("t"), st.integers(0, 5), st.integers(0, 50), st.integers(0, 200)),
        max_size=6,
        unique_by=lambda one: one.partition,
    ),
    st.integers(0, 40),
    st.integers(0, 60),
)
def test_parts_cover_their_ranges(whole: list[OffsetRange], min_parts: int, max_records: int) -> None:
    parts = split(whole, min_parts=min_parts, max_records=max_records)
    assert all(part.size > 0 for part in parts)
    offsets = sorted((part.partition, offset) for part in parts for offset in range(part.start, part.end))
    assert offsets == sorted((one.partition, offset) for one in whole for offset in range(one.start, one.end))
    assert len(parts) >= min(min_parts, len(offsets))
    if max_records:
        assert all(part.size <= max_records for part in parts)


def test_losses_read_as_sentences() -> None:
    assert str(OffsetLoss("t", 3, 5, 9)) == "offsets 5 to 8 of t-3 no longer exist"
    assert (
        str(OffsetLoss("t", 3, 5, 9, True))
        == "t-3 ends at offset 5 although it was read up to 9: the topic was recreated"
    )
    assert str(OffsetRange("t", 1, 2, 3)) == "t-1 from offset 2 to 3"
