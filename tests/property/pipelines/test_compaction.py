"""Which files to merge, on any sequence of sizes."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.tables.compaction import plan_merges, tier

TARGET = 1_000_000
sizes = st.lists(st.integers(1, 2 * TARGET), max_size=60)
fan_ins = st.integers(2, 10)


@given(sizes, fan_ins)
def test_runs_are_of_neighbours_and_fit_the_target(sizes: list[int], fan_in: int) -> None:
    end = 0
    for run in plan_merges(sizes, TARGET, fan_in):
        assert end <= run.start
        assert run.end - run.start >= fan_in
        assert sum(sizes[run.start : run.end]) <= TARGET
        end = run.end


@given(sizes, fan_ins)
def test_large_files_are_left_alone(sizes: list[int], fan_in: int) -> None:
    for run in plan_merges(sizes, TARGET, fan_in):
        assert all(tier(size, TARGET, fan_in) > 0 for size in sizes[run.start : run.end])


@given(st.lists(st.integers(1, TARGET // 10), min_size=1, max_size=400), st.integers(2, 8))
def test_files_stay_few_and_rows_are_rewritten_seldom(arriving: list[int], fan_in: int) -> None:
    """What comes in small pieces is merged as it comes; what is written for it is bounded by the tiers."""
    files: list[int] = []
    written = 0
    for size in arriving:
        files.append(size)
        while runs := plan_merges(files, TARGET, fan_in):
            for run in reversed(runs):
                merged = sum(files[run.start : run.end])
                files[run.start : run.end] = [merged]
                written += merged
    tiers = tier(1, TARGET, fan_in) + 1
    assert sum(files) == sum(arriving)
    assert written <= tiers * sum(arriving)
    assert len([size for size in files if size < TARGET // 2]) <= tiers * fan_in + 2 * sum(arriving) / TARGET * fan_in
