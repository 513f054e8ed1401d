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
        "_handled_ms",
        "_local_ms",
        "_queue_ms",
        "_received_ms",
        "count",
        "is_open",
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
        self.is_open = True
        """Whether a handler may still be running."""
        self._received_ms = received_ms
        self._begun_ms = begun_ms

    def close(self, now_ms: float) -> None:
        """The handlers have returned."""
        if self.is_open:
            self.is_open = False
            self._handled_ms = now_ms
            self._local_ms = local_ms = (now_ms - self._begun_ms) / self.count
            self._queue_ms = self._begun_ms - self._received_ms + local_ms * (self.count - 1) / 2

    def sent(self, now_ms: float) -> None:
        """The ready answers have been passed to the socket."""
        count, self.unsent = self.unsent, 0
        self.close(now_ms)
        handled_ms = self._handled_ms
        ready_ms = self.ready_ms or handled_ms
        self.kind.record(
            count, self._queue_ms, self._local_ms, max(0.0, ready_ms - handled_ms), max(0.0, now_ms - ready_ms)
        )


class TurnTimer:
    """The turns of one connection."""

    __slots__ = ("_meter", "_now_ms", "_unsent", "current", "has_waited", "received_ms")

    def __init__(self, meter: KafkaRequestMeter, now_ms: Callable[[], float]) -> None:
        self._meter = meter
        self._now_ms = now_ms
        self.received_ms = 0.0
        """When bytes were last received. Reading pauses while requests are queued: this is when they came."""
        self.has_waited = False
        """Whether queued requests may have waited since then."""
        self.current: RequestTurn | None = None
        """The turn of the requests that are being handled."""
        self._unsent: list[RequestTurn] = []

    def begin(self, key: int, *, is_follower: bool) -> RequestTurn:
        """Begin a turn with one request, after another one if there was one in this turn of the event loop."""
        kind = self._meter.follower_fetches if is_follower and key == FETCH else self._meter.api(key)
        begun_ms = self.received_ms
        if self.current is not None:
            begun_ms = self._now_ms()
            self.current.close(begun_ms)
        elif self.has_waited:
            begun_ms = self._now_ms()
        self.current = turn = RequestTurn(kind, key, self.received_ms, begun_ms)
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
        if self.current is not None:
            self.current.close(self._now_ms())
            self.current = None

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
