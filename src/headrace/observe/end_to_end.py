"""The time of probe messages from sending to receiving, and which are lost. Pure.

A message that is not received within `lost_after_s` counts as lost, also if it arrives later. Quantiles are exact over
the last `WINDOW` messages; histograms and the maximum are of all.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from headrace.observe.histogram import Histogram

WINDOW = 1_000
_REMEMBERED = 1_000
"""So many lost messages are remembered, to recognise them when they arrive late."""


@dataclass(slots=True)
class _Sent:
    at_s: float
    is_acked: bool = False


@dataclass(slots=True)
class EndToEnd:
    """The messages on one path. Not thread-safe."""

    lost_after_s: float
    sent: int = 0
    acked: int = 0
    received: int = 0
    lost: int = 0
    late: int = 0
    """Lost ones that arrived after all."""
    failed: int = 0
    """Messages that could not be sent, which count as lost, too."""
    ack_s: Histogram = field(default_factory=Histogram)
    roundtrip_s: Histogram = field(default_factory=Histogram)
    max_s: float = 0.0
    last_s: float | None = None
    last_error: str = ""
    _pending: OrderedDict[int, _Sent] = field(default_factory=OrderedDict)
    _given_up: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _recent_acks_s: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def pending(self) -> int:
        return len(self._pending)

    def send(self, number: int, now_s: float) -> None:
        """A message is about to be sent. Numbers are not used twice."""
        self.sent += 1
        self._pending[number] = _Sent(now_s)

    def ack(self, number: int, now_s: float) -> None:
        """A broker has acknowledged a message."""
        found = self._pending.get(number)
        self.acked += 1
        if found is not None and not found.is_acked:
            found.is_acked = True
            self._took(now_s - found.at_s, self.ack_s, self._recent_acks_s)

    def fail(self, number: int, error: str) -> None:
        """A message could not be sent."""
        self.last_error = error
        if self._pending.pop(number, None) is not None:
            self.failed += 1
            self._give_up(number)

    def receive(self, number: int, now_s: float) -> None:
        found = self._pending.pop(number, None)
        if found is None:
            if number in self._given_up:
                del self._given_up[number]
                self.late += 1
            return
        self.received += 1
        if not found.is_acked:
            # The acknowledgement is on its way: the message is stored, or it could not have been read.
            self._took(now_s - found.at_s, self.ack_s, self._recent_acks_s)
        self.last_s = now_s - found.at_s
        self.max_s = max(self.max_s, self.last_s)
        self._took(self.last_s, self.roundtrip_s, self._recent_s)

    def expire(self, now_s: float) -> None:
        """Give up messages that were sent too long ago."""
        while self._pending:
            number, oldest = next(iter(self._pending.items()))
            if now_s - oldest.at_s < self.lost_after_s:
                return
            del self._pending[number]
            self._give_up(number)

    def quantile_s(self, share: float) -> float | None:
        """Of the time from sending to receiving."""
        return _quantile(self._recent_s, share)

    def ack_quantile_s(self, share: float) -> float | None:
        return _quantile(self._recent_acks_s, share)

    def _give_up(self, number: int) -> None:
        self.lost += 1
        self._given_up[number] = None
        while len(self._given_up) > _REMEMBERED:
            self._given_up.popitem(last=False)

    @staticmethod
    def _took(seconds: float, histogram: Histogram, recent: "deque[float]") -> None:
        histogram.observe(seconds)
        recent.append(seconds)


def _quantile(values: "deque[float]", share: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
