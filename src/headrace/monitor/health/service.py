"""Checks the health of this broker every few seconds, and answers for the whole cluster.

Each broker checks what it sees: the image, itself, the groups it coordinates, the queues it leads. The problems of the
cluster are those of all its brokers, so that asking any broker gives the same list.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from headrace.monitor.health.checks import problems
from headrace.monitor.health.hysteresis import ProblemHistory
from headrace.monitor.health.problem import HealthView, Problem, health_view
from headrace.monitor.health.source import HealthSource
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

CHECK_EVERY_S = 5.0

OthersProblems = Callable[[], Awaitable[Iterable[Problem]]]


async def _none() -> Iterable[Problem]:
    return ()


class HealthService:
    def __init__(self, source: HealthSource, clock: Clock) -> None:
        self.source = source
        self.others: OthersProblems = _none
        """Asks the other brokers for their problems."""
        self._clock = clock
        self._history = ProblemHistory()
        self._own: list[Problem] = []
        self._last_error = ""
        self._checked_ms = clock.monotonic_ms()

    @property
    def own(self) -> list[Problem]:
        """The problems that this broker sees, as of the last check."""
        return self._own

    @property
    def checked_s_ago(self) -> float:
        return (self._clock.monotonic_ms() - self._checked_ms) / 1000

    async def cluster(self) -> HealthView:
        """The problems of the cluster."""
        return health_view([*self._own, *await self.others()])

    async def run(self) -> None:
        """Check until cancelled. A check that fails is logged, and the problems stay as they were."""
        while True:
            await self._check()
            await asyncio.sleep(CHECK_EVERY_S)

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
