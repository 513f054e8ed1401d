"""The answers of one connection, in the order of its requests: those that are awaited, and those ready to be sent.

The answers to requests that are handled one after another are sent with one system call, and so are those that become
ready later, in one turn of the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import cast

from headrace.kafka.answers import AnswerSlot
from headrace.kafka.outbox import Outbox, Part
from headrace.kafka.request_turn import TurnTimer
from headrace.runtime.disk import Buffer

_LENGTH = Struct(">i")
_JOIN_BELOW_BYTES = 4096
_SEND_AT_BYTES = 64 * 1024


def _nothing(size_bytes: int) -> None: ...


class AnswerQueue:
    __slots__ = (
        "_on_sent",
        "_out",
        "_out_bytes",
        "_scheduled",
        "_timer",
        "held_bytes",
        "in_flight",
        "is_collecting",
        "outbox",
        "slots",
    )

    def __init__(self, timer: TurnTimer | None, on_sent: Callable[[int], None]) -> None:
        """`on_sent` is called each time that answers were passed to the socket, with their size."""
        self._timer = timer
        self._on_sent = on_sent
        self.outbox: Outbox | None = None
        """Where answers are sent; None before the connection is made, and after it is lost."""
        self.slots: deque[AnswerSlot] = deque()
        """The places of the requests in flight, in their order."""
        self.in_flight = 0
        """The number of requests in flight."""
        self._out: list[Part] = []
        self._out_bytes = 0
        self._scheduled: asyncio.Handle | None = None
        self.is_collecting = False
        """Whether the connection handles requests, and calls `send` after that."""
        self.held_bytes = 0
        """The size of answers that are ready and wait for an earlier one."""

    @property
    def has_ready(self) -> bool:
        """True if answers are ready, and not passed to the socket yet."""
        return bool(self._out)

    def add(self, slot: AnswerSlot) -> None:
        """Add the place of the next request, or of several."""
        self.slots.append(slot)
        self.in_flight += slot.request_count

    def hurry(self) -> None:
        """End the waits of all answers that can be given early."""
        _hurry(tuple(self.slots))

    def abandon(self) -> None:
        """The connection is lost: no answer is sent any more."""
        self.outbox = None
        # It refers back to the connection: breaking the cycle frees the memory without the collector.
        self._on_sent = _nothing
        slots, self.slots, self.in_flight = self.slots, deque(), 0
        _hurry(slots)

    def fill(self, slot: AnswerSlot, buffers: Sequence[Part]) -> bool:
        """Fill the slot, and send every answer that is next in order; False if that one is not."""
        slot.buffers = buffers
        slots = self.slots
        if slots[0] is not slot:
            slot.size = sum(map(len, buffers))
            self.held_bytes += slot.size
            return False
        out = self._out
        while slots and (ready := slots[0].buffers) is not None:
            done = slots.popleft()
            self.held_bytes -= done.size
            self.in_flight -= done.request_count
            if (turn := done.turn) is not None:
                if not turn.unsent and self._timer is not None:
                    self._timer.unsent.append(turn)
                turn.unsent += done.request_count
            if not ready:
                continue
            size = sum(map(len, ready))
            self._out_bytes += size
            if done.is_framed:
                out.append(b"".join(cast(Sequence[Buffer], ready)))
            elif size < _JOIN_BELOW_BYTES:
                out.append(_LENGTH.pack(size) + b"".join(cast(Sequence[Buffer], ready)))
            else:
                out.append(_LENGTH.pack(size))
                out.extend(ready)
        if self._out_bytes >= _SEND_AT_BYTES:
            self.send()
        elif self._scheduled is None and not self.is_collecting:
            self._scheduled = asyncio.get_running_loop().call_soon(self.send)
        return True

    def pass_on(self, parts: Sequence[Part], size_bytes: int) -> None:
        """Add an answer, with its length, to a request that was handled while no other is in flight; `size_bytes` is
        without the length."""
        self._out.extend(parts)
        self._out_bytes += size_bytes
        if self._out_bytes >= _SEND_AT_BYTES:
            self.send()

    def send(self) -> None:
        """Send all answers that are ready in one system call."""
        self._scheduled = None
        size_bytes = self._out_bytes
        out, self._out, self._out_bytes = self._out, [], 0
        if out and self.outbox is not None:
            self.outbox.send(out)
        if (timer := self._timer) is not None and timer.unsent:
            timer.sent()
        self._on_sent(size_bytes)


def _hurry(slots: Iterable[AnswerSlot]) -> None:
    for slot in slots:
        if slot.deferred is not None:
            slot.deferred.hurry()
