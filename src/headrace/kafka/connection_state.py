"""The states of a client connection and every rule for moving between them. Pure.

Everything that decides whether a connection reads, begins a request or closes is here: `Connection` reports events and
acts on the resulting state. Three state machines run side by side.

`Phase`, the lifecycle of the connection:

    ACCEPTED ──► AUTHENTICATING ──► SERVING ──► DRAINING ──► CLOSING ──► CLOSED
                                    ▲    │
                                    └─ MUTED

Each may also skip ahead to DRAINING, CLOSING or CLOSED, and a connection that does not use SASL goes from ACCEPTED to
SERVING.
Which requests are answered while a client authenticates is in `authentication.py`.

`Dispatch`, whether the next request may be handled:

    READY ◄──► DISPATCHING ──► BLOCKED ──► READY ◄──► QUEUED

`Intake`, whether bytes are read from the socket:

    READING ◄──► PAUSED ◄──► AWAITING_MEMORY ◄── READING
"""

from collections.abc import Mapping
from enum import IntEnum, auto
from typing import TypeVar


class Phase(IntEnum):
    ACCEPTED = auto()
    """Connected; the server has not admitted it yet."""
    AUTHENTICATING = auto()
    """Admitted; the client has not authenticated by SASL yet."""
    SERVING = auto()
    MUTED = auto()
    """Nothing is read or begun until a delay ends: the client has exceeded a quota. Requests in flight are answered."""
    DRAINING = auto()
    """No request is begun; requests in flight are answered."""
    CLOSING = auto()
    """Nothing is read or begun; answers that are ready are sent, then the socket is closed."""
    CLOSED = auto()


class Dispatch(IntEnum):
    READY = auto()
    DISPATCHING = auto()
    """Handlers are being called: a reentrant call from one of them must not begin the next request."""
    BLOCKED = auto()
    """A handler's coroutine is running, and later requests wait until it ends."""
    QUEUED = auto()
    """The broker is busy: the next request, a bulk request, waits in line (`bulk_line.py`)."""


class Intake(IntEnum):
    READING = auto()
    PAUSED = auto()
    AWAITING_MEMORY = auto()
    """Paused until the budget has memory for the frame that is being received."""


PHASES: Mapping[Phase, frozenset[Phase]] = {
    Phase.ACCEPTED: frozenset({Phase.AUTHENTICATING, Phase.SERVING, Phase.DRAINING, Phase.CLOSING, Phase.CLOSED}),
    Phase.AUTHENTICATING: frozenset({Phase.SERVING, Phase.DRAINING, Phase.CLOSING, Phase.CLOSED}),
    Phase.SERVING: frozenset({Phase.MUTED, Phase.DRAINING, Phase.CLOSING, Phase.CLOSED}),
    Phase.MUTED: frozenset({Phase.SERVING, Phase.DRAINING, Phase.CLOSING, Phase.CLOSED}),
    Phase.DRAINING: frozenset({Phase.CLOSING, Phase.CLOSED}),
    Phase.CLOSING: frozenset({Phase.CLOSED}),
    Phase.CLOSED: frozenset(),
}
DISPATCHES: Mapping[Dispatch, frozenset[Dispatch]] = {
    Dispatch.READY: frozenset({Dispatch.DISPATCHING, Dispatch.QUEUED}),
    Dispatch.DISPATCHING: frozenset({Dispatch.READY, Dispatch.BLOCKED}),
    Dispatch.BLOCKED: frozenset({Dispatch.READY}),
    Dispatch.QUEUED: frozenset({Dispatch.READY}),
}
INTAKES: Mapping[Intake, frozenset[Intake]] = {
    Intake.READING: frozenset({Intake.PAUSED, Intake.AWAITING_MEMORY}),
    Intake.PAUSED: frozenset({Intake.READING, Intake.AWAITING_MEMORY}),
    Intake.AWAITING_MEMORY: frozenset({Intake.PAUSED}),
}

_S = TypeVar("_S", Phase, Dispatch, Intake)

# Looked up for every request: an enum member costs more than a global name.
_AUTHENTICATING, _SERVING = Phase.AUTHENTICATING, Phase.SERVING
_READY, _DISPATCHING, _BLOCKED, _QUEUED = Dispatch.READY, Dispatch.DISPATCHING, Dispatch.BLOCKED, Dispatch.QUEUED
_READING, _PAUSED, _AWAITING_MEMORY = Intake.READING, Intake.PAUSED, Intake.AWAITING_MEMORY


class IllegalTransition(Exception):
    """A bug in `Connection`: an event that cannot happen in this state."""


class ConnectionState:
    __slots__ = ("dispatch", "intake", "phase")

    def __init__(self) -> None:
        self.phase = Phase.ACCEPTED
        self.dispatch = Dispatch.READY
        self.intake = Intake.READING

    # -- queries

    @property
    def may_begin_request(self) -> bool:
        """True while the phase and the previous request allow another one; the caller checks limits."""
        dispatch = self.dispatch
        return (
            (self.phase is _SERVING or self.phase is _AUTHENTICATING)
            and dispatch is not _BLOCKED
            and dispatch is not _QUEUED
        )

    @property
    def is_blocked(self) -> bool:
        return self.dispatch is _BLOCKED

    @property
    def is_ready(self) -> bool:
        """True if no request is being handled, and the next one does not wait in line."""
        return self.dispatch is _READY

    @property
    def is_queued(self) -> bool:
        return self.dispatch is _QUEUED

    @property
    def is_reading(self) -> bool:
        return self.intake is _READING

    @property
    def is_awaiting_memory(self) -> bool:
        return self.intake is _AWAITING_MEMORY

    # -- phase

    @property
    def is_authenticating(self) -> bool:
        return self.phase is _AUTHENTICATING

    def admitted(self, *, authenticates: bool = False) -> None:
        """Serve requests from now on, or with `authenticates` those of an authentication first."""
        self.phase = _next(PHASES, self.phase, Phase.AUTHENTICATING if authenticates else Phase.SERVING)

    def authenticated(self) -> None:
        self.phase = _next(PHASES, self.phase, Phase.SERVING)

    @property
    def is_muted(self) -> bool:
        return self.phase is Phase.MUTED

    def mute(self) -> bool:
        """Begin no request until `unmute`; False if the connection is not serving."""
        if self.phase is _SERVING:
            self.phase = _next(PHASES, self.phase, Phase.MUTED)
        return self.phase is Phase.MUTED

    def unmute(self) -> None:
        """Serve again. No-op on a connection that is draining or closing."""
        if self.phase is Phase.MUTED:
            self.phase = _next(PHASES, self.phase, Phase.SERVING)

    def drain(self) -> None:
        """Begin no more requests. No-op on a connection that is closing."""
        if self.phase < Phase.DRAINING:
            self.phase = _next(PHASES, self.phase, Phase.DRAINING)

    def close(self) -> bool:
        """Begin to close; False if the connection is already closing."""
        if self.phase >= Phase.CLOSING:
            return False
        self.phase = _next(PHASES, self.phase, Phase.CLOSING)
        return True

    def lost(self) -> None:
        self.phase = _next(PHASES, self.phase, Phase.CLOSED)

    # -- dispatch

    def begin_dispatch(self) -> bool:
        """Enter the dispatch loop; False if it is running, or blocked by a coroutine."""
        if self.dispatch is not _READY:
            return False
        self.dispatch = _DISPATCHING
        return True

    def block(self) -> None:
        """Block the next request until the current one, a coroutine, ends."""
        self.dispatch = _next(DISPATCHES, self.dispatch, _BLOCKED)

    def unblock(self) -> None:
        """Allow the next request: the coroutine has ended."""
        if self.dispatch is not _BLOCKED:
            raise IllegalTransition("no request blocks the next one")
        self.dispatch = _READY

    def queue_up(self) -> None:
        """Begin no request until `take_turn`: the broker is busy."""
        self.dispatch = _next(DISPATCHES, self.dispatch, _QUEUED)

    def take_turn(self) -> None:
        """Allow the next request: it has waited in line."""
        if self.dispatch is not _QUEUED:
            raise IllegalTransition("the connection does not wait in line")
        self.dispatch = _READY

    def end_dispatch(self) -> None:
        """Leave the dispatch loop. It stays blocked while a handler's coroutine is running."""
        if self.dispatch is _DISPATCHING:
            self.dispatch = _READY

    # -- intake

    def regulate(self, *, has_room: bool) -> bool:
        """Read exactly while there is room and memory; True if the caller must pause or resume reading."""
        intake = self.intake
        if intake is _AWAITING_MEMORY or has_room is (intake is _READING):
            return False
        self.intake = _READING if has_room else _PAUSED
        return True

    def await_memory(self) -> bool:
        """Stop reading until `memory_available`; True if the caller must pause reading."""
        was_reading = self.intake is _READING
        self.intake = _next(INTAKES, self.intake, _AWAITING_MEMORY)
        return was_reading

    def memory_available(self) -> None:
        """End the wait for memory. Reading stays paused until `regulate` resumes it."""
        if self.intake is not _AWAITING_MEMORY:
            raise IllegalTransition("the connection is not waiting for memory")
        self.intake = _PAUSED


def _next(allowed: Mapping[_S, frozenset[_S]], now: _S, to: _S) -> _S:
    if to not in allowed[now]:
        raise IllegalTransition(f"{now.name} cannot become {to.name}")
    return to
