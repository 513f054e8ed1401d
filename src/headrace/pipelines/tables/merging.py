"""Which small files to merge: pure, so that it can be tried out on any sequence of sizes.

Files come in tiers by size, each `fan_in` times larger than the one below, up to the target. When `fan_in` neighbours
are of one tier they are merged, and the result belongs to a higher one: every row is rewritten once per tier and no
more, however small the files were that it came in. The order of the files is kept.
"""

from collections.abc import Sequence
from typing import NamedTuple


class MergeRun(NamedTuple):
    """Neighbours to merge: positions `start` to before `end`."""

    start: int
    end: int


def tier(size_bytes: int, target_bytes: int, fan_in: int) -> int:
    """0 for a file that is large enough, 1 for one that `fan_in` of would fill one of tier 0, and so on."""
    steps, large_bytes = 0, target_bytes // 2
    while size_bytes < large_bytes and large_bytes >= fan_in:
        steps += 1
        large_bytes //= fan_in
    return steps


def plan(sizes_bytes: Sequence[int], target_bytes: int, fan_in: int) -> list[MergeRun]:
    """Runs of at least `fan_in` neighbours, none larger than its fellows by a tier, each no larger than the target.

    A file between larger ones (the last of a quiet hour, say) is taken along with the smaller ones behind it.
    """
    tiers = [tier(size, target_bytes, fan_in) for size in sizes_bytes]
    runs: list[MergeRun] = []
    for wanted in sorted(set(tiers) - {0}, reverse=True):
        start = 0
        while start < len(sizes_bytes):
            end, total = start, 0
            while end < len(sizes_bytes) and tiers[end] >= wanted and total + sizes_bytes[end] <= target_bytes:
                total += sizes_bytes[end]
                end += 1
            if end - start >= fan_in:
                runs.append(MergeRun(start, end))
                for index in range(start, end):
                    tiers[index] = 0
            start = max(end, start + 1)
    return sorted(runs)
