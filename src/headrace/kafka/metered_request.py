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


class MeteredRequest:
    __slots__ = (
        "_accounts",
        "_cause",
        "_now_ms",
        "_quotas",
        "_running_since_ms",
        "_size_bytes",
        "_spent_ms",
        "_taken_ms",
        "throttle_ms",
    )

    def __init__(
        self, quotas: BrokerQuotas, accounts: ClientAccounts, size_bytes: int, now_ms: Callable[[], float]
    ) -> None:
        self._quotas = quotas
        self._accounts = accounts
        self._size_bytes = size_bytes
        self._now_ms = now_ms
        self._running_since_ms: float | None = now_ms()
        self._spent_ms = 0.0
        self._taken_ms = 0
        self._cause: QuotaAccount | None = None
        self.throttle_ms = 0
        """How long the client has to wait: the longest delay of all quotas."""

    # -- time

    def pause(self) -> None:
        """The event loop goes on to other work."""
        if self._running_since_ms is not None:
            self._spent_ms += self._now_ms() - self._running_since_ms
            self._running_since_ms = None

    def resume(self) -> None:
        self._running_since_ms = self._now_ms()

    async def timed(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a handler's coroutine; only the time in which it runs counts, not that in which it waits."""
        return await _Steps(self, work)

    def _record_time(self, now_ms: float) -> int:
        """Count the time so far; the delay."""
        account = self._accounts.request
        if account is None:
            return 0
        running_ms = 0.0 if self._running_since_ms is None else now_ms - self._running_since_ms
        percent = (self._spent_ms + running_ms) * _PERCENT_PER_MS
        self._spent_ms = 0.0
        if self._running_since_ms is not None:
            self._running_since_ms = now_ms
        return account.record(percent, int(now_ms))

    def encoded(self) -> None:
        """Count the time since `resume`, in which the answer was encoded; the next request is delayed for it."""
        self._record_time(self._now_ms())

    # -- what was done

    def produced(self, *, has_answer: bool) -> None:
        """Count a Produce. As in Kafka the time of one without an answer (acks=0) does not delay."""
        now_ms = self._now_ms()
        account = self._accounts.produce
        delay_ms = 0 if account is None else account.record(self._size_bytes, int(now_ms))
        self._throttle(account, delay_ms)
        if has_answer:
            self._throttle(self._accounts.request, self._record_time(now_ms))

    def fetched(self, size_bytes: int) -> bool:
        """Count a Fetch of a consumer; whether its answer must be empty, and does not count.

        Not so if nothing else was fetched in all windows: a batch that is larger than the quota of all of them could
        never be read otherwise, as is the case in Kafka. It is delivered, and then the client waits.
        """
        now_ms = self._now_ms()
        request_delay_ms = self._record_time(now_ms)
        account = self._accounts.fetch
        delay_ms = 0 if account is None else account.record(size_bytes, int(now_ms))
        self._throttle(account, delay_ms)
        self._throttle(self._accounts.request, request_delay_ms)
        if not self.throttle_ms or account is None:
            return self.throttle_ms > 0
        if delay_ms and not request_delay_ms and account.total(int(now_ms)) <= size_bytes:
            return False
        account.take_back(size_bytes, int(now_ms))
        return True

    def fetch_max_bytes(self) -> int:
        """How much a fetch should return: what is left of the quota, and at least the quota of one window."""
        account = self._accounts.fetch
        return _UNLIMITED if account is None else int(min(account.room(int(self._now_ms())), _UNLIMITED))

    def consumed(self, size_bytes: int) -> None:
        """Count records that were acquired for a member of a share group: they are delivered, then it waits."""
        account = self._accounts.fetch
        if account is not None:
            self._throttle(account, account.record(size_bytes, int(self._now_ms())))

    def delayed(self, account: QuotaAccount, delay_ms: int) -> None:
        """Note a delay that the handler has found."""
        self._throttle(account, delay_ms)

    def answered(self, answer: Entity) -> Entity:
        """Count the time of any other request; the answer with the delay, if its version has a field for it."""
        self._throttle(self._accounts.request, self._record_time(self._now_ms()))
        if self.throttle_ms and hasattr(answer, "throttle_time"):
            throttled: Entity = replace(cast(Any, answer), throttle_time=from_ms(self.throttle_ms))
            return throttled
        return answer

    def _throttle(self, account: QuotaAccount | None, delay_ms: int) -> None:
        if delay_ms > self.throttle_ms:
            self.throttle_ms = delay_ms
            self._cause = account

    def take_delay_ms(self) -> int:
        """How long the client must be muted from now on: the delay if it was not taken yet, else 0."""
        if self.throttle_ms <= self._taken_ms or self._cause is None:
            return 0
        self._taken_ms = self.throttle_ms
        self._quotas.throttled(self._cause, self.throttle_ms)
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
