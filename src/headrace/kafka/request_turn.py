"""Times the requests of a connection: those of one API that are handled one after another share a turn.

A client that pipelines sends many requests in one piece. Reading the clock for each would cost more than is allowed for
metrics (2 % of such a request is 0.5 µs), so each of them counts with the mean of its turn. A request that comes alone
has exactly its own times.

Most requests are answered when their handler returns, and sent before the next event of the loop. For those there is
no object: `TurnTimer` counts them, and reads the clock once, when they have been sent. So sending is part of their
local time, and they have no response time. A request that comes alone finds little of this code in the processor's
caches, where a call costs several times what it costs in a loop: therefore the connection does some steps in place.
"""

from collections.abc import Callable

from headrace.kafka.request_meter import FETCH, KafkaRequestMeter
from headrace.observe.request_metrics import QUICK_MS, KindMetrics

_NO_KEY = -1


class RequestTurn:
    """Requests of one turn that are answered later: their data, a commit, or an earlier answer is to be waited for."""

    __slots__ = ("begun_ms", "count", "handled_ms", "kind", "local_ms", "queue_ms", "ready_ms", "unsent")

    def __init__(self, kind: KindMetrics, queue_ms: float = 0.0, begun_ms: float = 0.0) -> None:
        self.kind = kind
        self.count = 0
        """The requests that share it."""
        self.unsent = 0
        """Of these, those whose answers are ready and in order, but not passed to the socket yet."""
        self.queue_ms = queue_ms
        self.local_ms = 0.0
        self.begun_ms = begun_ms
        self.handled_ms = 0.0
        """When the last handler returned; 0 while one may be running."""
        self.ready_ms = 0.0
        """When the answers became ready; 0 until then."""

    def close(self, now_ms: float) -> None:
        """The handler has returned, which went on as a coroutine."""
        self.local_ms = now_ms - self.begun_ms
        self.handled_ms = now_ms


class TurnTimer:
    """The turns of one connection."""

    __slots__ = ("_kind", "_later", "_meter", "_now_s", "begun_ms", "count", "key", "received_ms", "unsent")

    def __init__(self, meter: KafkaRequestMeter, now_s: Callable[[], float]) -> None:
        self._meter = meter
        self._now_s = now_s
        self.received_ms = 0.0
        """When bytes were last received. Reading pauses while requests are queued: this is when they came."""
        self.begun_ms = 0.0
        """When the current turn began: when its requests came, or later if they were queued."""
        self.key = _NO_KEY
        """The API of the current turn: for another one, call `switch` first."""
        self.count = 0
        """The requests of the current turn."""
        self._kind = meter.follower_fetches
        self._later: RequestTurn | None = None
        """Those of the current turn that are answered later."""
        self.unsent: list[RequestTurn] = []
        """The turns with answers that wait to be sent."""

    def switch(self, key: int, is_follower: bool) -> None:
        """The next request is of this API."""
        is_fetch = key == FETCH
        kind = self._meter.follower_fetches if is_fetch and is_follower else self._meter.api(key)
        if self.count and kind is not self._kind:
            self.begun_ms = self.end()
        self._kind = kind
        # A client may turn out to be a follower by its first fetch.
        self.key = _NO_KEY if is_fetch and not is_follower else key

    @property
    def kind(self) -> KindMetrics:
        return self._kind

    def later(self, count: int = 1) -> RequestTurn:
        """The last requests are answered later."""
        turn = self._later
        if turn is None:
            turn = self._later = RequestTurn(self._kind)
        turn.count += count
        return turn

    def alone(self) -> RequestTurn:
        """The handler of the last request goes on as a coroutine, apart from the others of its turn."""
        self.count -= 1
        if self.count:
            self.begun_ms = self.end()
        turn = RequestTurn(self._kind, self.begun_ms - self.received_ms, self.begun_ms)
        turn.count = 1
        return turn

    def end(self) -> float:
        """The handlers of the current turn have returned, and answers that were ready have been sent. Returns when."""
        now_ms, begun_ms = self._now_s() * 1000.0, self.begun_ms
        took_ms, queue_ms = now_ms - begun_ms, begun_ms - self.received_ms
        if self.count == 1 and self._later is None and not queue_ms and took_ms <= QUICK_MS:
            # A request alone, in the first bucket of each histogram.
            self.count = 0
            kind = self._kind
            kind.quick += 1
            kind.local_ms += took_ms
            return now_ms
        count, self.count = self.count, 0
        local_ms = took_ms / count
        queue_ms += local_ms * (count - 1) / 2
        later, self._later = self._later, None
        if later is not None:
            later.queue_ms, later.local_ms, later.handled_ms = queue_ms, local_ms, now_ms
            count -= later.count
        if count:
            self._kind.record(count, queue_ms, local_ms, 0.0, 0.0)
        return now_ms

    def sent(self) -> None:
        """Answers of earlier turns have been passed to the socket, or of the current one."""
        if self.count:
            self.begun_ms = self.end()
        now_ms, unsent, self.unsent = self._now_s() * 1000.0, self.unsent, []
        for turn in unsent:
            sent, turn.unsent = turn.unsent, 0
            handled_ms = turn.handled_ms
            ready_ms = max(turn.ready_ms, handled_ms)
            turn.kind.record(sent, turn.queue_ms, turn.local_ms, ready_ms - handled_ms, now_ms - ready_ms)
