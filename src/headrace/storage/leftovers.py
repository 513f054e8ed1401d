"""Finishes or undoes interrupted changes in a partition's folder, by the suffixes of its files.

.tmp .cleaned .repairing    a file that was being written: removed
.deleted                    a segment that was removed from the log: removed
.repaired                   replaces a damaged segment, which is renamed to .corrupt
<base>-<next>.swap          replaces the segments from base up to next
"""

from pathlib import Path

from headrace.runtime.disk import Disk
from headrace.storage.files import (
    CLEANED,
    CORRUPT,
    DELETED,
    LOG,
    OFFSET_INDEX,
    REPAIRED,
    REPAIRING,
    SWAP,
    TEMPORARY,
    TIME_INDEX,
    TXN_INDEX,
    offset_name,
    parse_offset,
)


def finish_interrupted_changes(disk: Disk, directory: Path) -> dict[str, int]:
    """Finish or undo the changes in progress when the broker stopped; returns the remaining files with their sizes."""
    names = disk.files(directory)
    changed = False
    for name in names:
        if name.endswith((TEMPORARY, CLEANED, REPAIRING, DELETED)):
            disk.unlink(directory / name)
        elif name.endswith(LOG + REPAIRED):
            put_repaired(disk, directory / name)
        elif name.endswith(SWAP):
            _put_swap(disk, directory / name, names)
        else:
            continue
        changed = True
    if not changed:
        return names
    disk.sync_dir(directory)
    return disk.files(directory)


def put_repaired(disk: Disk, repaired: Path) -> None:
    """Replace a damaged segment by its repaired file; the damaged file is renamed to `.corrupt`.

    May be interrupted and called again, like `_put_swap`: the repaired file is renamed last.
    """
    damaged = repaired.with_name(repaired.name.removesuffix(REPAIRED))
    names = disk.files(repaired.parent)
    if damaged.name in names:
        keep_as_corrupt(disk, damaged)
    for suffix in (OFFSET_INDEX, TIME_INDEX):
        disk.unlink(damaged.with_suffix(suffix))
    disk.rename(repaired, damaged)


def keep_as_corrupt(disk: Disk, damaged: Path) -> None:
    """Rename a file to `.corrupt`, under which the broker neither reads nor deletes it."""
    names = disk.files(damaged.parent)
    name, number = damaged.name + CORRUPT, 1
    while name in names:
        number += 1
        name = f"{damaged.name}{CORRUPT}{number}"
    disk.rename(damaged, damaged.with_name(name))


def _put_swap(disk: Disk, swap: Path, names: dict[str, int]) -> None:
    """Replace the segments that a compacted file was made from by that file."""
    base, upto = (int(part) for part in swap.name.removesuffix(SWAP).split("-"))
    for name in names:
        replaced = parse_offset(name, LOG)
        if replaced is None or not base <= replaced < upto:
            continue
        # The first one's file already has the aborted transactions of all.
        suffixes = (OFFSET_INDEX, TIME_INDEX) if replaced == base else (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
        for suffix in (*suffixes, LOG):
            disk.unlink(swap.with_name(offset_name(replaced, suffix)))
    disk.sync_dir(swap.parent)
    disk.rename(swap, swap.with_name(offset_name(base, LOG)))
