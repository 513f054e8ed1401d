"""Approximate send times of millions of messages, for retention and ageing. Pure.

Messages that were sent within `grain_ms` share a mark. A message counts as sent at its mark, which is never earlier
than its send time: none ages out too early. Marks are in the order of the offsets.
"""

from array import array
from bisect import bisect_left, bisect_right

_FINEST_MS = 100


def grain_ms(retention_ms: int, *ages_ms: int) -> int:
    """The precision that is needed: a ten-thousandth of the retention, a quarter of the other ages that are not 0."""
    return max(_FINEST_MS, min([retention_ms // 10_000, *(age_ms // 4 for age_ms in ages_ms if age_ms)]))


class SendTimes:
    def __init__(self, grain: int) -> None:
        self.grain = grain
        self._lasts = array("q")
        self._times = array("q")
        self._passed = 0
        """How many marks at the beginning are of acked messages."""
        self._began_ms = 0

    def add(self, last: int, sent_ms: int) -> None:
        """The messages from the last one added up to this offset were sent then."""
        lasts, times = self._lasts, self._times
        if len(times) > self._passed and sent_ms - self._began_ms < self.grain:
            lasts[-1] = last
            times[-1] = max(times[-1], sent_ms)
        else:
            self._began_ms = sent_ms
            lasts.append(last)
            times.append(sent_ms)

    def sent_ms(self, offset: int) -> int:
        """The latest time at which the message can have been sent."""
        place = bisect_left(self._lasts, offset, self._passed)
        return self._times[place] if place < len(self._times) else self._began_ms

    @property
    def oldest_ms(self) -> int | None:
        return self._times[self._passed] if self._passed < len(self._times) else None

    def sent_by(self, time_ms: int) -> int | None:
        """The last message sent by then, without a younger one before it."""
        place = bisect_right(self._times, time_ms, self._passed)
        return self._lasts[place - 1] if place > self._passed else None

    def forget_before(self, offset: int) -> None:
        passed = self._passed
        while passed < len(self._lasts) and self._lasts[passed] < offset:
            passed += 1
        self._passed = passed
        if passed > 1024 and passed * 2 > len(self._lasts):
            del self._lasts[:passed], self._times[:passed]
            self._passed = 0
