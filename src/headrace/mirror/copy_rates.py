"""How fast links copy, from what was copied between two looks. Pure.

Nothing measures in the background: a rate is known from the second look on, and of looks that are at most `_STALE_MS`
apart. Bytes are counted by the leaders of partitions, from zero on when a leader changes: then the rate is unknown
until the next look.
"""

from typing import NamedTuple

_WINDOW_MS = 5_000
_STALE_MS = 60_000


class _Sample(NamedTuple):
    at_ms: float
    bytes_copied: int


class CopyRates:
    """The last two samples of each link, some seconds apart."""

    def __init__(self) -> None:
        self._samples: dict[str, tuple[_Sample, _Sample]] = {}

    def note(self, link: str, bytes_copied: int, now_ms: float) -> float | None:
        """Note what was copied over a link so far; bytes per second since the sample before, None if that is not
        known."""
        now = _Sample(now_ms, bytes_copied)
        older, newer = self._samples.get(link, (now, now))
        if now_ms - newer.at_ms > _STALE_MS or bytes_copied < newer.bytes_copied:
            older = newer = now
        elif now_ms - newer.at_ms >= _WINDOW_MS:
            older, newer = newer, now
        self._samples[link] = older, newer
        passed_ms = now_ms - older.at_ms
        return None if passed_ms <= 0 else (bytes_copied - older.bytes_copied) * 1000 / passed_ms

    def keep(self, links: frozenset[str]) -> None:
        """Forget links that were deleted."""
        self._samples = {name: samples for name, samples in self._samples.items() if name in links}
