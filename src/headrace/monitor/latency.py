"""How many requests there were between two looks at the counters, and how long they took. Pure."""

from headrace.monitor.snapshots import NO_LATENCY, LatencyStat
from headrace.observe.histogram import LATENCY_BOUNDS_S, quantile
from headrace.observe.request_metrics import RequestMetrics

PRODUCE, FETCH = "Produce", "Fetch"
_PHASES = {PRODUCE: "total", FETCH: "local"}
"""What counts as the time of a request: of a fetch not its wait for new records, which is the remote phase."""


class RequestSample:
    """The requests of the last sample."""

    def __init__(self, requests: RequestMetrics | None) -> None:
        """Without `requests` nothing is known."""
        self._requests = requests
        self._at_ms: float | None = None
        self._count = 0
        self._buckets = {kind: [0] * (len(LATENCY_BOUNDS_S) + 1) for kind in _PHASES}
        self.per_s = 0.0
        self.latency: LatencyStat = NO_LATENCY

    def take(self, now_ms: float) -> None:
        """Compare the counters with those of the last time."""
        if self._requests is None:
            return
        count = self._requests.count
        times_ms = [time_ms for kind in (PRODUCE, FETCH) for time_ms in self._quantiles(kind)]
        if self._at_ms is not None and now_ms > self._at_ms:
            self.per_s = 1000 * (count - self._count) / (now_ms - self._at_ms)
            self.latency = LatencyStat(*times_ms)
        self._at_ms, self._count = now_ms, count

    def _quantiles(self, kind: str) -> tuple[float | None, float | None]:
        found = None if self._requests is None else self._requests.kinds.get(kind)
        if found is None:
            return None, None
        counts = found.times()[_PHASES[kind]].counts
        grown = [now - before for now, before in zip(counts, self._buckets[kind], strict=True)]
        self._buckets[kind] = counts
        return _ms(quantile(LATENCY_BOUNDS_S, grown, 0.5)), _ms(quantile(LATENCY_BOUNDS_S, grown, 0.99))


def _ms(time_s: float | None) -> float | None:
    return None if time_s is None else time_s * 1000
