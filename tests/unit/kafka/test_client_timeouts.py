"""When a connection is closed for what its client does not do."""

import pytest

from headrace.kafka.budget import RequestBudget
from headrace.kafka.client_timeouts import ClientTimeouts
from headrace.kafka.connection_state import ConnectionState
from headrace.kafka.frame_memory import FrameMemory
from headrace.protocol.frames import FrameReader
from headrace.runtime.buffers import BufferPool

IDLE_MS = 30_000.0
STALL_MS = 5_000.0
KIB = 1024


class Watched:
    """The parts of a connection that timeouts are about, admitted and last active at 0 ms."""

    def __init__(self, *, authenticates: bool = False) -> None:
        self.state = ConnectionState()
        self.state.admitted(authenticates=authenticates)
        self.frames = FrameReader(1024 * KIB, BufferPool())
        self.memory = FrameMemory(RequestBudget(1024 * KIB), self.frames, lambda: None)
        self.timeouts = ClientTimeouts(self.state, self.frames, self.memory)

    def receive_part(self) -> None:
        """Receive the first 4 KiB of a large frame, and reserve memory for it."""
        self.frames.feed(memoryview((900 * KIB).to_bytes(4) + bytes(4 * KIB)))
        assert self.memory.reserve()

    def why_close(self, now_ms: float, *, is_idle: bool = True, is_memory_short: bool = False) -> str:
        return self.timeouts.why_close(
            now_ms, idle_ms=IDLE_MS, stall_ms=STALL_MS, is_idle=is_idle, is_memory_short=is_memory_short
        )


def test_an_idle_client_has_the_idle_timeout() -> None:
    watched = Watched()
    assert not watched.why_close(IDLE_MS)
    assert "idle" in watched.why_close(IDLE_MS + 1)
    assert not watched.why_close(IDLE_MS + 1, is_idle=False), "its request is being handled"


def test_a_client_that_reads_its_answers_is_active() -> None:
    watched = Watched()
    watched.timeouts.note_unsent(2000, 1000.0)
    watched.timeouts.note_unsent(1000, IDLE_MS)
    assert not watched.why_close(IDLE_MS + 1000, is_idle=False)
    watched.timeouts.note_unsent(1000, IDLE_MS + 1000)
    assert "idle" in watched.why_close(2 * IDLE_MS + 1, is_idle=False)


def test_a_client_has_to_authenticate_soon() -> None:
    watched = Watched(authenticates=True)
    watched.timeouts.active_ms = STALL_MS
    assert not watched.why_close(STALL_MS)
    assert "authenticate" in watched.why_close(STALL_MS + 1), "however active it is"
    watched.state.authenticated()
    assert not watched.why_close(STALL_MS + 1)


@pytest.mark.parametrize("active_ms", [0.0, STALL_MS], ids=["silent", "too slow"])
def test_a_request_has_to_arrive_in_time(active_ms: float) -> None:
    watched = Watched()
    watched.receive_part()
    watched.timeouts.active_ms = active_ms
    assert not watched.why_close(STALL_MS, is_idle=False)
    assert "not the rest" in watched.why_close(STALL_MS + 1000, is_idle=False)


def test_the_time_of_a_pause_does_not_count() -> None:
    watched = Watched()
    watched.receive_part()
    watched.state.regulate(has_room=False)
    assert not watched.why_close(STALL_MS + 1000, is_idle=False)


def test_a_muted_client_may_hold_memory_that_no_other_client_waits_for() -> None:
    watched = Watched()
    watched.receive_part()
    watched.state.mute()
    watched.state.regulate(has_room=False)
    assert not watched.why_close(STALL_MS + 1, is_idle=False)
    assert "others wait" in watched.why_close(STALL_MS + 1, is_idle=False, is_memory_short=True)
    assert "muted" in watched.why_close(IDLE_MS + 1, is_idle=False)
    watched.memory.is_in_use = True
    assert not watched.why_close(STALL_MS + 1, is_idle=False, is_memory_short=True), "it is that of a begun request"
