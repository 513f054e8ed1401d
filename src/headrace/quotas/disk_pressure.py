"""How much producers are slowed down because the disk is nearly full, and when they are refused. Pure.

Below `disk.slow.below.bytes` all producers of a broker together may write at a rate with which the rest, down to
`disk.refuse.below.bytes`, would last for `DRAIN_S`: the less is left, the slower they are. That leaves time for
retention, and for an operator to make room. Below the second bound producers are refused with a retriable error. What
clients need to go on consuming, such as commits of offsets, and what followers replicate is neither slowed nor refused.
"""

NEARLY_FULL = "the disk of the broker is nearly full (disk.refuse.below.bytes): retry when there is room"
DRAIN_S = 10.0
MAX_DELAY_MS = 5_000
"""The longest delay of a producer after one request."""
REFUSED_DELAY_MS = 1_000
_SLOW_SHARE = 0.05
_REFUSE_SHARE = 0.01
"""Of a small disk the bounds are at most these shares of it."""


def paid_until_ms(before_ms: float, now_ms: float, size_bytes: int, left_bytes: float) -> float:
    """When so much is paid for at a rate with which what is left lasts for `DRAIN_S`; `before_ms`: what was before."""
    paid_ms = max(before_ms, now_ms) + size_bytes * DRAIN_S * 1000 / max(1.0, left_bytes)
    return min(paid_ms, now_ms + MAX_DELAY_MS)


class DiskPressure:
    __slots__ = (
        "_free_bytes",
        "_paid_until_ms",
        "_refuse_below_bytes",
        "is_refusing",
        "is_slowing",
        "throttled_count",
        "throttled_ms",
    )

    def __init__(self) -> None:
        self.is_slowing = False
        self.is_refusing = False
        self._free_bytes = 0.0
        self._refuse_below_bytes = 0.0
        self._paid_until_ms = 0.0
        """When what was written until now is paid for, at the rate of its time."""
        self.throttled_count = 0
        """Requests whose producer was delayed."""
        self.throttled_ms = 0

    def update(self, free_bytes: int, total_bytes: int, *, slow_below_bytes: int, refuse_below_bytes: int) -> None:
        """Apply the bounds to the disk as it is now. A bound of 0 turns its effect off."""
        refuse_below = min(refuse_below_bytes, total_bytes * _REFUSE_SHARE)
        self._free_bytes = free_bytes
        self._refuse_below_bytes = refuse_below
        self.is_refusing = free_bytes < refuse_below
        self.is_slowing = self.is_refusing or free_bytes < min(slow_below_bytes, total_bytes * _SLOW_SHARE)

    def produced(self, size_bytes: int, now_ms: float) -> int:
        """Count a Produce request; how long its producer has to wait, in milliseconds."""
        if self.is_refusing:
            return REFUSED_DELAY_MS
        if not self.is_slowing:
            return 0
        left_bytes = self._free_bytes - self._refuse_below_bytes
        self._free_bytes -= size_bytes
        self._paid_until_ms = paid_until_ms(self._paid_until_ms, now_ms, size_bytes, left_bytes)
        return int(self._paid_until_ms - now_ms)

    def note_throttled(self, delay_ms: int) -> None:
        self.throttled_count += 1
        self.throttled_ms += delay_ms
