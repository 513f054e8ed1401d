"""Truncates a log, in part or fully. Blocking, and rare.

After a crash at any point, `recovery` undoes or finishes the truncation: data that must not reappear is removed durably
first, and a reference is removed before its target.
"""

from collections.abc import Sequence

from headrace.model.errors import StorageFailed
from headrace.storage.aborted import replace_aborted
from headrace.storage.segment import Segment
from headrace.storage.state import ALL_COMMITTED, LogState

_NEVER = 2**63 - 1


def truncate_to(log: LogState, offset: int) -> None:
    """Truncate to `offset`, durably. A batch that contains `offset` is dropped whole.

    `end_offset` is then the end of the last remaining batch: `offset`, or less.
    """
    log.check_writable()
    if offset >= log.end_offset:
        log.damage.clear_if_truncated(log.end_offset)
        return
    if offset < log.segments.first.base_offset:
        truncate_fully(log, offset)
        return
    found = log.segments.locate(offset)
    retained = [segment for segment in log.segments.all if segment.base_offset <= offset]
    last = retained[-1]
    cut_at = found[1] if found is not None and found[0] is last else last.size
    new_end = last.end_before(cut_at)
    try:
        _lower_end(log, new_end)
        _remove_last(log, log.segments.all[len(retained) :])
        log.set_segments(retained)
        if cut_at < last.size:
            writer = last.writer or last.open_writer()
            writer.truncate(cut_at)
            writer.sync_data()
            last.size = cut_at
            last.offsets.keep_below(key=new_end - last.base_offset)
            last.times.keep_below(value=new_end - last.base_offset)
        last.load_tail(log.limits.interval_bytes)
    except OSError as error:
        log.fail(error)
        raise StorageFailed(f"truncating {log.directory} failed: {error}") from error
    log.segments.forget_positions()
    log.limits.update(log.segments.active)
    log.epochs.truncate_from(new_end)
    _forget_aborted(log, last, new_end)
    log.producers = log.snapshots.restore(new_end, log.segments.all, log.clock.wall_ms())
    log.damage.clear_if_truncated(log.end_offset)


def truncate_fully(log: LogState, offset: int) -> None:
    """Drop everything, durably, and continue at any `offset`."""
    log.check_writable()
    try:
        _lower_end(log, min(offset, log.start_offset))
        log.snapshots.remove_past(-1)
        log.end_offset = log.flushed_offset = log.start_offset = offset
        log.fit_high_watermark()
        old = log.segments.all
        if old[0].base_offset == offset:
            # The new segment would have the same name, so this one is emptied instead.
            _remove_last(log, old[1:])
            _empty(log, old[0])
            log.set_segments([old[0]])
        else:
            _remove_last(log, old)
            log.set_segments([log.create_segment(offset)])
        log.disk.sync_dir(log.directory)
        log.persist()
    except OSError as error:
        log.fail(error)
        raise StorageFailed(f"truncating {log.directory} failed: {error}") from error
    log.segments.forget_positions()
    log.limits.update(log.segments.active)
    log.epochs.clear()
    log.producers.clear()
    _forget_aborted(log, log.segments.active, 0)
    log.damage.move_to(offset)
    log.damage.clear_if_truncated(log.end_offset)


def _lower_end(log: LogState, new_end: int) -> None:
    """Lower checkpoints and remove snapshots past the new end, before the bytes are dropped."""
    log.generation += 1
    log.summary = None
    log.end_offset = new_end
    if log.cipher is not None:
        log.cipher.forget_recent()
    is_persisted = (
        log.flushed_offset > new_end or log.start_offset > new_end or ALL_COMMITTED > log.high_watermark > new_end
    )
    log.flushed_offset = min(log.flushed_offset, new_end)
    log.start_offset = min(log.start_offset, new_end)
    log.fit_high_watermark()
    if is_persisted:
        log.persist()
    log.snapshots.remove_past(new_end)


def _remove_last(log: LogState, segments: Sequence[Segment]) -> None:
    """Remove segments, the last one first, so that a crash in between leaves no gap."""
    for segment in reversed(segments):
        segment.forget_files()
        for path in (segment.path, *segment.siblings()):
            log.disk.unlink(path)
        log.disk.sync_dir(log.directory)
    log.segments.forget_unsynced(set(segments))


def _empty(log: LogState, segment: Segment) -> None:
    segment.offsets.clear()
    segment.times.clear()
    (segment.writer or segment.open_writer()).truncate(0)
    segment.size = 0
    segment.load_tail(log.limits.interval_bytes)


def _forget_aborted(log: LogState, last: Segment, below: int) -> None:
    """Remove aborted transactions whose markers were truncated, also from the file of the segment that is now last."""
    if any(log.aborted.ending_within(below, _NEVER)):
        log.aborted.keep(0, below)
        try:
            replace_aborted(log.disk, last.aborted_path, log.aborted.ending_within(last.base_offset, _NEVER))
        except OSError as error:
            log.fail(error)
            raise StorageFailed(f"truncating {log.directory} failed: {error}") from error
