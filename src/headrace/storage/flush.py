"""Begins and completes a flush of a log; `FlushTicket.sync` does the disk work in between."""

from headrace.storage.aborted import aborted_to_bytes
from headrace.storage.files import EPOCHS
from headrace.storage.state import LogState
from headrace.storage.ticket import FlushTicket


def begin_flush(log: LogState) -> FlushTicket | None:
    """Return a ticket to sync everything appended so far; None if it is on disk already."""
    log.check_writable()
    if log.flushed_offset == log.end_offset and not log.segments.unsynced:
        return None
    return _ticket(log, closing=False)


def complete_flush(log: LogState, ticket: FlushTicket) -> bool:
    """Raise `flushed_offset` after a ticket's `sync` returned; False if the log failed or was truncated meanwhile."""
    if ticket.generation != log.generation or log.failure is not None:
        return False
    if ticket.closed:
        for segment in ticket.closed:
            segment.close_writer()
        log.segments.forget_unsynced(set(ticket.closed))
    if ticket.epochs is not None and log.epochs.to_text().encode() == ticket.epochs[1]:
        log.epochs.changed = False
    if ticket.snapshots:
        log.snapshots.note_flushed(len(ticket.snapshots))
    log.flushed_offset = max(log.flushed_offset, ticket.end_offset)
    return True


def flush_to_close(log: LogState) -> None:
    """Flush everything, caches included, so that the log opens again without being checked. Blocking."""
    end, newest, active = log.end_offset, log.snapshots.newest_offset, log.segments.active
    is_empty = not log.segments.size_bytes and newest is None
    if (
        (newest != end and not is_empty)
        or log.flushed_offset != end
        or log.segments.unsynced
        or log.epochs.changed
    ):  # fmt: skip
        log.snapshots.add(end, log.producers.to_snapshot(end))
        if active.size:
            active.store_indexes()
            active.sync_indexes()
        ticket = _ticket(log, closing=True)
        ticket.sync()
        complete_flush(log, ticket)
    log.snapshots.remove_others({end, *log.segments.bases})


def _ticket(log: LogState, *, closing: bool) -> FlushTicket:
    """Make the ticket. With `closing`, the active segment is treated as a closed one."""
    unsynced, active = log.segments.unsynced, log.segments.active
    ticket = FlushTicket(log.disk, log.directory, log.end_offset, log.generation, is_closed=lambda: log.is_closed)
    for segment in unsynced:
        ticket.closed.append(segment)
        if segment.writer is not None:
            ticket.files.append(segment.writer)
    if active.writer is not None:
        ticket.files.append(active.writer)
    ticket.new_names = bool(unsynced)
    for segment in [*unsynced, active] if closing else unsynced:
        limit = log.end_offset if segment is active else segment.next_offset
        aborted = log.aborted.ending_within(segment.base_offset, limit)
        if aborted:
            ticket.aborted.append((segment.aborted_path, aborted_to_bytes(aborted)))
    if log.epochs.changed:
        ticket.epochs = (log.directory / EPOCHS, log.epochs.to_text().encode())
    ticket.snapshots = log.snapshots.pending_files()
    return ticket
