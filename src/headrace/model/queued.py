"""The record format of a queue's message: the value is the body, the key the message group, and headers have the rest.

Writing such a record with any Kafka client sends the message; a record without any of these headers is a plain message.
Headers with other names are the message's own attributes.

    hr.id         the message id; without it, the id is derived from the offset
    hr.priority   0 to 9 as an ASCII digit, 9 first; default 4
    hr.due        milliseconds since the epoch as ASCII digits: invisible before
    hr.expires    the same: expired from then on
    hr.group      the message group (UTF-8); in a fifo queue a record without it belongs to the group of its key
    hr.dedupe     the deduplication id (UTF-8)
    hr.attempt    of a moved message: its receive count in the source queue; of a dead letter, in all queues before
    hr.origin     of a moved message: source queue, offset and reason, as JSON
    sqs.<name>    an attribute of the SQS API: its type, a line feed, its value
    sqs-<name>    a system attribute of the SQS API, such as AWSTraceHeader and SenderId
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

ID = "hr.id"
PRIORITY = "hr.priority"
DUE = "hr.due"
EXPIRES = "hr.expires"
GROUP = "hr.group"
DEDUPE = "hr.dedupe"
ATTEMPT = "hr.attempt"
ORIGIN = "hr.origin"
ATTRIBUTE_PREFIX = "sqs."
SYSTEM_ATTRIBUTE_PREFIX = "sqs-"

DEAD_LETTERS = "dead"
"""The name in `hr.origin` of the stream that moves dead letters to their queue."""

SCHEDULE = "schedule"
"""The name in `hr.origin` of the stream of messages that a queue's own schedule sends, and their message group."""
DUE_TIME = "headrace-due"
"""The header of such a message with its due time: milliseconds since the epoch as ASCII digits."""

LOWEST_PRIORITY = 0
NORMAL_PRIORITY = 4
HIGHEST_PRIORITY = 9

OWN_HEADERS = frozenset({ID, PRIORITY, DUE, EXPIRES, GROUP, DEDUPE, ORIGIN})
"""The headers that are fields of a received message, and not among its headers."""

_COUNT_DIGITS = 9
_LOW = (1 << 48) - 1


def read_priority(value: bytes | None) -> int:
    """The priority in `hr.priority`; the normal one if it has none."""
    if value is not None and len(value) == 1 and value.isdigit():
        return value[0] - ord("0")
    return NORMAL_PRIORITY


def read_origin(text: str | None) -> Mapping[str, Any]:
    """Decode `hr.origin`; empty if it is not ours."""
    try:
        origin = json.loads(text) if text is not None else {}
    except (ValueError, RecursionError):
        return {}
    return origin if isinstance(origin, dict) else {}


def is_dead_letter(origin: Mapping[str, Any]) -> bool:
    """True if the last move of the message was to a dead-letter queue."""
    match origin.get("page"):
        case [str(stream), *_]:
            return stream == DEAD_LETTERS
    return False


def receives_before(headers: Iterable[tuple[str, bytes | None]], origin: Mapping[str, Any]) -> int:
    """A dead letter's receive count in its previous queues; 0 for any other message."""
    if is_dead_letter(origin):
        for name, value in headers:
            if name == ATTEMPT and value is not None and value.isdigit() and len(value) <= _COUNT_DIGITS:
                return int(value)
    return 0


class MessageIds:
    """Message ids derived from the topic id and the offset, for messages sent without one: the broker and the client
    compute the same id."""

    __slots__ = ("_low", "_prefix")

    def __init__(self, topic_id: UUID) -> None:
        self._prefix = str(topic_id)[:24]
        self._low = topic_id.int & _LOW

    def at(self, offset: int) -> str:
        return f"{self._prefix}{self._low ^ offset & _LOW:012x}"
