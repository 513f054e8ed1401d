"""Periodic work: functions that run at due times, each due time once in the cluster.

A schedule is a FIFO queue, `schedules.NAME`, with the setting `queue.schedule`: the broker that leads the queue sends
one message for each due time. A function registered with `every` or `cron` is the queue's worker.
"""

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from headrace.client.errors import NoSuchQueue, QueueFailed
from headrace.client.keywords import checks_keywords
from headrace.client.queue.description import QueueDescription
from headrace.client.queue.message import QueueMessage, Seconds, seconds
from headrace.client.queue.queue import Queue
from headrace.client.queue.settings import QueueOptions, settings_of
from headrace.model.errors import SettingsError
from headrace.model.queued import DUE_TIME, SCHEDULE
from headrace.model.timetable import read_timetable

PREFIX = "schedules."
DEAD_PREFIX = "schedules-dead."
_MAX_NAME = 200
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9._-]+")
_RETRY_S = 1.0
_SETTINGS = ("queue.schedule", "queue.schedule.timezone", "queue.schedule.missed")

Missed = Literal["skip", "once", "all"]


def rule_of(period: "str | Seconds") -> str:
    """The rule of a period in words, in seconds, or as a `timedelta`."""
    if isinstance(period, str):
        return f"every {period.strip()}"
    return f"every {round(seconds(period) * 1000)} ms"


def schedule_name(function: Callable[..., object]) -> str:
    """The name of a function's schedule: its module and its name. A script is named by its file."""
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name.removesuffix(".__main__") if spec is not None else Path(file).stem if file else "main"
    name = f"{module}.{function.__qualname__}".replace("<locals>.", "")
    return _NOT_IN_NAMES.sub("-", name)


@dataclass(frozen=True)
class PeriodicWork:
    """A function with its schedule, as it was registered."""

    name: str
    rule: str
    timezone: str
    missed: Missed
    attempts: int
    queue: Queue

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= _MAX_NAME or _NOT_IN_NAMES.search(self.name):
            raise ValueError(
                f"a schedule's name has up to {_MAX_NAME} letters, digits, dots, - and _, not {self.name!r}"
            )
        if self.missed not in ("skip", "once", "all"):
            raise ValueError(f"missed must be skip, once or all, not {self.missed!r}")
        if not 1 <= self.attempts <= 1000:
            raise ValueError(f"attempts must be 1 to 1000, not {self.attempts}")
        try:
            read_timetable(self.rule, self.timezone)
        except SettingsError as error:
            raise ValueError(str(error)) from None

    def put(self) -> None:
        """Create the schedule in the cluster, or change it to this one. The last that was put is in force."""
        options = QueueOptions(
            type="fifo",
            max_receives=self.attempts,
            dead_letter=DEAD_PREFIX + self.name,
            backoff=_RETRY_S,
            settings={
                "queue.schedule": self.rule,
                "queue.schedule.timezone": self.timezone,
                "queue.schedule.missed": self.missed,
            },
        )
        try:
            found = self.queue.describe().settings
        except NoSuchQueue:
            try:
                self.queue.create(**options)
                return
            except QueueFailed as error:
                # Another worker was quicker.
                if error.code != "QueueExists":
                    raise
                found = self.queue.describe().settings
        wanted = settings_of(options)
        if any(str(found.get(name.replace(".", "_"))) != text for name, text in wanted.items()):
            self.queue.alter(**options)

    def calls(self, function: Callable[..., Any]) -> Callable[[QueueMessage], object]:
        """The function as the worker of the queue: with the due time, if it has a parameter for it."""
        takes_due = bool(inspect.signature(function).parameters)
        zone = ZoneInfo(self.timezone)

        def arguments(message: QueueMessage) -> tuple[datetime, ...]:
            return (due_time(message).astimezone(zone),) if takes_due else ()

        if inspect.iscoroutinefunction(function):

            async def call_on_loop(message: QueueMessage) -> object:
                return await function(*arguments(message))

            return call_on_loop

        def call(message: QueueMessage) -> object:
            return function(*arguments(message))

        return call


def due_time(message: QueueMessage) -> datetime:
    """The due time of a run; of one that was asked for in between, when that was."""
    text = message.header(DUE_TIME) or ""
    if not text.isdecimal():
        return message.sent_at
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(text))


@dataclass(frozen=True, slots=True)
class ScheduleDescription:
    """A schedule of the cluster.

    ```python
    for each in client.schedules.list():
        print(each.as_dict())
    ```
    """

    name: str
    queue: str
    rule: str
    """`every 5 minutes`, or `cron` and an expression."""
    timezone: str
    missed: str
    next_due: datetime | None
    last_due: datetime | None
    """The due time of the last run that was sent to the workers; None before the first."""
    waiting: int | None
    """Runs that no worker has begun, or that wait for their next attempt."""
    running: int | None
    failed: int | None
    """Runs that failed at all their attempts: they are in the dead-letter queue."""

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        times = {
            name: None if at is None else at.isoformat()
            for name, at in (("next_due", self.next_due), ("last_due", self.last_due))
        }
        others = ("name", "queue", "rule", "timezone", "missed", "waiting", "running", "failed")
        return {name: getattr(self, name) for name in others} | times


@checks_keywords
class Schedules:
    """The schedules of a cluster, made by `Client.every` and `Client.cron`, or by the setting `queue.schedule`.

    ```python
    for each in client.schedules.list():
        print(each.name, each.rule, each.next_due, each.last_due)
    ```
    """

    def __init__(self, queues: "Callable[[], list[QueueDescription]]", queue: Callable[[str], Queue]) -> None:
        self._queues = queues
        self._queue = queue

    def list(self) -> "list[ScheduleDescription]":
        """All schedules, by name."""
        found = {each.name: each for each in self._queues()}
        return [_described(each, found) for each in found.values() if each.settings.get("schedule")]

    def remove(self, name: str) -> int:
        """Remove a schedule: it is not due any more. Returns how many failed runs are left in the dead-letter queue
        `schedules-dead.NAME`; without any, that is deleted, too. A queue of another name loses the setting
        `queue.schedule`, and stays with its messages. Raises `NoSuchQueue`."""
        queue = self._of(name)
        if not queue.name.startswith(PREFIX):
            queue.alter(unset=_SETTINGS)
            return 0
        queue.delete()
        dead = self._queue(DEAD_PREFIX + queue.name.removeprefix(PREFIX))
        try:
            counts = dead.counts()
            left = counts.available + counts.in_flight + counts.delayed
            if not left:
                dead.delete()
        except NoSuchQueue:
            return 0
        return left

    def run(self, name: str) -> None:
        """Let a schedule run once more, as soon as a worker is free. Its due time is now. Raises `NoSuchQueue`."""
        queue = self._of(name)
        is_fifo = queue.describe().is_fifo
        queue.send({"schedule": queue.name}, group=SCHEDULE if is_fifo else None)

    def _of(self, name: str) -> Queue:
        """The queue of a schedule, by the name that `list` shows."""
        own = self._queue(PREFIX + name.removeprefix(PREFIX))
        try:
            own.describe()
        except NoSuchQueue:
            if name.startswith(PREFIX):
                raise
            other = self._queue(name)
            if not other.describe().settings.get("schedule"):
                raise
            return other
        return own


def _described(found: QueueDescription, all_queues: dict[str, QueueDescription]) -> ScheduleDescription:
    settings, counts = found.settings, found.counts
    rule, timezone = str(settings["schedule"]), str(settings.get("schedule_timezone", "UTC"))
    dead = all_queues.get(str(settings.get("dead_letter", "")))
    failed = None if dead is None or dead.counts is None else dead.counts.available + dead.counts.in_flight
    now_ms = round(datetime.now(UTC).timestamp() * 1000)
    last_ms = None if counts is None else counts.last_due_at_ms
    next_ms = read_timetable(rule, timezone).next_after(max(now_ms, last_ms or 0))
    zone = ZoneInfo(timezone)
    return ScheduleDescription(
        found.name.removeprefix(PREFIX),
        found.name,
        rule,
        timezone,
        str(settings.get("schedule_missed", "once")),
        None if next_ms is None else datetime.fromtimestamp(next_ms / 1000, zone),
        None if last_ms is None else datetime.fromtimestamp(last_ms / 1000, zone),
        None if counts is None else counts.available + counts.delayed,
        None if counts is None else counts.in_flight,
        failed,
    )
