"""Counts and times of requests by kind: for the Kafka protocol by API, for HTTP by action. Pure.

A request passes through these phases, each of which has a histogram for each kind, and the sum has one, too:

    received ──queue──▶ begun ──local──▶ handled ──remote──▶ ready ──response──▶ sent

- queue: behind earlier requests of its connection, and for memory;
- local: in its handler, with what the handler awaits before the next request of the connection may begin; if the
  answer is ready then and sent at once, until its bytes are passed to the socket;
- remote: for other things to happen, such as a commit by followers, the disk, or new records for a fetch;
- response: behind earlier answers of its connection, until its bytes are passed to the socket.

Times are held in milliseconds, as the clock has them, and shown in seconds.
"""

from bisect import bisect_left

from headrace.observe.histogram import LATENCY_BOUNDS_S, Histogram

PHASES = ("queue", "local", "remote", "response", "total")
_BOUNDS_MS = tuple(bound * 1000 for bound in LATENCY_BOUNDS_S)
QUICK_MS = _BOUNDS_MS[0]
"""The bound of the first bucket."""


class KindMetrics:
    """The requests of one kind."""

    __slots__ = ("_buckets", "errors", "local_ms", "queue_ms", "quick", "remote_ms", "response_ms")

    def __init__(self) -> None:
        self.quick = 0
        """Requests that took so short a time that they are in the first bucket of each histogram. Most are."""
        self._buckets = tuple([0] * (len(_BOUNDS_MS) + 1) for _ in PHASES)
        """The other requests: how many are in each bucket, by phase."""
        self.queue_ms = self.local_ms = self.remote_ms = self.response_ms = 0.0
        """Sums of all requests."""
        self.errors: dict[str, int] = {}
        """The number of errors by their name; one answer may have several."""

    def record(self, count: int, queue_ms: float, local_ms: float, remote_ms: float, response_ms: float) -> None:
        """Count `count` requests that were answered, each with these times."""
        total_ms = queue_ms + local_ms + remote_ms + response_ms
        self.queue_ms += count * queue_ms
        self.local_ms += count * local_ms
        self.remote_ms += count * remote_ms
        self.response_ms += count * response_ms
        if total_ms <= QUICK_MS:
            self.quick += count
            return
        queue, local, remote, response, total = self._buckets
        queue[bisect_left(_BOUNDS_MS, queue_ms)] += count
        local[bisect_left(_BOUNDS_MS, local_ms)] += count
        remote[bisect_left(_BOUNDS_MS, remote_ms)] += count
        response[bisect_left(_BOUNDS_MS, response_ms)] += count
        total[bisect_left(_BOUNDS_MS, total_ms)] += count

    def failed(self, error: str) -> None:
        """Count an error of an answer."""
        self.errors[error] = self.errors.get(error, 0) + 1

    @property
    def count(self) -> int:
        return self.quick + sum(self._buckets[0])

    def times(self) -> dict[str, Histogram]:
        """The histogram of each phase, in seconds: a copy."""
        sums_ms = [self.queue_ms, self.local_ms, self.remote_ms, self.response_ms]
        found = {}
        for phase, buckets, sum_ms in zip(PHASES, self._buckets, (*sums_ms, sum(sums_ms)), strict=True):
            found[phase] = times = Histogram(LATENCY_BOUNDS_S)
            times.counts = [self.quick + buckets[0], *buckets[1:]]
            times.total = sum_ms / 1000
        return found


class RequestMetrics:
    """The requests of a protocol, by kind. Kinds are names in the code, and so bounded."""

    def __init__(self) -> None:
        self.kinds: dict[str, KindMetrics] = {}

    def kind(self, name: str) -> KindMetrics:
        found = self.kinds.get(name)
        if found is None:
            found = self.kinds[name] = KindMetrics()
        return found

    @property
    def count(self) -> int:
        return sum(kind.count for kind in self.kinds.values())


class ActionMetrics:
    """The requests of a protocol over HTTP, by action. Actions and codes are names in the code, and so bounded."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], int] = {}
        """The number of answers by action and code."""
        self.times: dict[str, Histogram] = {}
        """Seconds from the request's head to its answer, by action."""

    def answered(self, action: str, code: str, took_s: float) -> None:
        key = (action, code)
        self.answers[key] = self.answers.get(key, 0) + 1
        times = self.times.get(action)
        if times is None:
            times = self.times[action] = Histogram(LATENCY_BOUNDS_S)
        times.observe(took_s)
