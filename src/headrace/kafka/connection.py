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
from headrace.kafka.authentication import SASL_AUTHENTICATE_KEY, Authentication, Stage
from headrace.kafka.budget import BULK_HEADS
from headrace.kafka.bulk_line import CROWDED_READ_BYTES
from headrace.kafka.client_meters import begin_metered, timed_later
from headrace.kafka.client_timeouts import ClientTimeouts
from headrace.kafka.connection_host import ConnectionHost
from headrace.kafka.connection_state import ConnectionState, Phase
from headrace.kafka.dispatch import Answer, Context, NoAnswer, Peer, Raw
from headrace.kafka.frame_memory import FrameMemory
from headrace.kafka.login import answer_raw_token
from headrace.kafka.metered_request import PRODUCE, MeteredRequest
from headrace.kafka.mute_timer import MuteTimer
from headrace.kafka.outbox import Outbox, Part, outbox_for
from headrace.kafka.produce_run import PRODUCE_HEAD, ProduceRuns
from headrace.kafka.quick_fetch import FETCH_HEAD, QuickFetches
from headrace.kafka.request_meter import FETCH, note_errors
from headrace.kafka.request_turn import TurnTimer
from headrace.model.errors import ProtocolError
from headrace.observe.request_mark import mark_task, thread_mark
from headrace.observe.request_metrics import KindMetrics
from headrace.protocol.codec import RequestHeader, api_name, peek_api, read_request_header
from headrace.protocol.frames import Frame, FrameReader
from headrace.runtime.deferred import Deferred
from headrace.security.subject import UNKNOWN, Subject

log = logging.getLogger(__name__)

_ENCODED_BY_HAND = (Raw, NoAnswer)
_SERVING, _AUTHENTICATING = Phase.SERVING, Phase.AUTHENTICATING  # global names cost less than members of an enum
_RAW_TOKEN = RequestHeader(SASL_AUTHENTICATE_KEY, api_version=0, correlation_id=0, client_id=None, body_at=0)
_HELD_ANSWERS_MAX_BYTES = 16 * 1024 * 1024
_PROMISED_ANSWERS_MAX_BYTES = 64 * 1024 * 1024
"""No request is begun above this sum of expected answer sizes; the last one begun may exceed it."""


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_answers",
        "_authentication",
        "_fetches",
        "_frames",
        "_host",
        "_listener",
        "_mark",
        "_memory",
        "_mute_timer",
        "_outbox",
        "_peer",
        "_promised_bytes",
        "_queue",
        "_runs",
        "_state",
        "_timeouts",
        "_timer",
        "_transport",
    )

    def __init__(self, host: ConnectionHost, max_frame_bytes: int, listener: KafkaListener) -> None:
        self._host = host
        self._timer = None if host.meter is None else TurnTimer(host.meter, host.now_s)
        self._listener = listener
        self._state = ConnectionState()
        self._mark = thread_mark()
        """Names the request that is being handled in log lines."""
        self._authentication: Authentication | None = None
        self._frames = FrameReader(max_frame_bytes, host.buffers)
        self._memory = FrameMemory(host.budget, self._frames, self._memory_available)
        self._timeouts = ClientTimeouts(self._state, self._frames, self._memory)
        self._queue: deque[Frame] = deque()
        self._answers = AnswerQueue(self._timer, self._answers_sent)
        self._runs = ProduceRuns(self._answers, self._timer)
        self._fetches = QuickFetches(self._answers, self._timer)
        self._mute_timer = MuteTimer(self._state, self._resume)
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self._peer: Peer | None = None
        self._promised_bytes = 0

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast(asyncio.Transport, transport)
        self._outbox = self._answers.outbox = outbox_for(stream, self._resume, self._host.room)
        self._timeouts.active_ms = self._host.now_ms()
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
        self._timeouts.admitted_ms = self._host.now_ms()
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
        self._memory.abandon()
        self._mute_timer.abandon()
        self._answers.abandon()
        if (peer := self._peer) is not None:
            if peer.meter is not None:
                peer.meter.close(self._host.now_ms())
                peer.meter = None
            for closed in tuple(peer.on_closed.values()):
                closed()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frames.wants_window:
            return self._frames.window()
        host = self._host
        return host.scratch[:CROWDED_READ_BYTES] if host.line.is_crowded else host.scratch

    def buffer_updated(self, nbytes: int) -> None:
        timeouts, frames = self._timeouts, self._frames
        timeouts.active_ms = now_ms = self._host.now_ms()
        if (peer := self._peer) is not None:
            peer.received_bytes += nbytes
        if not frames.is_inside_frame:
            timeouts.frame_began_ms = now_ms
        try:
            if frames.wants_window:
                frame = frames.advance(nbytes)
                if frame is not None:
                    self._queue.append(frame)
            else:
                self._queue.extend(frames.feed(self._host.scratch[:nbytes]))
                if self._queue:
                    timeouts.frame_began_ms = now_ms
        except ProtocolError as error:
            self.close(f"sent a malformed frame: {error}")
            return
        if frames.wants_window:
            self._reserve()
        if self._queue:
            if (timer := self._timer) is not None:
                timer.received_ms = timer.begun_ms = now_ms
            if not (self._host.line.is_busy(now_ms) and self._waits_in_line()):
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
        return self._answers.in_flight

    @property
    def is_idle(self) -> bool:
        """True if nothing is being received, handled or answered."""
        return not (self._queue or self._state.is_blocked or self._frames.is_inside_frame or self.has_unanswered)

    @property
    def has_unanswered(self) -> bool:
        """True if requests are unanswered, or answers are not fully sent."""
        answers = self._answers
        return bool(answers.slots or answers.has_ready or (self._outbox is not None and self._outbox.pending_bytes))

    def drain(self) -> None:
        """Accept no more requests; those in flight are answered."""
        self._state.drain()
        self._queue.clear()
        self._regulate()
        self._answers.hurry()

    def look_after(self, *, idle_ms: float, stall_ms: float) -> None:
        """Close the connection if the client has exceeded a timeout. Called periodically."""
        if self._outbox is None or self._transport is None:
            return
        now_ms, timeouts = self._host.now_ms(), self._timeouts
        timeouts.note_unsent(self._outbox.pending_bytes, now_ms)
        if self._state.phase is Phase.CLOSING:
            # The client does not read the remaining answers, and may never do so.
            if now_ms - timeouts.active_ms > stall_ms:
                self.abort()
            return
        is_memory_short = self._host.budget.waiting_count > 0
        reason = timeouts.why_close(
            now_ms, idle_ms=idle_ms, stall_ms=stall_ms, is_idle=self.is_idle, is_memory_short=is_memory_short
        )
        if reason:
            self.close(reason)

    def close(self, reason: str) -> None:
        """Send the answers that are ready, then close. Nothing more is read or begun."""
        if self._transport is None or not self._state.close():
            return
        if self._peer is not None:
            self._host.closing(self._peer, reason)
        self._timeouts.active_ms = self._host.now_ms()
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
            is_timing = bool(queue) and self._host.quotas.is_timing
            if is_timing and self._peer is not None and (meter := self._peer.meter) is not None:
                meter.mark_ms = self._host.now_ms() if timer is None else timer.begun_ms
            answers.is_collecting = True
            try:
                while queue and self._may_handle():
                    head = queue[0][:2]
                    if head == PRODUCE_HEAD:
                        if self._handle_run():
                            continue
                    elif head == FETCH_HEAD and self._handle_quickly():
                        continue
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
                ended_ms = timer.end() if timer is not None and timer.count else self._host.now_ms()
                self._host.line.last_ms = ended_ms
                if is_timing and self._peer is not None and (meter := self._peer.meter) is not None:
                    meter.end_turn(ended_ms)
        elif not state.is_blocked:
            return
        self._regulate()
        if state.phase is not _SERVING and not self.has_unanswered:
            self._host.drained()

    def _resume(self) -> None:
        """Handle requests that have waited: for the one before them, or for the client to read answers."""
        if self._queue:
            now_ms = self._host.now_ms()
            if self._timer is not None:
                self._timer.begun_ms = now_ms
            if self._host.line.is_busy(now_ms) and self._waits_in_line():
                return
        self._pump()

    def _waits_in_line(self) -> bool:
        """Wait in line if the next request is a bulk request that could be handled now; True while it waits."""
        state = self._state
        if state.is_queued:
            # More was read than one read gives: libuv reads up to 32 times before others have their turn.
            self.hold()
            return True
        if not state.is_ready:
            return False
        peer = self._peer
        if peer is None or peer.is_follower or bytes(self._queue[0][:2]) not in BULK_HEADS or not self._may_handle():
            return False
        state.queue_up()
        # Large frames are part of the budget.
        self._host.line.wait(self, sum(len(frame) for frame in self._queue if isinstance(frame, bytes)))
        return True

    def take_turn(self) -> None:
        """Handle the requests that have waited in line."""
        self._state.take_turn()
        if self._transport is not None:
            if self._timer is not None:
                self._timer.begun_ms = self._host.now_ms()
            self._pump()

    def hold(self) -> None:
        """Read nothing while requests wait in line."""
        self._regulate()

    def _may_handle(self) -> bool:
        return (
            self._state.may_begin_request
            and self._answers.in_flight < self._host.max_in_flight
            and self._answers.held_bytes < _HELD_ANSWERS_MAX_BYTES
            and self._promised_bytes < _PROMISED_ANSWERS_MAX_BYTES
            and self._outbox is not None
            and not self._outbox.is_full
        )

    def _handle_run(self) -> bool:
        """Handle the next requests as one, if they are a run of Produce requests."""
        host, peer, timer = self._host, self._peer, self._timer
        if peer is None or (self._authentication is not None and not self._authentication.permits(PRODUCE)):
            return False
        most = host.max_in_flight - self._answers.in_flight
        now_ms = host.now_ms() if timer is None else timer.begun_ms
        return self._runs.handle(self._queue, most, peer, host.services, now_ms, self._await_answer)

    def _handle_quickly(self) -> bool:
        """Handle the next request, if it is a repeated fetch whose answer is at hand."""
        frame, peer = self._queue[0], self._peer
        if (
            peer is None
            or not isinstance(frame, bytes)
            or (self._authentication is not None and not self._authentication.permits(FETCH))
            or not self._fetches.handle(frame, peer, self._host.services)
        ):
            return False
        self._queue.popleft()
        return True

    def _handle(self, frame: Frame) -> None:
        authentication = self._authentication
        if authentication is not None and authentication.takes_raw_tokens:
            self._handle_raw_token(frame, authentication)
            return
        key, version, correlation_id = peek_api(frame)
        if authentication is not None and (reason := authentication.why_not(key)) is not None:
            self._memory.release(frame)
            self.close(reason)
            return
        slot = AnswerSlot()
        self._answers.add(slot)
        found = route(key, version)
        if found is None:
            refused = refusal(frame, key, version, correlation_id)
            self._memory.release(frame)
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
        metered, quotas = None, self._host.quotas
        if quotas.is_active:
            now_ms = self._host.now_ms() if timer is None else timer.begun_ms
            is_known = self._state.phase is not _AUTHENTICATING
            metered = begin_metered(quotas, header, peer, self._host.services, len(frame), now_ms, is_known=is_known)
        self._mark.request = context = Context(header, peer, self._host.services, metered)
        result = handler(context, read(frame, header))
        if isinstance(result, CoroutineType):
            if metered is None and quotas.is_timing:
                context = timed_later(context)
                metered = context.metered
            if metered is not None:
                metered.retire()
                if metered.is_timed:
                    result = metered.timed(result)
            if timer is not None:
                slot.turn = timer.alone()
            self._spawn(slot, context, frame, result)
            return
        self._memory.release(frame)
        if isinstance(result, Deferred):
            if metered is None and quotas.is_timing:
                context = timed_later(context)
                metered = context.metered
            if metered is not None:
                metered.retire()
            if timer is not None:
                slot.turn = timer.later()
            self._await_answer(slot, context, result)
        else:
            if isinstance(result, Raw) and (metered is None or not metered.throttle_ms):
                buffers = result.buffers
            else:
                buffers = self._encoded(context, result, None if timer is None else timer.kind)
                if metered is not None and metered.throttle_ms:
                    metered.retire()
            if not self._answers.fill(slot, buffers) and timer is not None:
                slot.turn = timer.later()
            if authentication is not None:
                self._note_authentication(authentication)

    def _handle_raw_token(self, frame: Frame, authentication: Authentication) -> None:
        """A token after SaslHandshake v0, which has neither a header nor a correlation id."""
        assert self._peer is not None
        slot = AnswerSlot()
        self._answers.add(slot)
        context = Context(_RAW_TOKEN, self._peer, self._host.services)
        self._spawn(slot, context, frame, answer_raw_token(context, authentication, bytes(frame)))

    def _note_authentication(self, authentication: Authentication) -> None:
        """Serve the client once it has authenticated; close the connection if it has failed to."""
        if authentication.stage is Stage.FAILED:
            self.close(authentication.failure)
        elif self._state.is_authenticating and authentication.has_authenticated:
            self._state.authenticated()
            self._host.authenticated(self)
            self._frames.max_frame_bytes = self._host.services.settings.socket_request_max_bytes

    def _spawn(self, slot: AnswerSlot, context: Context, frame: Frame, work: Coroutine[Any, Any, Answer]) -> None:
        """Go on with a request as a coroutine; the next one waits until it ends."""
        self._state.block()
        self._memory.is_in_use = isinstance(frame, memoryview)
        self._host.spawn(self._serve(slot, context, frame, work))

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
            self._memory.release(frame)
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
            metered = context.metered if context.metered is not None and context.metered.is_timed else None
            if metered is not None:
                metered.resume()
            buffers = self._encoded(context, answer, None if turn is None else turn.kind)
            if metered is not None:
                metered.encoded()
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
        if context.metered is not None:
            answer = self._throttled(context.metered, answer)
        if kind is not None and not isinstance(answer, _ENCODED_BY_HAND):
            note_errors(kind, answer)
        return encode_answer(context, answer)

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
            self._timeouts.frame_began_ms = self._timeouts.active_ms = self._host.now_ms()
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _reserve(self) -> None:
        """Reserve memory for a large frame; if there is none, pause until there is."""
        if self._state.is_awaiting_memory or self._memory.reserve():
            return
        if self._state.await_memory() and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _memory_available(self) -> None:
        self._state.memory_available()
        if self._transport is not None:
            self._reserve()
            self._regulate()
