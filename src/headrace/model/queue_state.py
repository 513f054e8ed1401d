"""The persisted state of a queue as a link reads it: the entries of `__queue_state` that changed since a position."""

import msgspec

OWN_KEYS = b"!"
"""Keys of the entries of a queue's host begin with it; all others are its engine's."""
MOVED_TO = b"to:"
"""After `OWN_KEYS`, the beginning of the key of an entry that names a queue to which messages were moved."""


class StatePosition(msgspec.Struct, array_like=True, frozen=True):
    """How far a reader is; the default is the beginning."""

    instance: str = ""
    """Of the list of changes: a broker that begins to lead has a new one."""
    version: int = 0


class StateChangesPage(msgspec.Struct, array_like=True, frozen=True):
    """Entries that changed after a position. Together with the pages before it up to one that `is_last`, they are a
    state that the queue was in; up to any other page they are not."""

    epoch: int
    """The leader epoch of the queue's partition, as of the last opening; -1 if the queue has no state yet."""
    term: int
    """The number of openings."""
    position: StatePosition
    """Where the next page begins."""
    is_reset: bool
    """Drop all entries of earlier pages first: the former position is too old, or of another list."""
    is_last: bool
    entries: list[tuple[bytes, bytes | None]]
    """None for an entry that was removed."""
