"""Deletes records at the start of a log (DeleteRecords)."""

from collections.abc import Awaitable, Callable

from headrace.model.errors import HeadraceError, OffsetOutOfRange
from headrace.storage.log import Log


async def delete_records(
    name: str, log: Log, offset: int, in_worker: Callable[[Callable[[], None]], Awaitable[None]]
) -> int:
    """Delete the records of partition `name` before `offset`, -1 means the high watermark; durable on return.

    Returns the new log start offset. `in_worker` runs disk I/O.
    """
    target = log.high_watermark if offset == -1 else offset
    if target < 0 or target > log.high_watermark:
        raise OffsetOutOfRange(
            f"cannot delete before offset {offset} of {name}: the high watermark is {log.high_watermark}"
        )
    before = log.raise_start(target)
    try:
        await in_worker(log.persist_start)
    except HeadraceError:
        if log.start_offset == target:
            log.lower_start(before)
        raise
    return log.start_offset
