"""The queue settings. A queue is a topic with one partition, and these are settings of that topic: they are stored,
changed and replicated with it, and any Kafka tool shows them. `queue.type` makes a topic a queue.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.config.backlog import DEFAULT_POLICY, backlog_rows
from headrace.config.settings import Kind, Setting, parse_all, table
from headrace.model.backlog import BacklogBound, backlog_bound
from headrace.model.errors import SettingsError
from headrace.model.features import SCHEDULES_LEVEL
from headrace.model.timetable import read_timetable

PREFIX = "queue."

_SECOND_MS = 1000
_DAY_MS = 24 * 60 * 60 * _SECOND_MS
_YEAR_MS = 365 * _DAY_MS

_LEAST_IDLE_MS = 60 * _SECOND_MS
MAX_VISIBILITY_MS = 12 * 60 * 60 * _SECOND_MS
MAX_BODY_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings in force for one queue, typed. Attribute names are the setting names without `queue.`."""

    type: str = "none"
    visibility_timeout_ms: int = 30 * _SECOND_MS
    delay_ms: int = 0
    receive_wait_ms: int = 0
    max_message_bytes: int = MAX_BODY_BYTES
    retention_ms: int = 4 * _DAY_MS
    max_receives: int = 0
    dead_letter: str = ""
    retry_backoff_ms: int = 0
    retry_backoff_factor: float = 2.0
    retry_backoff_max_ms: int = 900 * _SECOND_MS
    retry_jitter: float = 0.2
    max_in_flight: int = 120_000
    priority_ageing_ms: int = 0
    dedupe_by_content: bool = False
    dedupe_scope: str = "queue"
    schedule: str = ""
    schedule_timezone: str = "UTC"
    schedule_missed: str = "once"
    idle_delete_ms: int = 0
    attributes: str = ""
    max_backlog_age_ms: int = 0
    max_backlog_bytes: int = 0
    max_backlog_messages: int = 0
    max_backlog_policy: str = DEFAULT_POLICY

    @property
    def backlog_bound(self) -> BacklogBound | None:
        return backlog_bound(
            self.max_backlog_messages, self.max_backlog_bytes, self.max_backlog_age_ms, self.max_backlog_policy
        )

    @property
    def age_limit_ms(self) -> int:
        """When a message that was not deleted is dropped: after its retention, or the age of a backlog that drops."""
        bound = self.backlog_bound
        return min(self.retention_ms, bound.age_ms) if bound and bound.drops and bound.age_ms else self.retention_ms

    @property
    def is_queue(self) -> bool:
        return self.type != "none"

    @property
    def is_fifo(self) -> bool:
        return self.type == "fifo"


NO_QUEUE = _D = QueueSettings()

QUEUE_SETTINGS: Mapping[str, Setting] = table(
    Setting("queue.type", Kind.STRING, _D.type,
            "Whether the topic is a queue: none, standard, or fifo (in order within a group, without duplicates).",
            choices=("none", "standard", "fifo")),
    Setting("queue.visibility.timeout.ms", Kind.LONG, _D.visibility_timeout_ms,
            "How long a received message is invisible to others (its lease), unless the receiver sets it.",
            0, MAX_VISIBILITY_MS),
    Setting("queue.delay.ms", Kind.LONG, _D.delay_ms,
            "How long a sent message is invisible, unless the sender sets it.", 0, _YEAR_MS),
    Setting("queue.receive.wait.ms", Kind.LONG, _D.receive_wait_ms,
            "How long a receive waits for a message, unless the receiver sets it.", 0, 20 * _SECOND_MS),
    Setting("queue.max.message.bytes", Kind.INT, _D.max_message_bytes,
            "The largest size of a message, body and attributes together.", 1024, MAX_BODY_BYTES),
    Setting("queue.retention.ms", Kind.LONG, _D.retention_ms,
            "A message that was not deleted expires after this time, counted from the end of its delay.",
            60 * _SECOND_MS, 10 * _YEAR_MS),
    Setting("queue.max.receives", Kind.INT, _D.max_receives,
            "A message that was received this often without being deleted moves to the dead-letter queue; 0: never.",
            0, 1000),
    Setting("queue.dead.letter", Kind.STRING, _D.dead_letter,
            "The dead-letter queue for messages past queue.max.receives. Empty: they stay in this queue."),
    Setting("queue.retry.backoff.ms", Kind.LONG, _D.retry_backoff_ms,
            "How long a message is invisible after its first failure or expired lease; 0: it is visible at once.",
            0, _DAY_MS),
    Setting("queue.retry.backoff.factor", Kind.DOUBLE, _D.retry_backoff_factor,
            "The factor of queue.retry.backoff.ms for each further failure.", 1, 100),
    Setting("queue.retry.backoff.max.ms", Kind.LONG, _D.retry_backoff_max_ms,
            "The longest time that a message is invisible after a failure.", 0, 30 * _DAY_MS),
    Setting("queue.retry.jitter", Kind.DOUBLE, _D.retry_jitter,
            "The maximum share of the backoff that is added or subtracted at random, so that retries do not coincide.",
            0, 1),
    Setting("queue.max.in.flight", Kind.INT, _D.max_in_flight,
            "The maximum number of messages in flight: received and not yet deleted.", 1, 10_000_000),
    Setting("queue.priority.ageing.ms", Kind.LONG, _D.priority_ageing_ms,
            "Each time a message has waited this long, its priority rises by one level; 0: strictly by priority.",
            0, _YEAR_MS),
    Setting("queue.dedupe.by.content", Kind.BOOLEAN, _D.dedupe_by_content,
            "In a fifo queue: deduplicate messages with the same body within 5 minutes, unless they have ids."),
    Setting("queue.dedupe.scope", Kind.STRING, _D.dedupe_scope,
            "In a fifo queue: deduplicate within the whole queue or within the message group.",
            choices=("queue", "messageGroup")),
    Setting("queue.schedule", Kind.STRING, _D.schedule,
            "When the broker itself sends a message to the queue: every 5 minutes, or cron 0 6 * * *. Empty: never.",
            level=SCHEDULES_LEVEL),
    Setting("queue.schedule.timezone", Kind.STRING, _D.schedule_timezone,
            "The time zone of a cron expression in queue.schedule, such as Europe/Berlin.", level=SCHEDULES_LEVEL),
    Setting("queue.schedule.missed", Kind.STRING, _D.schedule_missed,
            "Which due times of queue.schedule count when they could not be handled in time: none that is more than a "
            "minute late (skip), the latest (once), or all (the last 1,000).",
            choices=("skip", "once", "all"), level=SCHEDULES_LEVEL),
    Setting("queue.idle.delete.ms", Kind.LONG, _D.idle_delete_ms,
            "The queue is deleted with its messages when no receiver has asked for messages for this time, from a "
            "minute on; 0: never. For reply queues of clients that are gone.",
            0, _YEAR_MS, level=SCHEDULES_LEVEL),
    Setting("queue.attributes", Kind.STRING, _D.attributes,
            "Other attributes of the queue for the SQS API, as JSON: its tags, policies and times."),
    *backlog_rows(PREFIX, "those that are not deleted: available, in flight and delayed",
                  "the oldest available messages are deleted"),
)  # fmt: skip


def queue_settings(overrides: Mapping[str, str]) -> QueueSettings:
    """The settings in force for a queue with these overrides; `SettingsError` on an unknown or invalid one."""
    values = {name.removeprefix("queue_"): value for name, value in parse_all(QUEUE_SETTINGS, overrides).items()}
    result = replace(_D, **values)  # type: ignore[arg-type]
    if not result.is_queue and overrides:
        raise SettingsError(f"{min(overrides)} is a setting of queues: set queue.type to standard or fifo")
    if not result.is_fifo and (result.dedupe_by_content or result.dedupe_scope != _D.dedupe_scope):
        raise SettingsError("queue.dedupe.* are settings of fifo queues: set queue.type=fifo")
    if 0 < result.idle_delete_ms < _LEAST_IDLE_MS:
        raise SettingsError(f"queue.idle.delete.ms must be 0, or at least {_LEAST_IDLE_MS}")
    if result.schedule:
        read_timetable(result.schedule, result.schedule_timezone)
    elif (result.schedule_timezone, result.schedule_missed) != (_D.schedule_timezone, _D.schedule_missed):
        raise SettingsError("queue.schedule.* are for a queue with a schedule: set queue.schedule")
    return result
