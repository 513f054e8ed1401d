"""The backlog of a hosted queue: what it has, and what is dropped beyond its bound.

Bytes are estimated, so that no size must be stored for each message: the mean size of the messages in the log from the
oldest one on that is left, times their number.
"""

from headrace.config.queue import PREFIX
from headrace.model.backlog import BacklogBound
from headrace.queues.engine.engine import Engine
from headrace.queues.host.host import QueueHost
from headrace.replication.backlog import BacklogGuard


class QueueBacklog:
    """Implements `replication.backlog.BacklogMeasure`, and drops messages beyond the bound (invariant 90)."""

    def __init__(self, host: QueueHost) -> None:
        self._host = host
        self._bytes_before = (-1, -1, 0)
        """An offset, the start of the log, and the bytes in the log before that offset."""
        host.beyond_bound = self.most
        host.on_change.append(self._changed)
        host.on_close.append(lambda _: self._close())
        host.on_configure.append(self.configure)

    # -- measuring

    def messages(self) -> int:
        return self._host.engine.backlog + self._unindexed()

    def _unindexed(self) -> int:
        """Messages that are not committed or not indexed yet."""
        return int(self._host.partition.log.end_offset) - self._host.engine.indexed_to

    def size_bytes(self) -> int:
        return int(self._mean_bytes(self._host.engine) * self.messages())

    def _mean_bytes(self, engine: Engine) -> float:
        log = self._host.partition.log
        head, start = max(engine.head, log.start_offset), log.start_offset
        if head >= log.end_offset:
            return 0.0
        if self._bytes_before[:2] != (head, start):
            self._bytes_before = (head, start, log.bytes_before(head))
        return (log.size_bytes - self._bytes_before[2]) / (log.end_offset - head)

    def oldest_ms(self) -> int | None:
        return self._host.engine.oldest_ms()

    def undroppable(self) -> int:
        return self._host.engine.undroppable

    def now_ms(self) -> int:
        return self._host.now_ms()

    # -- the bound

    def configure(self) -> None:
        """Apply the settings of the queue."""
        host, partition = self._host, self._host.partition
        bound, guard = host.settings.backlog_bound, partition.backlog
        if bound is None:
            self._close()
        elif guard is None:
            partition.backlog = BacklogGuard(f"the queue {partition.topic}", PREFIX, bound, self)
        else:
            guard.configure(bound)

    def most(self, engine: Engine) -> int | None:
        """The most messages that the engine may have before it drops some; None if it drops none."""
        bound = self._host.settings.backlog_bound
        return None if bound is None or not bound.drops else self._most(engine, bound)

    def _most(self, engine: Engine, bound: BacklogBound) -> int | None:
        found = [bound.messages] if bound.messages else []
        if bound.size_bytes and (mean := self._mean_bytes(engine)):
            found.append(max(1, int(bound.size_bytes / mean)))
        return min(found, default=None)

    def _changed(self) -> None:
        if (guard := self._host.partition.backlog) is not None:
            guard.changed()

    def _close(self) -> None:
        guard, self._host.partition.backlog = self._host.partition.backlog, None
        if guard is not None:
            guard.close()
