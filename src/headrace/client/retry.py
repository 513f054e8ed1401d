"""Decides what happens to a message that a handler failed on.

- `hold`: wait and try again in place. Later messages of the partition wait too, so the order is preserved.
- `retry-topic`: send a copy to a retry topic, to be retried from there, and go on: order is given up for throughput.
When the tries are used up, or the handler raised `Reject`, the message goes to the dead-letter topic.
"""

from dataclasses import dataclass
from typing import Literal

from headrace.client.backoff import Backoff
from headrace.client.errors import Reject
from headrace.client.failures import describe, failure_of
from headrace.client.message import (
    GROUP,
    NOT_BEFORE,
    ORIGINAL_OFFSET,
    ORIGINAL_PARTITION,
    ORIGINAL_TIMESTAMP,
    ORIGINAL_TOPIC,
    Header,
    Message,
)
from headrace.client.outgoing import Outgoing
from headrace.model.failure_headers import FAILURE_HEADERS, failure_headers

RetryMode = Literal["hold", "retry-topic"]

OWN_HEADERS = FAILURE_HEADERS | {
    GROUP,
    NOT_BEFORE,
    ORIGINAL_TOPIC,
    ORIGINAL_PARTITION,
    ORIGINAL_OFFSET,
    ORIGINAL_TIMESTAMP,
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry and dead-letter options of a handler."""

    group: str
    backoff: Backoff
    mode: RetryMode = "hold"
    retry_topic: str | None = None
    dead_letter: str | None = None


@dataclass(frozen=True, slots=True)
class RetryInPlace:
    """Retry in place after a delay."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class MoveToTopic:
    """Publish this copy; then the original is done."""

    copy: Outgoing
    is_dead: bool
    attempts: int = 0
    """How often the message was tried."""


@dataclass(frozen=True, slots=True)
class StopHandling:
    """There is no dead-letter topic: stop the handler, so that no message is skipped."""

    reason: str


Verdict = RetryInPlace | MoveToTopic | StopHandling


def judge(
    policy: RetryPolicy, message: Message, error: BaseException, failures_before: int, *, now_ms: int, chance: float
) -> Verdict:
    """The verdict on a failure. `failures_before` counts those in place; earlier rounds stand in the headers."""
    failures = message.failed_attempts + failures_before + 1
    is_hopeless = isinstance(error, Reject) or policy.backoff.is_spent(failures)
    if not is_hopeless:
        delay_ms = round(policy.backoff.delay_s(failures, chance) * 1000)
        if policy.mode == "hold" or policy.retry_topic is None:
            return RetryInPlace(delay_ms)
        marks = [(NOT_BEFORE, str(now_ms + delay_ms))]
        return MoveToTopic(_copy(policy, message, policy.retry_topic, error, failures, marks), False, failures)
    return give_up(policy, message, error, failures_before)


def give_up(
    policy: RetryPolicy, message: Message, error: BaseException, failures_before: int
) -> MoveToTopic | StopHandling:
    """The verdict on a failure when there is no use in trying again, or it is not allowed."""
    failures = message.failed_attempts + failures_before + 1
    if policy.dead_letter is None:
        topic, partition, offset = message.origin
        return StopHandling(
            f"{topic}/{partition}/{offset} failed {failures} times, the last time with {describe(error)}"
        )
    return MoveToTopic(_copy(policy, message, policy.dead_letter, error, failures, []), True, failures)


def _copy(
    policy: RetryPolicy, message: Message, topic: str, error: BaseException, failures: int, marks: list[tuple[str, str]]
) -> Outgoing:
    origin_topic, origin_partition, origin_offset = message.origin
    timestamp = message.header(ORIGINAL_TIMESTAMP) or str(message.timestamp_ms or 0)
    own: list[tuple[str, str]] = [
        *failure_headers(describe(error), failure_of(error), failures),
        (GROUP, policy.group),
        (ORIGINAL_TOPIC, origin_topic),
        (ORIGINAL_PARTITION, str(origin_partition)),
        (ORIGINAL_OFFSET, str(origin_offset)),
        (ORIGINAL_TIMESTAMP, timestamp),
        *marks,
    ]
    retained: list[Header] = [each for each in message.headers if each[0] not in OWN_HEADERS]
    return Outgoing(topic, message.payload, message.key, headers=[*retained, *own])
