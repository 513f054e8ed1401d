"""Which events a connection's state allows, and what they lead to."""

import pytest

from headrace.kafka.connection_state import ConnectionState, Dispatch, IllegalTransition, Intake, Phase


def serving() -> ConnectionState:
    state = ConnectionState()
    state.admitted()
    return state


def test_no_request_begins_before_the_connection_is_admitted() -> None:
    state = ConnectionState()
    assert not state.may_begin_request
    state.admitted()
    assert state.may_begin_request


def test_a_refused_connection_closes_without_having_served() -> None:
    state = ConnectionState()
    assert state.close()
    assert state.phase is Phase.CLOSING
    with pytest.raises(IllegalTransition):
        state.admitted()


def test_draining_begins_no_request_and_still_ends_in_closing() -> None:
    state = serving()
    state.drain()
    assert state.phase is Phase.DRAINING
    assert not state.may_begin_request
    assert state.close()
    assert state.phase is Phase.CLOSING


def test_draining_does_not_reopen_a_closing_connection() -> None:
    state = serving()
    state.close()
    state.drain()
    assert state.phase is Phase.CLOSING


def test_closing_begins_once() -> None:
    state = serving()
    assert state.close()
    assert not state.close()
    state.lost()
    assert not state.close()
    assert state.phase is Phase.CLOSED


def test_a_connection_is_lost_once() -> None:
    state = serving()
    state.lost()
    with pytest.raises(IllegalTransition):
        state.lost()


def test_a_handler_cannot_begin_the_next_request_from_inside() -> None:
    state = serving()
    assert state.begin_dispatch()
    assert not state.begin_dispatch()
    state.end_dispatch()
    assert state.begin_dispatch()


def test_a_coroutine_blocks_the_requests_after_it_until_it_ends() -> None:
    state = serving()
    state.begin_dispatch()
    state.block()
    assert not state.may_begin_request
    state.end_dispatch()
    assert state.dispatch is Dispatch.BLOCKED
    assert not state.begin_dispatch()
    state.unblock()
    assert state.may_begin_request
    assert state.begin_dispatch()


@pytest.mark.parametrize("event", [ConnectionState.block, ConnectionState.unblock, ConnectionState.memory_available])
def test_an_event_that_cannot_happen_is_an_error(event: object) -> None:
    with pytest.raises(IllegalTransition):
        event(serving())  # type: ignore[operator]


def test_reading_is_paused_and_resumed_once_each() -> None:
    state = serving()
    assert not state.regulate(has_room=True)
    assert state.regulate(has_room=False)
    assert not state.regulate(has_room=False)
    assert state.regulate(has_room=True)
    assert state.is_reading


def test_room_does_not_resume_reading_while_memory_is_awaited() -> None:
    state = serving()
    assert state.await_memory()
    assert not state.regulate(has_room=True)
    assert state.intake is Intake.AWAITING_MEMORY
    state.memory_available()
    assert not state.is_reading
    assert state.regulate(has_room=True)


def test_a_paused_connection_that_awaits_memory_is_not_paused_again() -> None:
    state = serving()
    state.regulate(has_room=False)
    assert not state.await_memory()
    assert state.is_awaiting_memory


def test_a_muted_connection_begins_nothing_until_it_is_unmuted() -> None:
    state = serving()
    assert state.mute()
    assert state.mute()
    assert not state.may_begin_request
    state.unmute()
    assert state.may_begin_request


def test_muting_neither_reopens_nor_delays_a_connection_that_ends() -> None:
    state = serving()
    state.mute()
    state.drain()
    state.unmute()
    assert state.phase is Phase.DRAINING
    assert not state.mute()
    assert ConnectionState().mute() is False
