"""The delay of a connection: of a client that has exceeded a quota, or that waits to be admitted."""

import asyncio
from collections.abc import Callable

from headrace.kafka.connection_state import ConnectionState


def _nothing() -> None: ...


class MuteTimer:
    """Mutes a connection (KIP-219): it begins no request until the delay ends, and reads none."""

    __slots__ = ("_on_end", "_state", "_timer")

    def __init__(self, state: ConnectionState, on_end: Callable[[], None]) -> None:
        """`on_end` is called when the connection may go on."""
        self._state = state
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None

    def mute(self, delay_ms: float) -> bool:
        """Mute for a time; if it is muted already, until the later end. False if the connection is not serving."""
        if not self._state.mute():
            return False
        loop = asyncio.get_running_loop()
        until_s = loop.time() + delay_ms / 1000
        if self._timer is not None:
            until_s = max(until_s, self._timer.when())
            self._timer.cancel()
        self._timer = loop.call_at(until_s, self._unmute)
        return True

    def _unmute(self) -> None:
        self._timer = None
        self._state.unmute()
        self._on_end()

    def admit_after(self, delay_ms: float, decided: Callable[[], None]) -> None:
        """Admit or refuse the connection after a delay."""

        def end() -> None:
            self._timer = None
            decided()

        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, end)

    def abandon(self) -> None:
        """The connection is lost: nothing is called any more."""
        # It refers back to the connection: breaking the cycle frees the memory without the collector.
        self._on_end = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
