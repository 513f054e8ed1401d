"""Times the requests of a connection: those of one API that are read and handled together share a turn.

A client that pipelines sends many requests in one piece. Reading the clock for each would cost more than is allowed for
metrics (2 % of such a request is 0.5 µs), so each of them counts with the mean of its turn. A request that comes alone
has exactly its own times.
"""

from collections.abc import Callable

from headrace.kafka.request_meter import FETCH, KafkaRequestMeter
from headrace.observe.request_metrics import KindMetrics


class RequestTurn:
    """Requests of one API that were handled one after another, in one turn of the event loop."""

    __slots__ = (
        "_begun_ms",
        "_received_ms",
        "count",
        "handled_ms",
        "key",
        "kind",
        "ready_ms",
        "unsent",
    )

    def __init__(self, kind: KindMetrics, key: int, received_ms: float, begun_ms: float) -> None:
        self.kind = kind
        self.key = key
        self.count = 1
        """The requests in this turn."""
        self.unsent = 0
        """Of these, those whose answers are ready and in order, but not passed to the socket yet."""
        self.ready_ms = 0.0
        """When the answers became ready that had to wait; 0 until then."""
        self._received_ms = received_ms
        self._begun_ms = begun_ms
        self.handled_ms = 0.0
        """When the last handler returned; 0 while one may be running."""

    def close(self, now_ms: float) -> None:
        """The handlers have returned."""
        if not self.handled_ms:
            self.handled_ms = now_ms

    def sent(self, now_ms: float) -> None:
        """The ready answers have been passed to the socket."""
        sent, self.unsent = self.unsent, 0
        begun_ms, handled_ms, ready_ms, count = self._begun_ms, self.handled_ms or now_ms, self.ready_ms, self.count
        if ready_ms < handled_ms:
            ready_ms = handled_ms
        local_ms, queue_ms = handled_ms - begun_ms, begun_ms - self._received_ms
        if count > 1:
            local_ms /= count
            queue_ms += local_ms * (count - 1) / 2
        self.kind.record(sent, queue_ms, local_ms, ready_ms - handled_ms, now_ms - ready_ms)


class TurnTimer:
    """The turns of one connection."""

    __slots__ = ("_kinds", "_meter", "_now_ms", "_unsent", "current", "has_waited", "received_ms")

    def __init__(self, meter: KafkaRequestMeter, now_ms: Callable[[], float]) -> None:
        self._meter = meter
        self._kinds = meter.by_key
        self._now_ms = now_ms
        self.received_ms = 0.0
        """When bytes were last received. Reading pauses while requests are queued: this is when they came."""
        self.has_waited = False
        """Whether queued requests may have waited since then."""
        self.current: RequestTurn | None = None
        """The turn of the requests that are being handled."""
        self._unsent: list[RequestTurn] = []

    def begin(self, key: int, is_follower: bool) -> RequestTurn:
        """Begin a turn with one request, after another one if there was one in this turn of the event loop."""
        kind = self._kinds.get(key) or self._meter.api(key)
        if is_follower and key == FETCH:
            kind = self._meter.follower_fetches
        received_ms = begun_ms = self.received_ms
        if self.current is not None:
            begun_ms = self._now_ms()
            self.current.close(begun_ms)
        elif self.has_waited:
            begun_ms = self._now_ms()
        self.current = turn = RequestTurn(kind, key, received_ms, begun_ms)
        return turn

    def alone(self, turn: RequestTurn) -> RequestTurn:
        """The turn of a request whose handler goes on as a coroutine: apart from those before it."""
        self.current = None
        if turn.count == 1:
            return turn
        turn.count -= 1
        now_ms = self._now_ms()
        turn.close(now_ms)
        return RequestTurn(turn.kind, turn.key, self.received_ms, now_ms)

    def end(self) -> None:
        """The handlers of this turn of the event loop have returned."""
        turn = self.current
        if turn is not None:
            self.current = None
            if not turn.handled_ms:
                turn.handled_ms = self._now_ms()

    def note_unsent(self, turn: RequestTurn) -> None:
        """An answer of the turn waits to be sent, the first one."""
        self._unsent.append(turn)

    def sent(self) -> None:
        """The answers that were ready have been passed to the socket."""
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            now_ms = self._now_ms()
            for turn in unsent:
                if turn is self.current:
                    self.current = None
                turn.sent(now_ms)
