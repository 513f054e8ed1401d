"""The options of a handler."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headrace.client.backoff import Backoff
from headrace.client.health import WorkerMonitor, name_of
from headrace.client.message import Message
from headrace.client.retry import RetryMode, RetryPolicy

Delivery = Literal["at-most-once", "at-least-once", "exactly-once"]


@dataclass(frozen=True)
class Handler:
    """A handler as it was registered; `ClientBase.handler` says what each argument means."""

    topics: list[str]
    group: str
    function: Callable[[Message], object]
    delivery: Delivery = "at-least-once"
    retry: Backoff = field(default_factory=Backoff)
    retry_mode: RetryMode = "hold"
    retry_topic: str | None = None
    dead_letter: str | None = None
    workers: int = 1
    start: Literal["earliest", "latest"] = "earliest"
    batch: int = 100
    commit_interval_s: float | None = None
    transactional_id: str | None = None
    type: Any = None
    everywhere: bool = False
    monitor: WorkerMonitor = field(default_factory=lambda: WorkerMonitor("", ""))

    def __post_init__(self) -> None:
        if not self.topics:
            raise ValueError("a handler needs at least one topic")
        if self.delivery not in ("at-most-once", "at-least-once", "exactly-once"):
            raise ValueError(f"delivery must be at-most-once, at-least-once or exactly-once, not {self.delivery!r}")
        if self.retry_mode not in ("hold", "retry-topic"):
            raise ValueError(f"retry_mode must be hold or retry-topic, not {self.retry_mode!r}")
        if self.start not in ("earliest", "latest"):
            raise ValueError(f"start must be earliest or latest, not {self.start!r}")
        if self.workers < 1 or self.batch < 1:
            raise ValueError("workers and batch must be at least 1")
        if not self.monitor.name:
            source = f"{', '.join(self.topics)} (group {self.group})"
            object.__setattr__(self, "monitor", WorkerMonitor(name_of(self.function), source))

    def calling(self, function: Callable[[Message], object]) -> "Handler":
        """The same handler with another function."""
        return replace(self, function=function)

    @property
    def own_retry_topic(self) -> str | None:
        """The retry topic of this handler; None in the mode `hold`."""
        if self.retry_mode == "hold":
            return None
        return self.retry_topic or f"{self.topics[0]}.{self.group}.retry"

    @property
    def all_topics(self) -> list[str]:
        retry_topic = self.own_retry_topic
        return [*self.topics, retry_topic] if retry_topic else self.topics

    @property
    def policy(self) -> RetryPolicy:
        return RetryPolicy(self.group, self.retry, self.retry_mode, self.own_retry_topic, self.dead_letter)

    @property
    def interval_s(self) -> float:
        if self.commit_interval_s is not None:
            return self.commit_interval_s
        return 0.1 if self.delivery == "exactly-once" else 0.5
