"""De-duplication of messages that come from other queues. Pure.

They come in pages (see `move.transfer`), one page of a stream after another, and a page that was sent twice is in the
log twice. A page is appended as a whole, and its number is higher than that of the last one: so the last page of each
stream, with the offset of its first copy, is enough to recognize copies. It is remembered for ever: about a hundred
bytes for each queue that messages ever came from.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.coordinator.machine import InternalRecord
from headrace.queues.engine.stored import PAGES, PagesValue, entry


class PageSlot(NamedTuple):
    """The place of a message in a page."""

    stream: int
    page: int
    at: int


class MovedPages:
    def __init__(self) -> None:
        self._known: dict[int, list[tuple[int, int]]] = {}
        """By stream: number and first offset of the last page, and of earlier ones whose records may be read again
        after a restart."""
        self._changed: set[int] = set()
        self._read_from = 0
        """Records below are not read again after a restart from any entries that may be persisted now."""

    def is_new(self, place: PageSlot, offset: int) -> bool:
        """Whether the message at this offset is the first copy."""
        known = self._known.setdefault(place.stream, [])
        if known and place.page <= known[-1][0]:
            return (place.page, offset - place.at) == known[-1]
        known.append((place.page, offset - place.at))
        self._changed.add(place.stream)
        return True

    def last(self, stream: int) -> int | None:
        """The number of the last page of a stream; None if there was none."""
        known = self._known.get(stream)
        return known[-1][0] if known else None

    # -- persisting

    def load(self, streams: Iterable[tuple[int, PagesValue]], end: int) -> None:
        """Load the pages that began below `end`: messages from there on are indexed again."""
        for stream, value in streams:
            self._known[stream] = [page for page in value.pages if page[1] < end]
        self._read_from = end

    def take(self, saved_to: int) -> list[InternalRecord]:
        """Records below `saved_to` are not read again once all entries are persisted that are taken together: after a
        purge, it is the head behind these that says so."""
        entries = []
        for stream in self._changed:
            known = self._known[stream]
            while len(known) > 1 and known[1][1] < self._read_from:
                del known[0]
            entries.append(entry(PAGES, stream, PagesValue(known)))
        self._changed.clear()
        self._read_from = saved_to
        return entries
