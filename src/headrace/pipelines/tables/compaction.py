"""Compaction: small files of a table are merged into larger ones, each folder in a commit of its own.

`plan_merges` is pure: it chooses the files by their sizes. Files have tiers by size, each `fan_in` times larger than
the one below, up to the target. When `fan_in` adjacent files are of one tier they are merged, and the result belongs to
a higher tier: every row is rewritten at most once per tier, however small the files were. The order of rows is
preserved.

`compact` writes and syncs the merged file first. Then one commit replaces the old files by it, so a reader sees either
the old files or the new one. A crash before the commit leaves a file that belongs to no commit; the next writer removes
it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow.parquet as pq

from headrace.pipelines.tables.parquet import merge, unified
from headrace.pipelines.tables.store import TableError, TableFile, TableState, TableStore
from headrace.runtime.disk import Disk


class MergeRun(NamedTuple):
    """Adjacent files to merge: positions `start` up to, not including, `end`."""

    start: int
    end: int


def tier(size_bytes: int, target_bytes: int, fan_in: int) -> int:
    """0 for a file that is large enough, 1 for a file of which `fan_in` make one of tier 0, and so on."""
    steps, large_bytes = 0, target_bytes // 2
    while size_bytes < large_bytes and large_bytes >= fan_in:
        steps += 1
        large_bytes //= fan_in
    return steps


def plan_merges(sizes_bytes: Sequence[int], target_bytes: int, fan_in: int) -> list[MergeRun]:
    """Runs of at least `fan_in` adjacent files of one tier or smaller, each run at most as large as the target.

    A small file between larger ones (the last of a quiet hour, say) is merged with the smaller files that follow it.
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


def compact(
    store: TableStore,
    state: TableState,
    disk: Disk,
    *,
    target_bytes: int,
    fan_in: Callable[[str], int],
    name: Callable[[Sequence[TableFile]], str],
) -> TableState:
    """Merge small files folder by folder; returns the table's state afterwards.

    Files are adjacent in the order of their names. `fan_in` gives for a folder how many small files are merged at once,
    `name` the name of the file that replaces some files.
    """
    for folder in sorted({file.folder for file in state.files}):
        files = sorted((file for file in state.files if file.folder == folder), key=lambda file: file.name)
        added, removed = [], []
        for run in plan_merges([file.size_bytes for file in files], target_bytes, fan_in(folder)):
            old = files[run.start : run.end]
            paths = [store.path(file) for file in old]
            new = name(old)
            schema = unified(pq.read_schema(path) for path in paths)
            rows, size_bytes = merge(disk, paths, store.path_for_new(new, folder), schema)
            recorded = sum(file.rows for file in old)
            if rows != recorded:
                raise TableError(f"{len(old)} files of {store.root} have {rows} rows, but the table records {recorded}")
            added.append(TableFile(new, folder, rows, size_bytes))
            removed += [file.name for file in old]
        if added:
            state = store.commit(state, add=added, remove=removed, properties=state.properties)
    return state
