"""The timeouts of a client on its connection: idle, stalled inside a request, not authenticated, muted. Pure."""

from headrace.kafka.connection_state import ConnectionState
from headrace.kafka.frame_memory import FrameMemory
from headrace.protocol.frames import FrameReader

_SLOWEST_BYTES_PER_MS = 16
"""The minimum average rate at which a request that exceeds the stall timeout must arrive."""


class ClientTimeouts:
    """When a client was last active, and whether its connection is to be closed for that. The caller has the clock."""

    __slots__ = ("_frames", "_memory", "_state", "_unsent_bytes", "active_ms", "admitted_ms", "frame_began_ms")

    def __init__(self, state: ConnectionState, frames: FrameReader, memory: FrameMemory) -> None:
        self._state = state
        self._frames = frames
        self._memory = memory
        self._unsent_bytes = 0
        self.admitted_ms = 0.0
        self.active_ms = 0.0
        """When bytes were last received, or sent to a client that reads slowly."""
        self.frame_began_ms = 0.0
        """When the partly received frame began to arrive, or reading last resumed."""

    def note_unsent(self, unsent_bytes: int, now_ms: float) -> None:
        """Note how much of the answers the client has not read: it is active if that has changed."""
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self.active_ms = now_ms

    def why_close(self, now_ms: float, *, idle_ms: float, stall_ms: float, is_idle: bool, is_memory_short: bool) -> str:
        """Why the connection is to be closed, as the end of a sentence about the client; empty if it is not.

        `is_idle`: nothing is being received, handled or answered. `is_memory_short`: others wait for memory.
        """
        silent_ms = now_ms - self.active_ms
        if self._state.is_authenticating and now_ms - self.admitted_ms > stall_ms:
            return f"did not authenticate within {stall_ms} ms"
        if self._is_stalled(now_ms, stall_ms):
            return f"sent part of a request and not the rest within {stall_ms} ms"
        if silent_ms > stall_ms and self._unsent_bytes and self._memory.reserved_bytes:
            return "holds memory with part of a request, and reads no answers"
        if self._state.is_muted:
            # As in Kafka a delay does not keep a connection open for longer than idle ones are: it may be many hours.
            if silent_ms > stall_ms and self._memory.is_of_next_request and is_memory_short:
                return "has exceeded its quota, and others wait for the memory of its next request"
            if silent_ms > idle_ms:
                return f"has exceeded its quota, and was muted for {idle_ms} ms"
        elif silent_ms > idle_ms and (is_idle or self._unsent_bytes):
            return f"was idle for {idle_ms} ms"
        return ""

    def _is_stalled(self, now_ms: float, stall_ms: float) -> bool:
        """True if a frame is incomplete for too long: the client sends nothing, or below the minimum rate."""
        if not (self._state.is_reading and self._frames.is_inside_frame):
            return False
        slow_ms = stall_ms + self._frames.got_bytes / _SLOWEST_BYTES_PER_MS
        return now_ms - self.active_ms > stall_ms or now_ms - self.frame_began_ms > slow_ms
