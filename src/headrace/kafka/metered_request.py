"""One request of a client whose use is counted: how much it uses of what, and how long its client has to wait.

The answer is sent at once with the delay as `throttle_time_ms`; then the connection reads nothing for that time
(KIP-219). If several quotas are exceeded, the longest delay counts. The time of a request is that in which the event
loop handles it, which is the broker's one thread: 100 % is all of it.
"""

from collections.abc import Callable, Coroutine, Generator
from dataclasses import replace
from typing import Any, cast

from headrace.protocol.codec import Entity
from headrace.protocol.units import from_ms
from headrace.quotas.accounts import ClientAccounts, QuotaAccount
from headrace.quotas.broker_quotas import BrokerQuotas

_PERCENT_PER_MS = 0.1
"""A millisecond in a second, in percent."""
_UNLIMITED = 2**31 - 1


class ClientMeter:
    """The accounts of a connection's client, found again when quotas or the client change."""

    __slots__ = ("accounts", "client_id", "generation", "is_timed", "now_ms", "principal", "quotas", "software")

    def __init__(
        self,
        quotas: BrokerQuotas,
        principal: str,
        software: str,
        client_id: str | None,
        accounts: ClientAccounts | None,
        now_ms: Callable[[], float],
    ) -> None:
        """`accounts` is None if the client has none: no quota applies to it, or it is a broker."""
        self.quotas = quotas
        self.generation = quotas.accounts.generation
        self.principal = principal
        self.software = software
        self.client_id = client_id
        self.accounts = accounts
        self.now_ms = now_ms
        self.is_timed = accounts is not None and accounts.request is not None


class MeteredRequest:
    __slots__ = (
        "_accounts",
        "_cause",
        "_meter",
        "_running_since_ms",
        "_size_bytes",
        "_spent_ms",
        "_taken_ms",
        "is_timed",
        "throttle_ms",
    )

    def __init__(self, meter: ClientMeter, accounts: ClientAccounts, size_bytes: int) -> None:
        self._meter = meter
        self._accounts = accounts
        self._size_bytes = size_bytes
        self.is_timed = is_timed = meter.is_timed
        """Whether the time of the request counts."""
        self._running_since_ms: float | None = meter.now_ms() if is_timed else None
        self._spent_ms = 0.0
        self._taken_ms = 0
        self._cause: QuotaAccount | None = None
        self.throttle_ms = 0
        """How long the client has to wait: the longest delay of all quotas."""

    # -- time

    def pause(self) -> None:
        """The event loop goes on to other work."""
        if self._running_since_ms is not None:
            self._spent_ms += self._meter.now_ms() - self._running_since_ms
            self._running_since_ms = None

    def resume(self) -> None:
        if self.is_timed:
            self._running_since_ms = self._meter.now_ms()

    async def timed(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a handler's coroutine; only the time in which it runs counts, not that in which it waits."""
        return await _Steps(self, work)

    def _record_time(self, now_ms: float) -> None:
        """Count the time so far."""
        account = self._accounts.request
        if account is None:
            return
        running_ms = 0.0 if self._running_since_ms is None else now_ms - self._running_since_ms
        percent = (self._spent_ms + running_ms) * _PERCENT_PER_MS
        self._spent_ms = 0.0
        if self._running_since_ms is not None:
            self._running_since_ms = now_ms
        self.delayed(account, account.record(percent, int(now_ms)))

    def encoded(self) -> None:
        """Count the time since `resume`, in which the answer was encoded; the next request is delayed for it."""
        throttle_ms, cause = self.throttle_ms, self._cause
        self._record_time(self._meter.now_ms())
        self.throttle_ms, self._cause = throttle_ms, cause

    # -- what was done

    def produced(self, *, has_answer: bool) -> int:
        """Count a Produce; the delay. As in Kafka the time of one without an answer (acks=0) does not delay."""
        account = self._accounts.produce
        if account is not None:
            delay_ms = account.record(self._size_bytes, int(self._meter.now_ms()))
            if delay_ms:
                self.delayed(account, delay_ms)
        if has_answer and self.is_timed:
            self._record_time(self._meter.now_ms())
        return self.throttle_ms

    def fetched(self, size_bytes: int) -> bool:
        """Count a Fetch of a consumer; whether its answer must be empty, and does not count.

        Not so if nothing else was fetched in all windows: a batch that is larger than the quota of all of them could
        never be read otherwise, as is the case in Kafka. It is delivered, and then the client waits.
        """
        now_ms = int(self._meter.now_ms())
        if self.is_timed:
            self._record_time(now_ms)
        request_delay_ms = self.throttle_ms
        account = self._accounts.fetch
        if account is None:
            return request_delay_ms > 0
        delay_ms = account.record(size_bytes, now_ms)
        if not delay_ms and not request_delay_ms:
            return False
        self.delayed(account, delay_ms)
        if delay_ms and not request_delay_ms and account.total(now_ms) <= size_bytes:
            return False
        account.take_back(size_bytes, now_ms)
        return True

    def fetch_max_bytes(self) -> int:
        """How much a fetch should return: what is left of the quota, and at least the quota of a few windows."""
        account = self._accounts.fetch
        return _UNLIMITED if account is None else int(min(account.room(int(self._meter.now_ms())), _UNLIMITED))

    def consumed(self, size_bytes: int) -> None:
        """Count records that were acquired for a member of a share group: they are delivered, then it waits."""
        account = self._accounts.fetch
        if account is not None:
            self.delayed(account, account.record(size_bytes, int(self._meter.now_ms())))

    def answered(self, answer: Entity) -> Entity:
        """Count the time of any other request; the answer with the delay, if its version has a field for it."""
        if self.is_timed:
            self._record_time(self._meter.now_ms())
        if self.throttle_ms and hasattr(answer, "throttle_time"):
            throttled: Entity = replace(cast(Any, answer), throttle_time=from_ms(self.throttle_ms))
            return throttled
        return answer

    # -- the delay

    def delayed(self, account: QuotaAccount, delay_ms: int) -> None:
        """Note how long the client has to wait because of an account."""
        if delay_ms > self.throttle_ms:
            self.throttle_ms = delay_ms
            self._cause = account

    def take_delay_ms(self) -> int:
        """How long the client must be muted from now on: the delay if it was not taken yet, else 0."""
        if self.throttle_ms <= self._taken_ms or self._cause is None:
            return 0
        self._taken_ms = self.throttle_ms
        self._meter.quotas.throttled(self._cause, self.throttle_ms)
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
