"""Which messages that came from other queues are here already. Pure.

They come in pages (see `move.transfer`), a page of one queue's stream after another, and one that was sent twice stands
in the log twice. A page is appended whole, and its number is larger than that of the last one: so what tells the first
of two is the last page of each stream, and where it began. That is remembered for ever: some hundred bytes for each
queue that messages ever came from.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.coordinator.machine import InternalRecord
from headrace.queues.engine.stored import PAGES, PagesValue, entry


class PageSlot(NamedTuple):
    """Where in which page a message came."""

    stream: int
    page: int
    at: int


class MovedPages:
    def __init__(self) -> None:
        self._known: dict[int, list[tuple[int, int]]] = {}
        """Per stream number and first offset of the last page, and of those before it whose records may be read again
        after a restart."""
        self._changed: set[int] = set()

    def is_new(self, place: PageSlot, offset: int) -> bool:
        """Whether the message at this offset is the first one of its place, and from now on none other is."""
        known = self._known.setdefault(place.stream, [])
        if known and place.page <= known[-1][0]:
            return (place.page, offset - place.at) == known[-1]
        known.append((place.page, offset - place.at))
        self._changed.add(place.stream)
        return True

    # -- what is kept

    def load(self, streams: Iterable[tuple[int, PagesValue]], end: int) -> None:
        """Only what began below `end`: messages from there on are to be indexed again."""
        for stream, value in streams:
            self._known[stream] = [page for page in value.pages if page[1] < end]

    def take(self, saved_to: int) -> list[InternalRecord]:
        """Records below `saved_to` are not read again."""
        entries = []
        for stream in self._changed:
            known = self._known[stream]
            while len(known) > 1 and known[1][1] < saved_to:
                del known[0]
            entries.append(entry(PAGES, stream, PagesValue(known)))
        self._changed.clear()
        return entries
