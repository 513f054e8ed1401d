"""The health of handlers and workers: counts, last error and lag, for health endpoints and logs."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.client.failures import FailureLog, describe_with_place
from headrace.client.kafka.librdkafka import log


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """One handler of topics, or one worker of a queue."""

    name: str
    """The name of the function."""
    source: str
    """What it reads: `orders (group billing)`, or `queue emails`."""
    is_running: bool
    handled: int = 0
    """Calls of the function that returned, since the client was made."""
    failed: int = 0
    """Calls of the function that raised."""
    lag: int | None = None
    """Messages that wait to be handled: of the partitions that this member has, or in the queue. None if not known."""
    last_error: str | None = None
    last_error_at: datetime | None = None
    stopped_by: str | None = None
    """The error that ended it for good."""
    threads: int | None = None
    """How many threads a worker with `concurrency="auto"` uses now; None for others."""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a client's handlers and workers, returned by `Client.health`.

    ```python
    health = client.health()
    print(health.is_running, health.lag, health.last_error)
    ```
    """

    workers: tuple[WorkerHealth, ...] = ()
    broker_error: str | None = None
    """Why a connection to a broker failed the last time; the client connects again by itself."""
    broker_error_at: datetime | None = None

    @property
    def is_running(self) -> bool:
        """True while every registered handler and worker runs."""
        return all(each.is_running for each in self.workers)

    @property
    def lag(self) -> int:
        """Messages that wait, as far as that is known."""
        return sum(each.lag or 0 for each in self.workers)

    @property
    def last_error(self) -> str | None:
        """The latest error of any of them, or of a connection."""
        errors = [(each.last_error_at, each.last_error) for each in self.workers]
        errors.append((self.broker_error_at, self.broker_error))
        return max(((at, text) for at, text in errors if at is not None), default=(None, None))[1]

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        workers = [asdict(each) | {"last_error_at": _iso(each.last_error_at)} for each in self.workers]
        broker = {"broker_error": self.broker_error, "broker_error_at": _iso(self.broker_error_at)}
        summary = {"is_running": self.is_running, "lag": self.lag, "last_error": self.last_error}
        return {**summary, **broker, "workers": workers}


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


class WorkerMonitor:
    """Counts what one handler or worker does, and logs its failures. Thread-safe."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self._lock = threading.Lock()
        self._failures = FailureLog(log, f"{name}, {source}")
        self._is_running = False
        self._handled = 0
        self._failed = 0
        self._lag: int | None = None
        self._last_error: str | None = None
        self._last_error_at: datetime | None = None
        self._stopped_by: str | None = None
        self._threads: int | None = None

    def started(self) -> None:
        with self._lock:
            self._is_running = True
            self._stopped_by = None

    def ended(self, error: BaseException | None) -> None:
        with self._lock:
            self._failures.end()
            self._is_running = False
            if error is not None:
                self._stopped_by = self._note(error)
                log.error("%s, %s: stopped by %s", self.name, self.source, self._stopped_by)

    def handled(self, count: int = 1) -> None:
        with self._lock:
            self._handled += count

    def failed(self, error: BaseException, what: str, outcome: str, *, is_expected: bool = False) -> None:
        """The user's function raised; see `FailureLog.failed`."""
        with self._lock:
            self._failed += 1
            self._note(error)
            self._failures.failed(error, what, outcome, is_expected=is_expected)

    def troubled(self, error: BaseException, what: str) -> None:
        """Something else than the function failed, and passes."""
        with self._lock:
            self._note(error)
            self._failures.failed(error, what, "waiting", is_expected=True)

    def tick(self) -> None:
        with self._lock:
            self._failures.tick()

    def behind(self, lag: int | None) -> None:
        with self._lock:
            self._lag = lag

    def uses(self, threads: int) -> None:
        with self._lock:
            self._threads = threads

    def look(self) -> WorkerHealth:
        with self._lock:
            return WorkerHealth(
                self.name,
                self.source,
                self._is_running,
                self._handled,
                self._failed,
                self._lag,
                self._last_error,
                self._last_error_at,
                self._stopped_by,
                self._threads,
            )

    def _note(self, error: BaseException) -> str:
        self._last_error = describe_with_place(error)
        self._last_error_at = datetime.now(UTC)
        return self._last_error


def name_of(function: Callable[..., object]) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__name__)


def health_of(monitors: Sequence[WorkerMonitor], broker_error: tuple[str, datetime] | None) -> Health:
    text, at = broker_error or (None, None)
    return Health(tuple(each.look() for each in monitors), text, at)
