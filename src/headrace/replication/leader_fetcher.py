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
from typing import Protocol

from kio.schema.errors import ErrorCode

from headrace.config.broker import BrokerSettings
from headrace.model.backoff import ExponentialDelay
from headrace.model.errors import HeadraceError, LogClosed, PeerUnavailable, ProtocolError, StorageFailed
from headrace.model.ids import BrokerId
from headrace.protocol.exchange import ResponseFrame
from headrace.protocol.fetch_request import FETCH_KEY, REPLICA_FETCH_VERSION, WantedByReplica, write_replica_fetch
from headrace.protocol.fetch_response import FetchAnswer, FetchedRecords, read_fetch_response
from headrace.replication.fetch_session import Ask, FollowerSession, Key
from headrace.replication.followed import Followed, Following
from headrace.replication.follower import Fetched
from headrace.replication.peers import PeerLink
from headrace.replication.throttle import Throttle
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

_GRACE_S = 3.0
"""The time that a leader may take to respond beyond the wait that the request allows."""
_FLUSH_PATIENCE_S = 0.1
_GATHER_S = 0.005
"""Changes within this time go into one request while another is in flight."""
_RETRY_DELAY_S = ExponentialDelay(0.05, 1.0)
_RECONNECT_DELAY_S = ExponentialDelay(0.05, 0.25)
"""Short, because a restarted leader waits for its followers before it acknowledges anything."""
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


class FollowerHost(Protocol):
    """The part of `Metadata` that this module uses."""

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def settings(self) -> BrokerSettings: ...


class _Flight:
    """A request in flight."""

    __slots__ = ("answer", "overtaken", "session")

    def __init__(self, answer: "asyncio.Task[ResponseFrame]", session: FollowerSession) -> None:
        self.answer = answer
        self.session = session
        self.overtaken: set[Key] = set()
        """Partitions that a later request has changed: the response to this one is ignored for them."""


class LeaderFetcher:
    def __init__(
        self,
        link: PeerLink,
        host: FollowerHost,
        *,
        broker_epoch: Callable[[], int],
        clock: Clock,
        throttle: Throttle,
        random: Random,
    ) -> None:
        self._link = link
        self._host = host
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._throttle = throttle
        self._random = random
        self._client_id = f"broker-{host.broker_id}"
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
        self._news = asyncio.Event()
        self._task = self._loop.create_task(self._run(), name=f"fetch from broker {link.broker_id}")
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
        session = self._session
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
            self._flights.append(_Flight(answer, session))

    def _wanted(self) -> dict[Key, WantedByReplica]:
        """The fetch position of each due partition that may be fetched now."""
        wanted: dict[Key, WantedByReplica] = {}
        max_bytes = self._host.settings.replica_fetch_max_bytes
        due, self._due = self._due, {}
        for key in due:
            followed = self._followed.get(key)
            if followed is None or not followed.is_ready:
                continue
            if followed.is_throttled and (wait_ms := self._throttle.wait_ms(self._clock.monotonic_ms())) > 0:
                self._hold(key, followed, wait_ms / 1000)
                continue
            try:
                if self._is_flushed(key, followed):
                    wanted[key] = WantedByReplica(key[1], *followed.partition.fetch_position(), max_bytes)
            except HeadraceError as error:
                self._failed(key, followed, error)
        return wanted

    async def _exchange(self, ask: Ask) -> ResponseFrame:
        settings = self._host.settings

        def write(correlation_id: int) -> bytes:
            return write_replica_fetch(
                correlation_id,
                self._client_id,
                replica_id=self._host.broker_id,
                replica_epoch=self._broker_epoch(),
                max_wait_ms=settings.replica_fetch_wait_max_ms,
                min_bytes=1,
                max_bytes=settings.replica_fetch_response_max_bytes,
                session_id=ask.session_id,
                session_epoch=ask.session_epoch,
                wanted=ask.wanted,
                forgotten=ask.forgotten,
            )

        timeout_s = settings.replica_fetch_wait_max_ms / 1000 + _GRACE_S
        return await self._link.exchange(FETCH_KEY, REPLICA_FETCH_VERSION, write, timeout_s)

    # -- responses

    async def _land(self, flight: _Flight) -> None:
        try:
            _, frame, body_at = flight.answer.result()
        except PeerUnavailable:
            await self._start_over()
            return
        try:
            answer = read_fetch_response(REPLICA_FETCH_VERSION, frame, body_at)
            is_fine = flight.session is not self._session or self._take(answer, flight)
        except ProtocolError as error:
            log.error("broker %d sent an invalid fetch response: %s", self._link.broker_id, error)
            is_fine = False
        finally:
            self._link.release(frame)
        if is_fine:
            self._failures = 0
        else:
            await self._start_over()

    def _take(self, answer: FetchAnswer, flight: _Flight) -> bool:
        """Apply a response; False if the session has ended."""
        if answer.error_code:
            if answer.error_code not in _LOST_SESSION:
                log.warning("broker %d refuses to be fetched from: %s", self._link.broker_id, _name(answer.error_code))
            return False
        if not flight.session.is_begun:
            flight.session.begun(answer.session_id)
        for part in answer.parts:
            if part.topic_id is not None:
                key = (part.topic_id, part.partition)
                if key not in flight.overtaken:
                    self._take_part(key, part)
        if self._blocking:
            self._loop.call_later(_FLUSH_PATIENCE_S, self._go_on_without, frozenset(self._blocking))
        return True

    def _take_part(self, key: Key, part: FetchedRecords) -> None:
        followed, requested = self._followed.get(key), self._session.requested.get(key)
        if followed is None or requested is None or not followed.is_ready:
            return
        if part.error_code and part.error_code != _OUT_OF_RANGE:
            # The two brokers have different metadata: the one that is behind gets the update from the store.
            self._back_off(key, followed, f"broker {self._link.broker_id} answered {_name(part.error_code)}")
            return
        partition = followed.partition
        try:
            epoch, offset, _, _ = partition.fetch_position()
            if (epoch, offset) != (requested.leader_epoch, requested.offset):
                # The position has changed since the request.
                self._due[key] = None
                return
            fetched = Fetched(
                part.high_watermark, part.log_start_offset, part.records, part.diverging, bool(part.error_code)
            )
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
        if followed.failures == _SAY_AFTER:
            log.warning("%s is not being replicated for now: %s", followed.partition, why)
        followed.failures += 1
        wait_s = _RETRY_DELAY_S.after(followed.failures)
        self._hold(key, followed, wait_s * (0.75 + 0.5 * self._random.random()))

    def _hold(self, key: Key, followed: Followed, wait_s: float) -> None:
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
        self._session = self._session.successor()
        self._failures += 1
        wait_s = _RECONNECT_DELAY_S.after(self._failures)
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
            log.critical("fetching from broker %d has ended: restart", self._link.broker_id, exc_info=error)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error {code}"
