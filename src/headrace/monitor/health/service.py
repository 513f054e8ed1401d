"""Checks the health of this broker every few seconds, and answers for the whole cluster.

Each broker checks what it sees: the image, itself, the groups it coordinates, the queues it leads. The problems of the
cluster are those of all its brokers, so that asking any broker gives the same list.
"""

import asyncio
import logging

from headrace.monitor.health.checks import problems
from headrace.monitor.health.hysteresis import ProblemHistory
from headrace.monitor.health.problem import HealthProblem, HealthView, health_view
from headrace.monitor.health.source import HealthSource
from headrace.monitor.monitor import Monitor
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

CHECK_EVERY_S = 5.0
_SHARE = 20
"""A check of very many groups takes long: the pause after it is at least this many times as long."""


class HealthService:
    def __init__(self, source: HealthSource, monitor: Monitor, clock: Clock) -> None:
        self.source = source
        self._monitor = monitor
        self._clock = clock
        self._history = ProblemHistory()
        self._own: list[HealthProblem] = []
        self._last_error = ""
        self._checked_ms = clock.monotonic_ms()
        monitor.set_problems(lambda: self._own)

    @property
    def own(self) -> list[HealthProblem]:
        """The problems that this broker sees, as of the last check."""
        return self._own

    @property
    def checked_s_ago(self) -> float:
        return (self._clock.monotonic_ms() - self._checked_ms) / 1000

    async def cluster(self) -> HealthView:
        """The problems of the cluster."""
        return health_view(await self._monitor.problems())

    async def run(self) -> None:
        """Check until cancelled. A check that fails is logged, and the problems stay as they were."""
        while True:
            began_ms = self._clock.monotonic_ms()
            await self._check()
            took_s = (self._clock.monotonic_ms() - began_ms) / 1000
            await asyncio.sleep(max(CHECK_EVERY_S, _SHARE * took_s))

    async def _check(self) -> None:
        try:
            found = problems(await self.source.facts())
        except Exception as error:
            if repr(error) != self._last_error:
                log.error("the health of this broker could not be checked", exc_info=error)
            self._last_error = repr(error)
            return
        self._last_error = ""
        self._checked_ms = self._clock.monotonic_ms()
        self._own = self._history.update(found, self._checked_ms / 1000)
