"""One request of a client whose use is counted: how much it uses of what, and how long its client has to wait.

The answer is sent at once with the delay as `throttle_time_ms`; then the connection reads nothing for that time
(KIP-219). If several quotas are exceeded, the longest delay counts. The time of a request is that in which the event
loop handles it, which is the broker's one thread: 100 % is all of it.
"""

from collections.abc import Callable, Coroutine, Generator
from dataclasses import replace
from math import inf
from typing import Any, cast

from headrace.protocol.codec import Entity
from headrace.protocol.units import from_ms
from headrace.quotas.accounts import AccountsGeneration, ClientAccounts, QuotaAccount
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.quotas.disk_pressure import DiskPressure
from headrace.quotas.stored_bytes import StoredAccount

_PERCENT_PER_MS = 0.1
"""A millisecond in a second, in percent."""
_FAR = 10.0
"""While more than this is left of a quota for time, in percent of a second, a turn is counted as a whole."""
PRODUCE = 0
EXEMPT = frozenset({17, 27, 36, 58})
"""SaslHandshake, WriteTxnMarkers, SaslAuthenticate and Envelope: exempt in Kafka, too."""

DelayCause = QuotaAccount | StoredAccount | DiskPressure


class ClientMeter:
    """The accounts of a connection's client, found again when quotas or the client change.

    Requests that are handled one after another share the readings of the clock: bytes count when their turn began. If
    the quota for time is nearly used up, what has passed since the last request counts for the one that is counted
    next, and the rest of a turn when it ends; while it is far from that, all of the turn when it ends.
    """

    __slots__ = (
        "client_id",
        "current",
        "fetch",
        "generation",
        "is_counted",
        "is_exact",
        "is_timed",
        "mark_ms",
        "now_s",
        "produce",
        "quick_produce",
        "quotas",
        "request",
    )

    def __init__(
        self,
        quotas: BrokerQuotas,
        client_id: str | None,
        accounts: ClientAccounts | None,
        now_s: Callable[[], float],
    ) -> None:
        """`accounts` is None if the client has none: no quota applies to it, or it is a broker."""
        self.quotas = quotas
        self.generation = quotas.accounts.generation
        self.client_id = client_id
        self.is_counted = accounts is not None
        self.produce = None if accounts is None else accounts.produce
        self.fetch = None if accounts is None else accounts.fetch
        self.request = None if accounts is None else accounts.request
        self.now_s = now_s
        self.is_timed = self.request is not None
        """Whether the time of requests counts."""
        self.is_exact = self.is_timed
        """Whether it counts request by request: the quota for it was nearly used up when the last turn ended."""
        self.quick_produce: QuotaAccount | None = None
        """The account of a Produce for which nothing else is to be done while that account is within its quota."""
        self._decide()
        self.current = MeteredRequest(self)
        """The request that is handled. Most are answered at once and without a delay: the next one uses it again."""
        self.mark_ms: float | None = now_s() * 1000.0 if self.is_timed else None
        """Up to when time was counted, at first when the turn began; None while no request is handled."""

    def begin(self, key: int, size_bytes: int, now_ms: float) -> "MeteredRequest | None":
        """Begin to count a request of an API, unless it was counted by `quick_produce`; None if nothing is to count."""
        if key != PRODUCE:
            if not self.is_counted or key in EXEMPT:
                return None
        elif not self.quotas.meters_producers and (not self.is_counted or (self.produce is None and not self.is_exact)):
            return None
        request = self.current
        request.size_bytes = size_bytes
        request.begun_ms = now_ms
        return request

    def quick_bytes(self, client_id: str | None, now_ms: float) -> float:
        """How many bytes of Produce requests of this client may be counted at once with nothing else to be done."""
        if self.generation.is_over or self.client_id != client_id:
            return 0.0
        account = self.quick_produce
        if account is None:
            is_counted = self.is_counted and (self.produce is not None or self.is_exact)
            return 0.0 if is_counted or self.quotas.meters_producers else inf
        return account.free - account.pending if now_ms < account.quick_until_ms else 0.0

    def count_quick(self, size_bytes: int, now_ms: float) -> None:
        """Count as many bytes as `quick_bytes` allows."""
        if (account := self.quick_produce) is not None:
            account.pending += size_bytes
            account.last_ms = now_ms

    def _decide(self) -> None:
        is_quick = not (self.is_exact or self.quotas.meters_producers)
        self.quick_produce = self.produce if is_quick else None

    def end_turn(self, now_ms: float) -> None:
        """Count the rest of the turn, in which the last answers were sent; the next request is delayed for it."""
        account, mark_ms = self.request, self.mark_ms
        self.mark_ms = None
        if account is None or mark_ms is None:
            return
        # `account.count` in place: a call costs more than all the rest.
        value = (now_ms - mark_ms) * _PERCENT_PER_MS
        if now_ms < account.quick_until_ms and (pending := account.pending + value) <= account.free - _FAR:
            account.pending = pending
            account.last_ms = now_ms
            is_exact = False
        else:
            account.count(value, now_ms)
            is_exact = now_ms >= account.quick_until_ms or account.free - account.pending < _FAR
        if is_exact is not self.is_exact:
            self.is_exact = is_exact
            self._decide()

    def expire(self) -> None:
        """The client has turned out to be another one: its accounts are found again with its next request."""
        self.generation = AccountsGeneration()
        self.generation.is_over = True

    def close(self, now_ms: float) -> None:
        """Another one counts from now on; requests that this one has begun go on, apart from the turns of others."""
        self.end_turn(now_ms)
        # The two refer to each other: breaking the cycle frees them without the collector.
        del self.current


class MeteredRequest:
    __slots__ = (
        "_cause",
        "_running_since_ms",
        "_spent_ms",
        "_taken_ms",
        "begun_ms",
        "is_timed",
        "meter",
        "size_bytes",
        "throttle_ms",
    )

    def __init__(self, meter: ClientMeter) -> None:
        self.meter = meter
        self.size_bytes = 0
        self.begun_ms = 0.0
        """When its turn began; 0 if it is handled apart from the others of its connection."""
        self.is_timed = meter.is_timed
        """Whether the time of the request counts."""
        self._running_since_ms: float | None = None
        """Since when it is handled apart from the others of its connection."""
        self._spent_ms = 0.0
        self._taken_ms = 0
        self._cause: DelayCause | None = None
        self.throttle_ms = 0
        """How long the client has to wait: the longest delay of all quotas."""

    def retire(self) -> None:
        """It goes on while the next request is handled, or its delay counts: that one gets another."""
        self.begun_ms = 0.0
        self.meter.current = MeteredRequest(self.meter)

    # -- time

    def pause(self) -> None:
        """The event loop goes on to other work."""
        if self._running_since_ms is not None:
            self._spent_ms += self._now_ms() - self._running_since_ms
            self._running_since_ms = None

    def resume(self) -> None:
        """The event loop handles the request by itself, not among those of its connection."""
        if self.is_timed and self.meter.mark_ms is None:
            self._running_since_ms = self._now_ms()

    def _now_ms(self) -> float:
        return self.meter.now_s() * 1000.0

    async def timed(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a handler's coroutine; only the time in which it runs counts, not that in which it waits."""
        return await _Steps(self, work)

    def _count_time(self) -> None:
        """Count the time so far, unless that of the whole turn is counted when it ends."""
        if self.is_timed and (self.meter.is_exact or not self.begun_ms):
            self._record_time(self._now_ms())

    def _record_time(self, now_ms: float) -> None:
        meter = self.meter
        account = meter.request
        if account is None:
            return
        spent_ms = self._spent_ms
        if meter.mark_ms is not None:
            spent_ms += now_ms - meter.mark_ms
            meter.mark_ms = now_ms
        if self._running_since_ms is not None:
            spent_ms += now_ms - self._running_since_ms
            self._running_since_ms = now_ms
        self._spent_ms = 0.0
        if delay_ms := account.count(spent_ms * _PERCENT_PER_MS, now_ms):
            self.delayed(account, delay_ms)

    def encoded(self) -> None:
        """Count the time since `resume`, in which the answer was encoded; the next request is delayed for it."""
        throttle_ms, cause = self.throttle_ms, self._cause
        self._record_time(self._now_ms())
        self._running_since_ms = None
        self.throttle_ms, self._cause = throttle_ms, cause

    # -- what was done

    def produced(self, *, has_answer: bool) -> int:
        """Count a Produce; the delay. As in Kafka the time of one without an answer (acks=0) does not delay."""
        meter = self.meter
        now_ms = self.begun_ms or self._now_ms()
        account = meter.produce
        if account is not None and (delay_ms := account.count(self.size_bytes, now_ms)):
            self.delayed(account, delay_ms)
        disk = meter.quotas.disk
        if disk.is_slowing:
            self.delayed(disk, disk.produced(self.size_bytes, now_ms))
        if has_answer:
            self._count_time()
        return self.throttle_ms

    def fetched(self, size_bytes: int) -> bool:
        """Count a Fetch of a consumer; whether its answer must be empty, and does not count.

        Not so if nothing else was fetched in all windows: a batch that is larger than the quota of all of them could
        never be read otherwise, as is the case in Kafka. It is delivered, and then the client waits.
        """
        self._count_time()
        request_delay_ms = self.throttle_ms
        account = self.meter.fetch
        if account is None:
            return request_delay_ms > 0
        now_ms = self.begun_ms or self._now_ms()
        delay_ms = account.count(size_bytes, now_ms)
        if not delay_ms and not request_delay_ms:
            return False
        self.delayed(account, delay_ms)
        if delay_ms and not request_delay_ms and account.total(int(now_ms)) <= size_bytes:
            return False
        account.take_back(size_bytes, int(now_ms))
        return True

    def fetch_max_bytes(self, wanted_bytes: int) -> int:
        """How much a fetch should return: what is left of the quota, and at least the quota of a few windows."""
        account = self.meter.fetch
        if account is None:
            return wanted_bytes
        now_ms = self.begun_ms or self._now_ms()
        if now_ms < account.quick_until_ms and account.free - account.pending >= wanted_bytes:
            return wanted_bytes
        return int(min(account.room(now_ms), wanted_bytes))

    def consumed(self, size_bytes: int) -> None:
        """Count records that were acquired for a member of a share group: they are delivered, then it waits."""
        account = self.meter.fetch
        if account is not None:
            self.delayed(account, account.count(size_bytes, self._now_ms()))

    def answered(self, answer: Entity) -> Entity:
        """Count the time of any other request; the answer with the delay, if its version has a field for it."""
        self._count_time()
        if self.throttle_ms and hasattr(answer, "throttle_time"):
            throttled: Entity = replace(cast(Any, answer), throttle_time=from_ms(self.throttle_ms))
            return throttled
        return answer

    # -- the delay

    def delayed(self, account: DelayCause, delay_ms: int) -> None:
        """Note how long the client has to wait because of an account, or because of the disk."""
        if delay_ms > self.throttle_ms:
            self.throttle_ms = delay_ms
            self._cause = account

    def take_delay_ms(self) -> int:
        """How long the client must be muted from now on: the delay if it was not taken yet, else 0."""
        if self.throttle_ms <= self._taken_ms or self._cause is None:
            return 0
        self._taken_ms = self.throttle_ms
        if isinstance(self._cause, QuotaAccount):
            self.meter.quotas.throttled(self._cause, self.throttle_ms)
        else:
            self._cause.note_throttled(self.throttle_ms)
        return self.throttle_ms


class _Steps:
    """Awaits a coroutine step by step, and times each step."""

    __slots__ = ("_request", "_work")

    def __init__(self, request: MeteredRequest, work: Coroutine[Any, Any, Any]) -> None:
        self._request = request
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        step = _sending(self._work, None)
        while True:
            self._request.resume()
            try:
                awaited = step()
            except StopIteration as done:
                return done.value
            finally:
                self._request.pause()
            try:
                sent = yield awaited
            except GeneratorExit:
                self._work.close()
                raise
            except BaseException as error:
                step = _throwing(self._work, error)
            else:
                step = _sending(self._work, sent)


def _sending(work: Coroutine[Any, Any, Any], value: Any) -> Callable[[], Any]:
    return lambda: work.send(value)


def _throwing(work: Coroutine[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: work.throw(error)
