"""The queue settings. A queue is a topic with one partition, and these are settings of that topic: they are stored,
changed and replicated with it, and any Kafka tool shows them. `queue.type` makes a topic a queue.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.config.settings import Kind, Setting, parse_all, table
from headrace.model.errors import SettingsError

PREFIX = "queue."

_SECOND_MS = 1000
_DAY_MS = 24 * 60 * 60 * _SECOND_MS
_YEAR_MS = 365 * _DAY_MS

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
    attributes: str = ""

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
    Setting("queue.attributes", Kind.STRING, _D.attributes,
            "Other attributes of the queue for the SQS API, as JSON: its tags, policies and times."),
)  # fmt: skip


def queue_settings(overrides: Mapping[str, str]) -> QueueSettings:
    """The settings in force for a queue with these overrides; `SettingsError` on an unknown or invalid one."""
    values = {name.removeprefix("queue_"): value for name, value in parse_all(QUEUE_SETTINGS, overrides).items()}
    result = replace(_D, **values)  # type: ignore[arg-type]
    if not result.is_queue and overrides:
        raise SettingsError(f"{min(overrides)} is a setting of queues: set queue.type to standard or fifo")
    if not result.is_fifo and (result.dedupe_by_content or result.dedupe_scope != _D.dedupe_scope):
        raise SettingsError("queue.dedupe.* are settings of fifo queues: set queue.type=fifo")
    return result
