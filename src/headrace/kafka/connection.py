"""One client connection: frames in, answers out in the same order, reading paused while too much is under way.

What is bounded here, per connection: frames waiting to be handled (what one read brought), requests that are handled
and not answered (`max.in.flight.requests`), bytes of answers that are to come or wait for an earlier one, and bytes the
client does not take off the socket. Past any bound reading pauses; the kernel's buffers and TCP tell the client to slow
down.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from inspect import iscoroutine
from struct import Struct
from typing import Any, Protocol, cast

from headrace.kafka.budget import RequestBudget
from headrace.kafka.dispatch import APIS, Answer, Context, NoAnswer, Peer, Raw, route
from headrace.kafka.handlers.api_versions import unsupported_version_answer
from headrace.kafka.outbox import Outbox, Part
from headrace.kafka.services import Services
from headrace.model.errors import ProtocolError
from headrace.protocol.codec import API_VERSIONS_KEY, api_name, peek_api, read_request_header, write_response
from headrace.protocol.framing import Frame, FrameReader
from headrace.runtime.buffers import BufferPool
from headrace.runtime.deferred import Deferred
from headrace.runtime.disk import Buffer

log = logging.getLogger(__name__)

_LENGTH = Struct(">i")
_HELD_ANSWERS_MAX_BYTES = 16 * 1024 * 1024
_PROMISED_ANSWERS_MAX_BYTES = 64 * 1024 * 1024
"""Past this no further request is begun. What one of them may bring comes on top."""
_JOIN_BELOW_BYTES = 4096
_SEND_AT_BYTES = 64 * 1024
_SLOWEST_BYTES_PER_MS = 16
"""A request may take the time allowed for it, and longer while at least this much of it comes on average."""


class Slot:
    """The place of one answer in the order of answers."""

    __slots__ = ("buffers", "deferred", "size")

    def __init__(self) -> None:
        self.buffers: Sequence[Part] | None = None
        self.deferred: Deferred[Answer] | None = None
        self.size = 0


class ConnectionHost(Protocol):
    """What a connection needs from the server that accepted it."""

    services: Services
    budget: RequestBudget
    scratch: memoryview
    buffers: BufferPool
    max_in_flight: int

    def opened(self, connection: "Connection", transport: asyncio.Transport) -> Peer | None:
        """Admit the connection, or say no with None."""
        ...

    def closed(self, connection: "Connection") -> None: ...

    def drained(self) -> None: ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None: ...

    def now_ms(self) -> float: ...


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_frame_began_ms",
        "_frames",
        "_held_bytes",
        "_host",
        "_is_closing",
        "_is_draining",
        "_is_pumping",
        "_is_read_paused",
        "_is_send_due",
        "_is_serving_one",
        "_last_active_ms",
        "_out",
        "_out_bytes",
        "_outbox",
        "_peer",
        "_promised_bytes",
        "_queue",
        "_reserved_bytes",
        "_slots",
        "_transport",
        "_unsent_bytes",
        "_waits_for_budget",
    )

    def __init__(self, host: ConnectionHost, max_frame_bytes: int) -> None:
        self._host = host
        self._frames = FrameReader(max_frame_bytes, host.buffers)
        self._queue: deque[Frame] = deque()
        self._slots: deque[Slot] = deque()
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self._peer: Peer | None = None
        self._reserved_bytes = 0
        self._held_bytes = 0
        self._promised_bytes = 0
        self._out: list[Part] = []
        self._out_bytes = 0
        self._is_send_due = False
        self._is_serving_one = False
        self._is_pumping = False
        self._is_read_paused = False
        self._waits_for_budget = False
        self._is_draining = False
        self._is_closing = False
        self._unsent_bytes = 0
        self._last_active_ms = 0.0
        """When bytes last came in, or went out to a client that is slow to take them."""
        self._frame_began_ms = 0.0
        """When the frame that is under way began to come, or we began to read it on."""

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast(asyncio.Transport, transport)
        self._outbox = Outbox(stream, self._pump)
        self._last_active_ms = self._host.now_ms()
        self._peer = self._host.opened(self, stream)
        if self._peer is None:
            stream.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._outbox is not None:
            self._outbox.abandon()
            # It refers back to us: without the circle the memory of a connection goes with it.
            self._outbox = None
        self._host.closed(self)
        self._queue.clear()
        self._host.budget.leave(self._budget_has_room)
        self._host.budget.give_back(self._reserved_bytes)
        self._reserved_bytes = 0
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.deferred is not None:
                slot.deferred.hurry()
        if self._peer is not None:
            for closed in tuple(self._peer.on_closed.values()):
                closed()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.window() if self._frames.wants_window else self._host.scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._last_active_ms = self._host.now_ms()
        frames = self._frames
        if not frames.is_inside_frame:
            self._frame_began_ms = self._last_active_ms
        try:
            if frames.wants_window:
                frame = frames.advance(nbytes)
                if frame is not None:
                    self._queue.append(frame)
            else:
                self._queue.extend(frames.feed(self._host.scratch[:nbytes]))
                if self._queue:
                    self._frame_began_ms = self._last_active_ms
        except ProtocolError as error:
            self.close(f"sent a malformed frame: {error}")
            return
        if frames.wants_window:
            self._reserve()
        if self._queue:
            self._pump()

    def eof_received(self) -> bool:
        return False

    # -- the server's side

    @property
    def is_idle(self) -> bool:
        """Nothing is being received, handled or answered."""
        return not (self._queue or self._is_serving_one or self._frames.is_inside_frame or self.has_unanswered)

    @property
    def has_unanswered(self) -> bool:
        """Whether there are requests without an answer, or answers that are not with the client yet."""
        return bool(self._slots or self._out or (self._outbox is not None and self._outbox.pending_bytes))

    def _is_stalled(self, now_ms: float, stall_ms: float) -> bool:
        """The client owes us the rest of a frame for too long: it sends nothing, or too little to ever get done."""
        if self._is_read_paused or not self._frames.is_inside_frame:
            return False
        slow_ms = stall_ms + self._frames.got_bytes / _SLOWEST_BYTES_PER_MS
        return now_ms - self._last_active_ms > stall_ms or now_ms - self._frame_began_ms > slow_ms

    def drain(self) -> None:
        """Take no more requests; those under way are answered."""
        self._is_draining = True
        self._queue.clear()
        self._regulate()
        for slot in tuple(self._slots):
            if slot.deferred is not None:
                slot.deferred.hurry()

    def look_after(self, *, idle_ms: float, stall_ms: float) -> None:
        """Close it if it has been silent too long, sooner where it owes us the rest of a frame. Called now and then."""
        if self._outbox is None or self._transport is None:
            return
        now_ms = self._host.now_ms()
        if self._outbox.pending_bytes != self._unsent_bytes:
            self._unsent_bytes = self._outbox.pending_bytes
            self._last_active_ms = now_ms
        silent_ms = now_ms - self._last_active_ms
        if self._is_closing:
            # What it was to get before is not taken, and may never be.
            if silent_ms > stall_ms:
                self.abort()
        elif self._is_stalled(now_ms, stall_ms):
            self.close(f"sent part of a request and not the rest within {stall_ms} ms")
        elif silent_ms > stall_ms and self._unsent_bytes and self._reserved_bytes:
            self.close("holds memory with part of a request, and takes no answers")
        elif silent_ms > idle_ms and (self.is_idle or self._unsent_bytes):
            self.close(f"was idle for {idle_ms} ms")

    def close(self, reason: str) -> None:
        if self._transport is not None:
            if self._peer is not None:
                log.info("closed the connection of %s: it %s", self._peer.address, reason)
            self._is_closing = True
            self._last_active_ms = self._host.now_ms()
            self._queue.clear()
            self._regulate()
            self._send()
            if self._outbox is not None:
                self._outbox.close_when_empty()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- requests

    def _pump(self) -> None:
        """Handle the requests that may be handled now, each to its end: one may settle an earlier one on its way."""
        if self._is_pumping:
            return
        self._is_pumping = True
        queue = self._queue
        try:
            while queue and self._may_handle():
                self._handle(queue.popleft())
        except ProtocolError as error:
            self.close(f"sent a malformed request: {error}")
            return
        except Exception:
            log.exception("a request failed in a way that nobody foresaw")
            self.abort()
            return
        finally:
            self._is_pumping = False
        self._regulate()
        if self._is_draining and not self.has_unanswered:
            self._host.drained()

    def _may_handle(self) -> bool:
        return (
            not self._is_serving_one
            and not self._is_draining
            and not self._is_closing
            and len(self._slots) < self._host.max_in_flight
            and self._held_bytes < _HELD_ANSWERS_MAX_BYTES
            and self._promised_bytes < _PROMISED_ANSWERS_MAX_BYTES
            and self._outbox is not None
            and not self._outbox.is_full
        )

    def _handle(self, frame: Frame) -> None:
        slot = Slot()
        self._slots.append(slot)
        key, version, correlation_id = peek_api(frame)
        found = route(key, version)
        if found is None:
            refusal = _refusal(frame, key, version, correlation_id)
            self._release(frame)
            self._answer(slot, refusal)
            return
        handler, read, flexible = found
        header = read_request_header(frame, flexible=flexible)
        assert self._peer is not None
        context = Context(header, self._peer, self._host.services)
        result = handler(context, read(frame, header))
        if iscoroutine(result):
            self._is_serving_one = True
            self._host.spawn(self._serve(slot, context, frame, result))
            return
        self._release(frame)
        if isinstance(result, Deferred):
            slot.deferred = result
            self._promised_bytes += result.size_bytes
            result.then(lambda answer: self._late_answer(slot, context, answer))
        else:
            self._answer(slot, _encode(context, result))

    async def _serve(self, slot: Slot, context: Context, frame: Frame, work: Coroutine[Any, Any, Answer]) -> None:
        try:
            answer = await work
        except Exception:
            log.exception("%s failed", api_name(context.header.api_key))
            self.abort()
            return
        finally:
            self._is_serving_one = False
            self._release(frame)
        if isinstance(answer, Deferred):
            slot.deferred = answer
            self._promised_bytes += answer.size_bytes
            answer.then(lambda answer: self._late_answer(slot, context, answer))
            self._pump()
        else:
            self._late_answer(slot, context, answer)

    def _late_answer(self, slot: Slot, context: Context, answer: Answer) -> None:
        if self._transport is None:
            return
        if slot.deferred is not None:
            self._promised_bytes -= slot.deferred.size_bytes
        try:
            buffers = _encode(context, answer)
        except Exception:
            log.exception("the answer to %s cannot be written", api_name(context.header.api_key))
            self.abort()
            return
        self._answer(slot, buffers)
        if self._queue or self._is_read_paused:
            self._pump()

    # -- answers

    def _answer(self, slot: Slot, buffers: Sequence[Part]) -> None:
        """Put an answer into its place and send whatever is next in order."""
        slot.buffers = buffers
        slots = self._slots
        if slots[0] is not slot:
            slot.size = sum(map(len, buffers))
            self._held_bytes += slot.size
            return
        out = self._out
        while slots and (ready := slots[0].buffers) is not None:
            self._held_bytes -= slots.popleft().size
            if not ready:
                continue
            size = sum(map(len, ready))
            self._out_bytes += size
            if size < _JOIN_BELOW_BYTES:
                out.append(_LENGTH.pack(size) + b"".join(cast(Sequence[Buffer], ready)))
            else:
                out.append(_LENGTH.pack(size))
                out.extend(ready)
        if self._out_bytes >= _SEND_AT_BYTES:
            self._send()
        elif not self._is_send_due:
            self._is_send_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        """Send what was answered in this turn of the loop: one system call serves many answers."""
        self._is_send_due = False
        out, self._out, self._out_bytes = self._out, [], 0
        if out and self._outbox is not None and self._transport is not None:
            self._outbox.send(out)
            if self._outbox is not None and self._outbox.is_full:
                self._regulate()
        if self._is_draining and not self._slots:
            self._host.drained()

    # -- backpressure

    def _regulate(self) -> None:
        """Read while there is room for what comes, else not."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        pause = bool(self._queue) or self._waits_for_budget or not self._may_handle()
        if pause != self._is_read_paused:
            self._is_read_paused = pause
            if pause:
                transport.pause_reading()
            else:
                # The time that it waited for us is not held against the client.
                self._frame_began_ms = self._last_active_ms = self._host.now_ms()
                transport.resume_reading()

    def _reserve(self) -> None:
        """Account for the memory of a large frame before it grows; wait for room if there is none."""
        growth = self._frames.needed_bytes - self._reserved_bytes
        if growth <= 0 or self._waits_for_budget:
            return
        budget = self._host.budget
        if budget.take(growth, held_bytes=self._reserved_bytes):
            self._reserved_bytes += growth
            return
        self._waits_for_budget = True
        budget.wait(self._budget_has_room, held_bytes=self._reserved_bytes)
        self._regulate()

    def _budget_has_room(self) -> None:
        self._waits_for_budget = False
        if self._transport is not None:
            self._reserve()
            self._regulate()

    def _release(self, frame: Frame) -> None:
        """A request has been handled: the memory of a large one serves the next. There is one of them at a time."""
        if isinstance(frame, memoryview):
            self._host.budget.give_back(self._reserved_bytes)
            self._reserved_bytes = 0
            self._frames.release(frame)


def _encode(context: Context, answer: Answer) -> Sequence[Part]:
    if isinstance(answer, Raw):
        return answer.buffers
    if isinstance(answer, NoAnswer):
        return ()
    return [write_response(context.header, answer)]


def _refusal(frame: Frame, key: int, version: int, correlation_id: int) -> list[Buffer]:
    """The answer to a version that is not served; an API that is not there at all closes the connection."""
    if key == API_VERSIONS_KEY:
        return [unsupported_version_answer(correlation_id)]
    api = APIS.get(key)
    if api is None:
        raise ProtocolError(f"API key {key} (version {version}) is not served by this broker")
    if api.refuse is not None and api.min_version <= version < api.min_served:
        return [_LENGTH.pack(correlation_id) + api.refuse(frame, version)]
    raise ProtocolError(f"{api_name(key)} version {version} is not served, only {api.min_version} to {api.max_version}")
