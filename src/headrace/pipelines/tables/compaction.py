"""Merging small files of a table into larger ones, in commits of their own.

The merged file is written and synced first. Then one commit puts it in the place of those it is made of: whoever reads
sees the ones or the other. A crash before that leaves a file that nobody has heard of, and the next writer removes it.
"""

from collections.abc import Callable, Sequence

import pyarrow.parquet as pq

from headrace.pipelines.tables import merging
from headrace.pipelines.tables.parquet import merge, unified
from headrace.pipelines.tables.store import TableError, TableFile, TableState, TableStore
from headrace.runtime.disk import Disk


def compact(
    store: TableStore,
    state: TableState,
    disk: Disk,
    *,
    target_bytes: int,
    fan_in: Callable[[str], int],
    name: Callable[[Sequence[TableFile]], str],
) -> TableState:
    """Merge what is worth it, folder by folder; the state after it.

    Files are neighbours in the order of their names. `fan_in` says for a folder how many small ones are worth a merge,
    `name` how the file is called that takes the place of some.
    """
    for folder in sorted({file.folder for file in state.files}):
        files = sorted((file for file in state.files if file.folder == folder), key=lambda file: file.name)
        added, removed = [], []
        for run in merging.plan([file.size_bytes for file in files], target_bytes, fan_in(folder)):
            old = files[run.start : run.end]
            paths = [store.path(file) for file in old]
            new = name(old)
            schema = unified(pq.read_schema(path) for path in paths)
            rows, size_bytes = merge(disk, paths, store.path_for_new(new, folder), schema)
            if rows != sum(file.rows for file in old):
                raise TableError(f"{len(old)} files of {store.root} have {rows} rows, not as many as was recorded")
            added.append(TableFile(new, folder, rows, size_bytes))
            removed += [file.name for file in old]
        if added:
            state = store.commit(state, add=added, remove=removed, properties=state.properties)
    return state
