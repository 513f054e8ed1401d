"""One client connection: frames in, answers out in the same order, reading paused while too much is in flight.

`ConnectionState` has the rules; this class moves the bytes. It bounds, per connection: queued frames (those of one
read), requests in flight (`max.in.flight.requests`), bytes of answers that are expected or wait for an earlier one, and
unsent bytes of a client that reads slowly. Past any bound reading pauses: back-pressure through TCP.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from types import CoroutineType
from typing import Any, cast

from headrace.config.listeners import KafkaListener
from headrace.kafka.answer_queue import AnswerQueue
from headrace.kafka.answers import AnswerSlot, encode_answer, refusal
from headrace.kafka.audited import route
from headrace.kafka.authentication import Authentication, Stage
from headrace.kafka.client_meters import metered_request
from headrace.kafka.connection_host import ConnectionHost
from headrace.kafka.connection_state import ConnectionState, Phase
from headrace.kafka.dispatch import Answer, Context, NoAnswer, Peer, Raw
from headrace.kafka.login import authenticate
from headrace.kafka.metered_request import MeteredRequest
from headrace.kafka.mute_timer import MuteTimer
from headrace.kafka.outbox import Outbox, Part, outbox_for
from headrace.kafka.request_meter import note_errors
from headrace.kafka.request_turn import TurnTimer
from headrace.model.errors import ProtocolError
from headrace.observe.request_mark import mark_task, thread_mark
from headrace.observe.request_metrics import KindMetrics
from headrace.protocol.codec import api_name, peek_api, read_request_header
from headrace.protocol.frames import Frame, FrameReader
from headrace.runtime.deferred import Deferred
from headrace.security.sasl.mechanism import Rejected
from headrace.security.subject import UNKNOWN, Subject

log = logging.getLogger(__name__)

_ENCODED_BY_HAND = (Raw, NoAnswer)
_SERVING = Phase.SERVING  # a global name costs less than a member of an enum
_HELD_ANSWERS_MAX_BYTES = 16 * 1024 * 1024
_PROMISED_ANSWERS_MAX_BYTES = 64 * 1024 * 1024
"""No request is begun above this sum of expected answer sizes; the last one begun may exceed it."""
_SLOWEST_BYTES_PER_MS = 16
"""The minimum average rate at which a request that exceeds the stall timeout must arrive."""


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_answers",
        "_authentication",
        "_frame_began_ms",
        "_frames",
        "_holds_large_frame",
        "_host",
        "_last_active_ms",
        "_listener",
        "_mark",
        "_mute_timer",
        "_opened_ms",
        "_outbox",
        "_peer",
        "_promised_bytes",
        "_queue",
        "_reserved_bytes",
        "_state",
        "_timer",
        "_transport",
        "_unsent_bytes",
    )

    def __init__(self, host: ConnectionHost, max_frame_bytes: int, listener: KafkaListener) -> None:
        self._host = host
        self._timer = None if host.meter is None else TurnTimer(host.meter, host.now_s)
        self._listener = listener
        self._state = ConnectionState()
        self._mark = thread_mark()
        """Names the request that is being handled in log lines."""
        self._authentication: Authentication | None = None
        self._opened_ms = 0.0
        self._frames = FrameReader(max_frame_bytes, host.buffers)
        self._queue: deque[Frame] = deque()
        self._answers = AnswerQueue(self._timer, self._answers_sent)
        self._mute_timer = MuteTimer(self._state, self._resume)
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self._peer: Peer | None = None
        self._reserved_bytes = 0
        self._holds_large_frame = False
        """Whether the reserved memory is that of a request whose handler goes on as a coroutine."""
        self._promised_bytes = 0
        self._unsent_bytes = 0
        self._last_active_ms = 0.0
        """When bytes were last received, or sent to a client that reads slowly."""
        self._frame_began_ms = 0.0
        """When the partly received frame began to arrive, or reading last resumed."""

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast(asyncio.Transport, transport)
        self._outbox = self._answers.outbox = outbox_for(stream, self._resume)
        self._last_active_ms = self._opened_ms = self._host.now_ms()
        self._peer, delay_ms = self._host.opened(self, stream, self._listener)
        decided = self.abort if self._peer is None else self._admitted
        if delay_ms:
            self._regulate()
            self._mute_timer.admit_after(delay_ms, decided)
        else:
            decided()

    def _admitted(self) -> None:
        assert self._peer is not None
        if self._state.phase is not Phase.ACCEPTED:
            return
        self._opened_ms = self._host.now_ms()
        self._authentication = self._peer.authentication
        self._state.admitted(authenticates=self._authentication is not None)
        self._regulate()

    def pause_writing(self) -> None:
        """Called by a TLS transport whose buffer is full; the outbox asks it how much that is."""

    def resume_writing(self) -> None:
        """Called by a TLS transport that has sent what it buffered."""
        if self._outbox is not None:
            self._outbox.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.lost()
        self._transport = None
        if self._outbox is not None:
            self._outbox.abandon()
            # The outbox refers back to this object: breaking the cycle frees the memory without the collector.
            self._outbox = None
        self._host.closed(self)
        self._queue.clear()
        self._host.budget.leave(self._budget_has_room)
        if not self._holds_large_frame:
            self._release_reserved()
        self._mute_timer.abandon()
        self._answers.abandon()
        if self._peer is not None:
            for closed in tuple(self._peer.on_closed.values()):
                closed()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.window() if self._frames.wants_window else self._host.scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._last_active_ms = self._host.now_ms()
        if (peer := self._peer) is not None:
            peer.received_bytes += nbytes
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
            if (timer := self._timer) is not None:
                timer.received_ms = timer.begun_ms = self._last_active_ms
            self._pump()

    # -- the server's side

    @property
    def subject(self) -> Subject:
        """The client of the connection, as far as it is known."""
        return UNKNOWN if self._peer is None else self._peer.subject

    @property
    def peer(self) -> Peer | None:
        """The client of the connection; None before it is admitted."""
        return self._peer

    @property
    def listener_name(self) -> str:
        return self._listener.name

    @property
    def unanswered_count(self) -> int:
        """The number of requests in flight."""
        return len(self._answers.slots)

    @property
    def is_idle(self) -> bool:
        """True if nothing is being received, handled or answered."""
        return not (self._queue or self._state.is_blocked or self._frames.is_inside_frame or self.has_unanswered)

    @property
    def has_unanswered(self) -> bool:
        """True if requests are unanswered, or answers are not fully sent."""
        answers = self._answers
        return bool(answers.slots or answers.has_ready or (self._outbox is not None and self._outbox.pending_bytes))

    def _is_stalled(self, now_ms: float, stall_ms: float) -> bool:
        """True if a frame is incomplete for too long: the client sends nothing, or below the minimum rate."""
        if not (self._state.is_reading and self._frames.is_inside_frame):
            return False
        slow_ms = stall_ms + self._frames.got_bytes / _SLOWEST_BYTES_PER_MS
        return now_ms - self._last_active_ms > stall_ms or now_ms - self._frame_began_ms > slow_ms

    def drain(self) -> None:
        """Accept no more requests; those in flight are answered."""
        self._state.drain()
        self._queue.clear()
        self._regulate()
        self._answers.hurry()

    def look_after(self, *, idle_ms: float, stall_ms: float) -> None:
        """Close the connection if it has been idle too long, or stalled inside a frame. Called periodically."""
        if self._outbox is None or self._transport is None:
            return
        now_ms = self._host.now_ms()
        if self._outbox.pending_bytes != self._unsent_bytes:
            self._unsent_bytes = self._outbox.pending_bytes
            self._last_active_ms = now_ms
        silent_ms = now_ms - self._last_active_ms
        if self._state.phase is Phase.CLOSING:
            # The client does not read the remaining answers, and may never do so.
            if silent_ms > stall_ms:
                self.abort()
        elif self._state.is_authenticating and now_ms - self._opened_ms > stall_ms:
            self.close(f"did not authenticate within {stall_ms} ms")
        elif self._is_stalled(now_ms, stall_ms):
            self.close(f"sent part of a request and not the rest within {stall_ms} ms")
        elif silent_ms > stall_ms and self._unsent_bytes and self._reserved_bytes:
            self.close("holds memory with part of a request, and reads no answers")
        elif silent_ms > idle_ms and not self._state.is_muted and (self.is_idle or self._unsent_bytes):
            self.close(f"was idle for {idle_ms} ms")

    def close(self, reason: str) -> None:
        """Send the answers that are ready, then close. Nothing more is read or begun."""
        if self._transport is None or not self._state.close():
            return
        if self._peer is not None:
            self._host.closing(self._peer, reason)
        self._last_active_ms = self._host.now_ms()
        self._queue.clear()
        self._regulate()
        self._answers.send()
        if self._outbox is not None:
            self._outbox.close_when_empty()

    def cut_off(self, reason: str) -> None:
        """Close at once: the client gets no more answers, and need not read any for that."""
        if self._peer is not None and self._state.phase < Phase.CLOSING:
            self._host.closing(self._peer, reason)
        self.abort()

    def abort(self) -> None:
        """Close at once and discard unsent answers."""
        if self._transport is not None:
            self._state.close()
            self._transport.abort()

    # -- requests

    def _pump(self) -> None:
        """Handle the queued requests that limits allow. Not reentrant: handling one may complete an earlier one."""
        state, queue, answers, timer = self._state, self._queue, self._answers, self._timer
        if state.begin_dispatch():
            answers.is_collecting = True
            try:
                while queue and self._may_handle():
                    self._handle(queue.popleft())
            except ProtocolError as error:
                self.close(f"sent a malformed request: {error}")
                return
            except Exception:
                log.exception("a request failed unexpectedly")
                self.abort()
                return
            finally:
                self._mark.request = None
                state.end_dispatch()
                answers.is_collecting = False
                if answers.has_ready:
                    answers.send()
                if timer is not None and timer.count:
                    timer.end()
        elif not state.is_blocked:
            return
        self._regulate()
        if state.phase is not _SERVING and not self.has_unanswered:
            self._host.drained()

    def _resume(self) -> None:
        """Handle requests that have waited: for the one before them, or for the client to read answers."""
        if self._timer is not None and self._queue:
            self._timer.begun_ms = self._host.now_ms()
        self._pump()

    def _may_handle(self) -> bool:
        return (
            self._state.may_begin_request
            and len(self._answers.slots) < self._host.max_in_flight
            and self._answers.held_bytes < _HELD_ANSWERS_MAX_BYTES
            and self._promised_bytes < _PROMISED_ANSWERS_MAX_BYTES
            and self._outbox is not None
            and not self._outbox.is_full
        )

    def _handle(self, frame: Frame) -> None:
        authentication = self._authentication
        if authentication is not None and authentication.takes_raw_tokens:
            self._handle_raw_token(frame, authentication)
            return
        key, version, correlation_id = peek_api(frame)
        if authentication is not None and (reason := authentication.why_not(key)) is not None:
            self._release(frame)
            self.close(reason)
            return
        slot = AnswerSlot()
        self._answers.slots.append(slot)
        found = route(key, version)
        if found is None:
            refused = refusal(frame, key, version, correlation_id)
            self._release(frame)
            self._answers.fill(slot, refused)
            return
        handler, read, flexible = found
        header = read_request_header(frame, flexible=flexible)
        peer = self._peer
        assert peer is not None
        peer.requests += 1
        peer.client_id = header.client_id
        if (timer := self._timer) is not None:
            if timer.key != key:
                timer.switch(key, peer.is_follower)
            timer.count += 1
        metered = None
        if self._host.quotas.is_active and not self._state.is_authenticating:
            metered = metered_request(self._host.quotas, header, peer, self._host.services, len(frame))
        self._mark.request = context = Context(header, peer, self._host.services, metered)
        result = handler(context, read(frame, header))
        if metered is not None and metered.is_timed:
            metered.pause()
            if isinstance(result, CoroutineType):
                result = metered.timed(result)
        if isinstance(result, CoroutineType):
            if timer is not None:
                slot.turn = timer.alone()
            self._state.block()
            self._holds_large_frame = isinstance(frame, memoryview)
            self._host.spawn(self._serve(slot, context, frame, result))
            return
        self._release(frame)
        if isinstance(result, Deferred):
            if timer is not None:
                slot.turn = timer.later()
            self._await_answer(slot, context, result)
        else:
            if isinstance(result, Raw) and (metered is None or not (metered.throttle_ms or metered.is_timed)):
                buffers = result.buffers
            else:
                buffers = self._encoded(context, result, None if timer is None else timer.kind)
            if not self._answers.fill(slot, buffers) and timer is not None:
                slot.turn = timer.later()
            if authentication is not None:
                self._note_authentication(authentication)

    def _handle_raw_token(self, frame: Frame, authentication: Authentication) -> None:
        """A token after SaslHandshake v0, which has neither a header nor a correlation id."""
        assert self._peer is not None
        slot = AnswerSlot()
        self._answers.slots.append(slot)
        token = bytes(frame)
        self._release(frame)
        self._state.block()
        self._host.spawn(self._serve_raw_token(slot, self._peer, token, authentication))

    async def _serve_raw_token(
        self, slot: AnswerSlot, peer: Peer, token: bytes, authentication: Authentication
    ) -> None:
        try:
            answer = await authenticate(self._host.services, peer, authentication, token)
        except Exception:
            log.exception("a SASL token could not be handled")
            self.abort()
            return
        finally:
            self._state.unblock()
        if self._transport is None:
            return
        if answer is not None and not isinstance(answer, Rejected):
            self._answers.fill(slot, (answer.token,))
        self._note_authentication(authentication)
        self._resume()

    def _note_authentication(self, authentication: Authentication) -> None:
        """Serve the client once it has authenticated; close the connection if it has failed to."""
        if authentication.stage is Stage.FAILED:
            self.close(authentication.failure)
        elif self._state.is_authenticating and authentication.has_authenticated:
            self._state.authenticated()
            self._host.authenticated(self)
            self._frames.max_frame_bytes = self._host.services.settings.socket_request_max_bytes

    async def _serve(self, slot: AnswerSlot, context: Context, frame: Frame, work: Coroutine[Any, Any, Answer]) -> None:
        mark = mark_task(context)
        try:
            answer = await work
        except ProtocolError as error:
            self.close(f"sent a malformed request: {error}")
            return
        except Exception:
            log.exception("%s failed", api_name(context.header.api_key))
            self.abort()
            return
        finally:
            mark.request = None
            self._state.unblock()
            self._release(frame)
        if slot.turn is not None:
            slot.turn.close(self._host.now_ms())
        if isinstance(answer, Deferred):
            self._await_answer(slot, context, answer)
            self._resume()
        else:
            self._late_answer(slot, context, answer)

    def _await_answer(self, slot: AnswerSlot, context: Context, deferred: Deferred[Answer]) -> None:
        slot.deferred = deferred
        if context.metered is not None and context.metered.throttle_ms:
            # What was produced counts when it is appended, before the answer: no more is read until then.
            self._mute(context.metered)
        self._promised_bytes += deferred.size_bytes
        deferred.then(lambda answer: self._late_answer(slot, context, answer))

    def _late_answer(self, slot: AnswerSlot, context: Context, answer: Answer) -> None:
        if self._transport is None:
            return
        if slot.deferred is not None:
            self._promised_bytes -= slot.deferred.size_bytes
        try:
            if (turn := slot.turn) is not None and not turn.unsent:
                turn.ready_ms = self._host.now_ms()
            buffers = self._encoded(context, answer, None if turn is None else turn.kind)
        except Exception:
            name = api_name(context.header.api_key)
            log.exception("the answer to %s cannot be written", name, extra={"request": context})
            self.abort()
            return
        self._answers.fill(slot, buffers)
        if self._authentication is not None:
            self._note_authentication(self._authentication)
        if self._queue or not self._state.is_reading:
            self._resume()

    # -- answers

    def _encoded(self, context: Context, answer: Answer, kind: KindMetrics | None) -> Sequence[Part]:
        if (metered := context.metered) is not None:
            answer = self._throttled(metered, answer)
        if kind is not None and not isinstance(answer, _ENCODED_BY_HAND):
            note_errors(kind, answer)
        buffers = encode_answer(context, answer)
        if metered is not None and metered.is_timed:
            metered.encoded()
        return buffers

    def _answers_sent(self, size_bytes: int) -> None:
        """Answers were passed to the socket."""
        if self._peer is not None:
            self._peer.sent_bytes += size_bytes
        if self._outbox is not None and self._outbox.is_full:
            self._regulate()
        if not self._answers.slots and self._state.phase is not _SERVING:
            self._host.drained()

    # -- quotas

    def _throttled(self, metered: MeteredRequest, answer: Answer) -> Answer:
        """The answer with the delay of a client that has exceeded a quota; then the connection is muted (KIP-219)."""
        if not isinstance(answer, _ENCODED_BY_HAND):
            answer = metered.answered(answer)
        if metered.throttle_ms:
            self._mute(metered)
        if metered.is_timed:
            metered.resume()
        return answer

    def _mute(self, metered: MeteredRequest) -> None:
        """Begin no request for the time that the client has to wait."""
        delay_ms = metered.take_delay_ms()
        if delay_ms and self._mute_timer.mute(delay_ms):
            self._regulate()

    # -- backpressure

    def _regulate(self) -> None:
        """Pause or resume reading by the connection's limits."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        has_room = not self._queue and self._may_handle()
        if not self._state.regulate(has_room=has_room):
            return
        if has_room:
            # The time in which reading was paused does not count towards the client's timeouts.
            self._frame_began_ms = self._last_active_ms = self._host.now_ms()
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _reserve(self) -> None:
        """Reserve memory for a large frame before its buffer grows; if there is none, pause until there is."""
        growth = self._frames.needed_bytes - self._reserved_bytes
        if growth <= 0 or self._state.is_awaiting_memory:
            return
        budget = self._host.budget
        if budget.take(growth, held_bytes=self._reserved_bytes):
            self._reserved_bytes += growth
            return
        is_pause_due = self._state.await_memory()
        budget.wait(self._budget_has_room, held_bytes=self._reserved_bytes)
        if is_pause_due and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _budget_has_room(self) -> None:
        self._state.memory_available()
        if self._transport is not None:
            self._reserve()
            self._regulate()

    def _release(self, frame: Frame) -> None:
        """Return the memory of a handled request. A connection has at most one large frame, whose buffer is reused."""
        if isinstance(frame, memoryview):
            self._holds_large_frame = False
            self._release_reserved()
            self._frames.release(frame)

    def _release_reserved(self) -> None:
        self._host.budget.release(self._reserved_bytes)
        self._reserved_bytes = 0
