"""The order in which the entries of a queue's state changed, for links that copy the state to another cluster. Pure.

There is one list for each queue that a link has asked for lately, so that each call gives what changed since the last
one. It has the keys of all entries, and those of the last `REMOVED_MOST` that were removed: a reader that missed more
removals begins again.
"""

from collections.abc import Iterable, Iterator, Mapping

from headrace.model.queue_state import MOVED_TO, OWN_KEYS, StatePosition

REMOVED_MOST = 50_000
PAGE_ENTRIES = 10_000
PAGE_BYTES = 1024 * 1024
"""The most of a page, but at least one entry."""

Changes = list[tuple[bytes, bytes | None]]


class StateChanges:
    def __init__(self, instance: str, keys: Iterable[bytes]) -> None:
        """`instance` is never used again for another list. `keys` are those of the entries now."""
        self.instance = instance
        self._version = 0
        self._set: dict[bytes, int] = {}
        """By key, when the entry was set last; in this order."""
        self._removed: dict[bytes, int] = {}
        self._complete_from = 0
        """Readers below this version may have missed a removal."""
        for key in keys:
            self.set(key)

    def set(self, key: bytes) -> None:
        if _is_copied(key):
            self._removed.pop(key, None)
            self._note(self._set, key)

    def remove(self, key: bytes) -> None:
        if _is_copied(key):
            self._set.pop(key, None)
            self._note(self._removed, key)
            if len(self._removed) > REMOVED_MOST:
                self._complete_from = self._removed.pop(next(iter(self._removed)))

    def _note(self, order: dict[bytes, int], key: bytes) -> None:
        self._version += 1
        order.pop(key, None)
        order[key] = self._version

    def is_known(self, position: StatePosition) -> bool:
        """True if changes since this position can be given; otherwise a reader begins again."""
        return position.instance == self.instance and self._complete_from <= position.version <= self._version

    def since(self, version: int, entries: Mapping[bytes, bytes]) -> tuple[Changes, int, bool]:
        """The first changes after a version, the version up to which they go, and whether these are all."""
        changed = sorted([*_after(self._set, version), *_after(self._removed, version)])
        page: Changes = []
        size_bytes = 0
        for at, key in changed:
            value = entries.get(key)
            size_bytes += len(key) + len(value or b"")
            if page and (size_bytes > PAGE_BYTES or len(page) == PAGE_ENTRIES):
                return page, version, False
            page.append((key, value))
            version = at
        return page, self._version, True


def _after(order: dict[bytes, int], version: int) -> Iterator[tuple[int, bytes]]:
    """The newest first."""
    for key, at in reversed(order.items()):
        if at <= version:
            return
        yield at, key


def _is_copied(key: bytes) -> bool:
    """Entries of the host are for this cluster, except the names of queues that messages were moved to."""
    return not key.startswith(OWN_KEYS) or key.startswith(OWN_KEYS + MOVED_TO)
