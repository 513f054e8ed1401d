"""Whatever happens to a connection, its states move along the tables, and it reads and begins requests by the rules."""

from collections.abc import Mapping
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.kafka.connection_state import (
    DISPATCHES,
    INTAKES,
    PHASES,
    ConnectionState,
    Dispatch,
    IllegalTransition,
    Intake,
    Phase,
)

S = TypeVar("S", Phase, Dispatch, Intake)


class ConnectionLife(RuleBasedStateMachine):
    """Events in any order that a socket, a server and handlers can bring about, beside plain facts about the past."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ConnectionState()
        self.was_admitted = self.was_drained = self.was_closed = self.was_lost = False
        self.is_in_loop = self.is_coroutine_running = self.is_memory_awaited = False
        self.is_socket_read = True
        self.before = (self.state.phase, self.state.dispatch, self.state.intake)

    @precondition(lambda self: not (self.was_admitted or self.was_closed or self.was_lost))
    @rule()
    def admitted(self) -> None:
        self.state.admitted()
        self.was_admitted = True

    @precondition(lambda self: self.was_admitted)
    @rule()
    def drain(self) -> None:
        self.state.drain()
        self.was_drained = True

    @rule()
    def close(self) -> None:
        assert self.state.close() is not (self.was_closed or self.was_lost)
        self.was_closed = True

    @precondition(lambda self: not self.was_lost)
    @rule()
    def lost(self) -> None:
        self.state.lost()
        self.was_lost = True

    @rule()
    def pump(self) -> None:
        entered = self.state.begin_dispatch()
        assert entered is not (self.is_in_loop or self.is_coroutine_running)
        self.is_in_loop = self.is_in_loop or entered

    @precondition(lambda self: self.is_in_loop and self.state.may_begin_request)
    @rule()
    def handler_is_a_coroutine(self) -> None:
        self.state.block()
        self.is_coroutine_running = True

    @precondition(lambda self: self.is_in_loop)
    @rule()
    def handlers_return(self) -> None:
        self.state.end_dispatch()
        self.is_in_loop = False

    @precondition(lambda self: self.is_coroutine_running and not self.is_in_loop)
    @rule()
    def coroutine_ends(self) -> None:
        self.state.unblock()
        self.is_coroutine_running = False

    @rule(limits_allow=st.booleans())
    def regulate(self, limits_allow: bool) -> None:
        wanted = limits_allow and self.state.may_begin_request
        if self.state.regulate(has_room=wanted):
            self.is_socket_read = wanted
        assert self.is_socket_read is (wanted and not self.is_memory_awaited)

    @precondition(lambda self: not self.is_memory_awaited)
    @rule()
    def memory_is_short(self) -> None:
        assert self.state.await_memory() is self.is_socket_read
        self.is_memory_awaited, self.is_socket_read = True, False

    @precondition(lambda self: self.is_memory_awaited)
    @rule()
    def memory_comes(self) -> None:
        self.state.memory_available()
        self.is_memory_awaited = False

    @invariant()
    def requests_begin_only_while_serving(self) -> None:
        is_serving = self.was_admitted and not (self.was_drained or self.was_closed or self.was_lost)
        assert self.state.may_begin_request is (is_serving and not self.is_coroutine_running)

    @invariant()
    def answers_match_the_past(self) -> None:
        assert self.state.is_reading is self.is_socket_read
        assert self.state.is_awaiting_memory is self.is_memory_awaited
        assert self.state.is_blocked is self.is_coroutine_running
        assert (self.state.phase is Phase.CLOSED) is self.was_lost

    @invariant()
    def states_move_along_the_tables(self) -> None:
        phase, dispatch, intake = self.before
        self.before = (self.state.phase, self.state.dispatch, self.state.intake)
        _check(PHASES, phase, self.state.phase)
        _check(DISPATCHES, dispatch, self.state.dispatch)
        _check(INTAKES, intake, self.state.intake)


def _check(allowed: Mapping[S, frozenset[S]], before: S, after: S) -> None:
    assert before is after or after in allowed[before], IllegalTransition(f"{before.name} to {after.name}")


TestConnectionLife = ConnectionLife.TestCase


def test_every_state_can_be_reached_and_only_closed_is_final() -> None:
    tables: list[tuple[Any, Any]] = [
        (PHASES, Phase.ACCEPTED),
        (DISPATCHES, Dispatch.READY),
        (INTAKES, Intake.READING),
    ]
    for table, first in tables:
        reached, left = {first}, [first]
        while left:
            found = set(table[left.pop()]) - reached
            reached |= found
            left += found
        assert reached == set(table)
        assert [state for state in table if not table[state]] == ([Phase.CLOSED] if table is PHASES else [])
