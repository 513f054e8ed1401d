"""Decides the offset from which retention keeps a log."""

from headrace.storage.log import Log


def keep_from(log: Log, now_ms: int, *, opened_ms: int) -> int:
    """The offset below which everything may be removed: too old, too much, or below the start offset already.

    Safe in a worker thread while the log grows: records appended meanwhile, and those not acknowledged yet, are not
    below it. `opened_ms` is used for segments of unknown age.
    """
    # Read before the segments: a record that is appended after they were read must not be treated as old.
    end_offset = log.flushed_offset if log.settings.flushes_before_ack else log.end_offset
    segments = log.segments
    if not log.settings.deletes:
        return log.start_offset
    old = too_much = log.start_offset
    if log.settings.retention_ms >= 0:
        oldest = now_ms - log.settings.retention_ms
        for segment in segments:
            newest = segment.max_timestamp
            if segment.size and (newest if newest >= 0 else segment.created_ms or opened_ms) >= oldest:
                break
            old = min(segment.next_offset, end_offset) if segment is not segments[-1] else end_offset
    if log.settings.retention_bytes >= 0:
        excess = log.size_bytes - log.settings.retention_bytes
        for segment in segments[:-1]:
            if segment.size > excess:
                break
            excess -= segment.size
            too_much = segment.next_offset
    return min(max(log.start_offset, old, too_much), end_offset)
