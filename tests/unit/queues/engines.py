"""A queue's engine with its log and its kept state, as a broker would drive it."""

from dataclasses import dataclass, field

from headrace.config.queue import QueueSettings
from headrace.coordinator.machine import InternalRecord
from headrace.queues.engine.chunk_index import DuplicateMessage, LogMessage
from headrace.queues.engine.engine import Engine

START_MS = 1_700_000_000_000
SECOND = 1000


@dataclass
class Driven:
    """Everything that was sent is in `log`; everything that the engine wants to be kept is in `kept`."""

    settings: QueueSettings = field(default_factory=lambda: QueueSettings(type="standard"))
    jitter: float = 0.5
    now_ms: int = START_MS

    def __post_init__(self) -> None:
        self.log: list[LogMessage] = []
        self.log_start = 0
        self.kept: dict[bytes, bytes] = {}
        self.engine = self._new()

    def _new(self) -> Engine:
        return Engine(self.settings, lambda: self.jitter)

    def send(self, count: int = 1, **what: object) -> list[DuplicateMessage]:
        """Messages that are all the same."""
        new = [LogMessage(len(self.log) + number, self.now_ms, **what) for number in range(count)]  # type: ignore[arg-type]
        self.log += new
        return self.engine.index(new, self.now_ms)

    def receive(self, most: int = 1, visibility_ms: int | None = None) -> list[int]:
        return [lease.offset for lease in self.engine.receive(most, self.now_ms, visibility_ms)]

    def acknowledge(self, offset: int, attempt: int = 1) -> None:
        (failure,) = self.engine.acknowledge([(offset, attempt)], self.now_ms)
        if failure is not None:
            raise failure

    def nack(self, offset: int, attempt: int = 1, delay_ms: int | None = None, reason: str = "") -> int:
        return self.engine.nack(offset, attempt, self.now_ms, delay_ms, reason)

    def extend(self, offset: int, visibility_ms: int, attempt: int = 1) -> int:
        return self.engine.extend(offset, attempt, visibility_ms, self.now_ms)

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.engine.due(self.now_ms)

    def keep(self, most: int | None = None) -> None:
        """All that is to be kept, or only the first of it; then records that are not needed are gone from the log."""
        changes = self.engine.take_changes()
        for key, value in changes[:most]:
            if value is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = value
        if most is None:
            self.log_start = self.engine.log_start

    def restart(self, most: int | None = None) -> None:
        """Another broker goes on from what was kept."""
        self.keep(most)
        self.engine = self._new()
        self.engine.load([InternalRecord(key, value) for key, value in self.kept.items()])
        self.engine.drop_before(self.log_start)
        self.engine.index(self.log[self.engine.indexed_to :], self.now_ms)
        self.engine.due(self.now_ms)

    def counts(self) -> tuple[int, int, int]:
        counts = self.engine.counts()
        return counts.available, counts.in_flight, counts.delayed
