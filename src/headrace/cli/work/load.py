"""The load of a pool: the backlog that the brokers report, and what its processes handle per second."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.cli.work.process import PoolProcess
from headrace.client.work.messages import Backlog, SourceBacklog, WorkSource
from headrace.model.scale import ProcessRate, SourceLoad

_STALE_S = 10.0
"""An older backlog is not known."""


@dataclass(slots=True)
class _Source:
    rate: ProcessRate = field(default_factory=ProcessRate)
    backlog: SourceBacklog | None = None
    waiting: int | None = None


class PoolLoad:
    """Collects the messages of the processes, and gives the load of each source."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._looked_at_s = 0.0
        self._measured_at_s: float | None = None
        self._seen: dict[tuple[int, str], int] = {}
        """How many messages each process had handled, by its number and the source."""
        self.problem = ""
        self.handled: Counter[str] = Counter()
        """Messages by source."""

    def set_sources(self, sources: Sequence[WorkSource]) -> None:
        """The sources of the application; what was measured of others is forgotten, and all of it after a reload."""
        self._sources = {each.name: _Source() for each in sources}
        self._measured_at_s = None

    def note(self, backlog: Backlog) -> None:
        self._looked_at_s = time.monotonic()
        self.problem = backlog.problem
        for each in backlog.sources:
            if (source := self._sources.get(each.source)) is not None:
                source.backlog = each

    @property
    def is_known(self) -> bool:
        """Whether the brokers were asked at all."""
        return self._looked_at_s > 0

    def measure(self, processes: Iterable[PoolProcess]) -> list[SourceLoad]:
        """The load of each source now, with the rate of one process."""
        running = [each for each in processes if each.state == "running" and each.report and each.report.is_running]
        now_s = time.monotonic()
        passed_s = 0.0 if self._measured_at_s is None else now_s - self._measured_at_s
        self._measured_at_s = now_s
        handled = self._handled(running)
        is_stale = now_s - self._looked_at_s > _STALE_S
        loads = []
        for name, source in self._sources.items():
            before, source.waiting = source.waiting, None if is_stale else self._waiting(name, source, running)
            self.handled[name] += handled.get(name, 0)
            # Only a backlog of more than this measurement and these processes shows how fast they can be.
            least = min(before or 0, source.waiting or 0)
            is_busy = least >= max(handled.get(name, 0), len(running), 1)
            source.rate.note(handled.get(name, 0), len(running), passed_s, is_busy=is_busy)
            found = source.backlog or SourceBacklog(name, None)
            loads.append(SourceLoad(name, source.waiting, found.oldest_s, source.rate.per_s, found.cap))
        return loads

    def _handled(self, running: list[PoolProcess]) -> dict[str, int]:
        """How many messages of each source were handled since the last call."""
        found: dict[str, int] = {}
        for process in running:
            totals: dict[str, int] = {}
            for worker in process.report.workers if process.report is not None else ():
                totals[worker.source] = totals.get(worker.source, 0) + worker.handled
            for name, total in totals.items():
                found[name] = found.get(name, 0) + total - self._seen.get((process.number, name), 0)
                self._seen[process.number, name] = total
        alive = {process.number for process in running}
        self._seen = {key: total for key, total in self._seen.items() if key[0] in alive}
        return found

    def _waiting(self, name: str, source: _Source, running: list[PoolProcess]) -> int | None:
        if source.backlog is None or source.backlog.waiting is not None:
            return None if source.backlog is None else source.backlog.waiting
        # The lag of a group is what its members know of their partitions.
        lags = [
            worker.lag
            for process in running
            if process.report is not None
            for worker in process.report.workers
            if worker.source == name and worker.lag is not None
        ]
        return sum(lags) if lags else None
