"""Fetches all partitions that this broker follows from one leader, in one fetch session.

Requests and responses are incremental, so that idle partitions cost nothing. The offset in a fetch acknowledges
everything below it; under `flush.policy=ack` it is sent when that is on disk. Many logs are flushed in parallel, and
the next fetch waits a while for all of them; a slower one is left out until it is done.

One request is in flight at a time. A second one is sent for changes that cannot wait for the response (partitions that
are added or removed): the leader ends the wait of the first when it gets the second.

A partition that fails is left out for a while, and never blocks the others.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from random import Random

from kio.schema.errors import ErrorCode

from headrace.model.backoff import ExponentialDelay
from headrace.model.errors import HeadraceError, LogClosed, PeerUnavailable, ProtocolError, StorageFailed
from headrace.protocol.exchange import ResponseFrame
from headrace.protocol.fetch_request import FETCH_KEY, WantedByReplica
from headrace.protocol.fetch_response import FetchAnswer, FetchedRecords, read_fetch_response
from headrace.replication.fetch_form import FetchForm
from headrace.replication.fetch_session import Ask, FollowerSession, Key
from headrace.replication.followed import Followed, Following
from headrace.replication.follower import Fetched
from headrace.replication.peers import PeerLink
from headrace.replication.throttle import Throttle
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

_FLUSH_PATIENCE_S = 0.1
_GATHER_S = 0.005
"""Changes within this time go into one request while another is in flight."""
_RETRY_DELAY_S = ExponentialDelay(0.05, 1.0)
_THROTTLED_MAX_S = 1.0
"""A throttled partition looks at the rate again after this time: it may have been raised."""
_SAY_AFTER = 5
"""Consecutive failures before one is logged: brokers learn of changes at different times, so a few are normal."""
_IN_FLIGHT_MAX = 2

_OUT_OF_RANGE = ErrorCode.offset_out_of_range.value
_LOST_SESSION = frozenset(
    code.value
    for code in (
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    )
)


def _ignore_refusal() -> None:
    """Does nothing: within a cluster the store notifies brokers of new leaders."""


class _Flight:
    """A request in flight."""

    __slots__ = ("answer", "asked_ms", "number", "overtaken", "session")

    def __init__(
        self, answer: "asyncio.Task[ResponseFrame]", session: FollowerSession, number: int, asked_ms: float
    ) -> None:
        self.answer = answer
        self.session = session
        self.number = number
        self.asked_ms = asked_ms
        """The wall-clock time at which it was sent."""
        self.overtaken: set[Key] = set()
        """Partitions that a later request has changed: the response to this one is ignored for them."""


class LeaderFetcher:
    def __init__(
        self,
        link: PeerLink,
        form: FetchForm,
        *,
        clock: Clock,
        throttle: Throttle,
        random: Random,
        on_refused: Callable[[], None] = _ignore_refusal,
    ) -> None:
        """`on_refused` is called when the leader does not answer, or not for a partition: it may lead it no longer."""
        self._link = link
        self._form = form
        self._clock = clock
        self._throttle = throttle
        self._random = random
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._followed: dict[Key, Followed] = {}
        self._due: dict[Key, None] = {}
        """Partitions that may have to be in the next request."""
        self._gone: dict[Key, None] = {}
        """Partitions that the leader may have in the session and must forget."""
        self._blocking: set[Key] = set()
        """Partitions whose flush the next request waits for."""
        self._session = FollowerSession()
        self._flights: list[_Flight] = []
        self._failures = 0
        self._why = ""
        """The reason of the last failure, for all partitions."""
        self._number = 0
        """Of the last request."""
        self._answered, self._answered_ms = 0, 0.0
        """The number of the last request that was answered, and the wall-clock time at which it was sent."""
        self._news = asyncio.Event()
        self._task = self._loop.create_task(self._run(), name=f"fetch from {link.name}")
        self._task.add_done_callback(self._ended)

    # -- followed partitions

    def follow(self, key: Key, partition: Following, *, is_throttled: bool) -> None:
        followed = self._followed.get(key)
        if followed is not None and followed.partition is partition and followed.is_throttled == is_throttled:
            requested = self._session.requested.get(key)
            if followed.is_ready and requested is not None and requested.leader_epoch == partition.fetch_position()[0]:
                # Only something else about the topic has changed.
                return
        if followed is None or followed.partition is not partition:
            if followed is not None:
                followed.release()
            followed = self._followed[key] = Followed(partition)
        followed.is_throttled = is_throttled
        followed.release()
        self._is_due(key)

    def forget(self, key: Key) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            followed.release()
            self._leave_out(key)
            self._news.set()

    def last_contact_ms(self, key: Key) -> float | None:
        """The wall-clock time at which the last request was sent whose response covered a partition at its position;
        None if there is none."""
        followed = self._followed.get(key)
        if followed is None:
            return None
        if not followed.is_ready or key not in self._session.requested or self._answered < followed.named_in:
            return followed.covered_ms
        return self._answered_ms

    def failure_of(self, key: Key) -> str:
        """Why a partition cannot be fetched at the moment; empty if it can."""
        followed = self._followed.get(key)
        if followed is not None and followed.failures:
            return followed.why
        return self._why if self._failures else ""

    async def close(self) -> None:
        for followed in self._followed.values():
            followed.release()
        self._followed.clear()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def _is_due(self, key: Key) -> None:
        self._due[key] = None
        self._news.set()

    def _leave_out(self, key: Key) -> None:
        self._due.pop(key, None)
        self._blocking.discard(key)
        self._gone[key] = None

    # -- requests

    async def _run(self) -> None:
        try:
            while True:
                self._news.clear()
                if self._may_send():
                    self._send()
                if self._flights and self._flights[0].answer.done():
                    await self._land(self._flights.pop(0))
                    continue
                await self._news.wait()
                if self._flights and not self._flights[0].answer.done():
                    await asyncio.sleep(_GATHER_S)
        finally:
            await self._abandon()

    def _may_send(self) -> bool:
        if self._blocking or len(self._flights) >= _IN_FLIGHT_MAX:
            return False
        if self._flights:
            return self._session.is_begun and bool(self._due or self._gone)
        return bool(self._due or self._session.requested)

    def _send(self) -> None:
        session, now_ms = self._session, self._clock.wall_ms()
        self._number += 1
        if not session.is_begun:
            self._due.update(dict.fromkeys(self._followed))
        ask = session.tell(self._wanted(), self._gone)
        self._gone.clear()
        for flight in self._flights:
            flight.overtaken.update(
                (topic_id, part.partition) for topic_id, parts in ask.wanted.items() for part in parts
            )
            flight.overtaken.update(
                (topic_id, index) for topic_id, indexes in ask.forgotten.items() for index in indexes
            )
        if not session.requested:
            # No partition is left to be fetched: a later session replaces this one.
            self._session = session.successor()
        elif ask.is_news or not self._flights:
            session.sent()
            answer = self._loop.create_task(self._exchange(ask))
            answer.add_done_callback(lambda _: self._news.set())
            self._flights.append(_Flight(answer, session, self._number, now_ms))

    def _wanted(self) -> dict[Key, WantedByReplica]:
        """The fetch position of each due partition that may be fetched now."""
        wanted: dict[Key, WantedByReplica] = {}
        max_bytes = self._form.settings.replica_fetch_max_bytes
        due, self._due = self._due, {}
        for key in due:
            followed = self._followed.get(key)
            if followed is None or not followed.is_ready:
                continue
            if followed.is_throttled and (wait_ms := self._throttle.wait_ms(self._clock.monotonic_ms())) > 0:
                self._hold(key, followed, min(wait_ms / 1000, _THROTTLED_MAX_S))
                continue
            try:
                if self._is_flushed(key, followed):
                    wanted[key] = WantedByReplica(key[1], *followed.partition.fetch_position(), max_bytes)
                    followed.named_in = self._number
            except HeadraceError as error:
                self._failed(key, followed, error)
        return wanted

    async def _exchange(self, ask: Ask) -> ResponseFrame:
        form = self._form

        def write(correlation_id: int) -> bytes:
            return form.write(correlation_id, ask)

        timeout_s = form.settings.replica_fetch_wait_max_ms / 1000 + form.grace_s
        return await self._link.exchange(FETCH_KEY, form.version, write, timeout_s)

    # -- responses

    async def _land(self, flight: _Flight) -> None:
        try:
            _, frame, body_at = flight.answer.result()
        except Exception as error:
            if not isinstance(error, PeerUnavailable) and not self._failures:
                log.exception("%s cannot be fetched from", self._link.name)
            self._why = str(error)
            self._on_refused()
            await self._start_over()
            return
        try:
            answer = read_fetch_response(self._form.version, frame, body_at)
            is_fine = flight.session is not self._session or self._take(answer, flight)
            is_empty = not any(len(part.records) for part in answer.parts)
        except ProtocolError as error:
            self._why = f"{self._link.name} sent an invalid fetch response: {error}"
            log.error("%s", self._why)
            is_fine = is_empty = False
        finally:
            self._link.release(frame)
        if is_fine:
            self._failures = 0
            self._answered, self._answered_ms = flight.number, flight.asked_ms
            if is_empty and self._form.empty_pause_s:
                await asyncio.sleep(self._form.empty_pause_s)
        else:
            await self._start_over()

    def _take(self, answer: FetchAnswer, flight: _Flight) -> bool:
        """Apply a response; False if the session has ended."""
        if answer.error_code:
            self._why = f"{self._link.name} answered {_name(answer.error_code)}"
            if answer.error_code not in _LOST_SESSION:
                log.warning("%s refuses to be fetched from: %s", self._link.name, _name(answer.error_code))
            return False
        if not flight.session.is_begun:
            flight.session.begun(answer.session_id)
        for part in answer.parts:
            if part.topic_id is not None:
                key = (part.topic_id, part.partition)
                if key not in flight.overtaken:
                    self._take_part(key, part, flight.asked_ms)
        if self._blocking:
            self._loop.call_later(_FLUSH_PATIENCE_S, self._go_on_without, frozenset(self._blocking))
        return True

    def _take_part(self, key: Key, part: FetchedRecords, asked_ms: float) -> None:
        followed, requested = self._followed.get(key), self._session.requested.get(key)
        if followed is None or requested is None or not followed.is_ready:
            return
        if part.error_code and part.error_code != _OUT_OF_RANGE:
            # The two brokers have different metadata: the one that is behind gets the update from the store.
            self._on_refused()
            self._back_off(key, followed, f"{self._link.name} answered {_name(part.error_code)}")
            return
        partition = followed.partition
        try:
            epoch, offset, _, _ = partition.fetch_position()
            if (epoch, offset) != (requested.leader_epoch, requested.offset):
                # The position has changed since the request.
                self._due[key] = None
                return
            committed = self._form.committed(part)
            fetched = Fetched(
                committed,
                part.log_start_offset,
                part.records,
                part.diverging,
                bool(part.error_code),
                max(0, part.high_watermark - committed),
                asked_ms,
            )
            followed.covered_ms = None
            partition.take_fetched(epoch, fetched)
            if not self._is_flushed(key, followed):
                self._blocking.add(key)
        except HeadraceError as error:
            self._failed(key, followed, error)
            return
        except Exception as error:
            log.exception("what was fetched for %s could not be taken", partition)
            self._failed(key, followed, error)
            return
        if followed.failures:
            if followed.failures > _SAY_AFTER:
                log.info("%s is being replicated again", partition)
            followed.failures = 0
        if followed.is_throttled:
            self._throttle.spend(len(part.records), self._clock.monotonic_ms())
        self._due[key] = None

    def _is_flushed(self, key: Key, followed: Followed) -> bool:
        """Whether the log's end may be acknowledged to the leader; otherwise the partition becomes due when it may."""

        def flushed(error: BaseException | None) -> None:
            followed.is_flushing = False
            if self._followed.get(key) is not followed:
                return
            self._blocking.discard(key)
            if error is None:
                self._is_due(key)
            else:
                self._failed(key, followed, error)
                self._news.set()

        followed.is_flushing = not followed.partition.when_flushed(flushed)
        return not followed.is_flushing

    def _go_on_without(self, slow: frozenset[Key]) -> None:
        for key in slow & self._blocking:
            self._leave_out(key)
            self._news.set()

    # -- failures

    def _failed(self, key: Key, followed: Followed, error: BaseException) -> None:
        if isinstance(error, LogClosed | StorageFailed):
            log.error("%s is not replicated any more: %s", followed.partition, error)
            self._leave_out(key)
            self._followed.pop(key, None)
            return
        self._back_off(key, followed, str(error))

    def _back_off(self, key: Key, followed: Followed, why: str) -> None:
        followed.why = why
        if followed.failures == _SAY_AFTER:
            log.warning("%s is not being replicated for now: %s", followed.partition, why)
        followed.failures += 1
        wait_s = _RETRY_DELAY_S.after(followed.failures)
        self._hold(key, followed, wait_s * (0.75 + 0.5 * self._random.random()))

    def _hold(self, key: Key, followed: Followed, wait_s: float) -> None:
        followed.covered_ms = self.last_contact_ms(key)
        followed.release()
        followed.is_held = True
        followed.timer = self._loop.call_later(wait_s, self._hold_is_over, key, followed)
        self._leave_out(key)

    def _hold_is_over(self, key: Key, followed: Followed) -> None:
        followed.release()
        if self._followed.get(key) is followed:
            self._is_due(key)

    async def _start_over(self) -> None:
        """Begin a new session with all partitions, after a backoff, because the connection or session was lost."""
        await self._abandon()
        for key, followed in self._followed.items():
            followed.covered_ms = self.last_contact_ms(key)
        self._session = self._session.successor()
        self._failures += 1
        wait_s = self._form.reconnect_delay_s.after(self._failures)
        await asyncio.sleep(wait_s * (0.5 + 0.5 * self._random.random()))
        self._due.update(dict.fromkeys(self._followed))
        self._news.set()

    async def _abandon(self) -> None:
        flights, self._flights = self._flights, []
        for flight in flights:
            flight.answer.cancel()
        if flights:
            await asyncio.wait([flight.answer for flight in flights])
        for flight in flights:
            if not flight.answer.cancelled():
                flight.answer.exception()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("fetching from %s has ended: restart", self._link.name, exc_info=error)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error {code}"
