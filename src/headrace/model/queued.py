"""How a queue's message is a record: the value is its body, the key its message group, and headers say the rest.

Whoever writes such a record with any Kafka client has sent the message; a record without any of these headers is a
plain message. Headers with other names are the message's own attributes.

    hr.id         the message's id; without it, the id is made of the offset
    hr.priority   0 to 9 as an ASCII digit, 9 first; without it 4
    hr.due        milliseconds since the epoch as ASCII digits: not to be received before
    hr.expires    the same: not to be received from then on
    hr.group      the message group (UTF-8); in a fifo queue a record without it belongs to the group of its key
    hr.dedupe     the de-duplication id (UTF-8)
    hr.attempt    of a message that was moved: how often it was received where it was before; of a dead letter of a
                  dead-letter queue, in all queues before
    hr.origin     of a message that was moved: queue, offset and reason, as JSON
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
"""The name in `hr.origin` of the stream in which dead letters go to their queue."""

LOWEST_PRIORITY = 0
NORMAL_PRIORITY = 4
HIGHEST_PRIORITY = 9

_COUNT_DIGITS = 9
_LOW = (1 << 48) - 1


def read_origin(text: str | None) -> Mapping[str, Any]:
    """What `hr.origin` says; nothing if it is not ours."""
    try:
        origin = json.loads(text) if text is not None else {}
    except (ValueError, RecursionError):
        return {}
    return origin if isinstance(origin, dict) else {}


def is_dead_letter(origin: Mapping[str, Any]) -> bool:
    """Whether the last move of a message was to a dead-letter queue."""
    match origin.get("page"):
        case [str(stream), *_]:
            return stream == DEAD_LETTERS
    return False


def receives_before(headers: Iterable[tuple[str, bytes | None]], origin: Mapping[str, Any]) -> int:
    """How often a dead letter was received in the queues before; 0 for any other message."""
    if is_dead_letter(origin):
        for name, value in headers:
            if name == ATTEMPT and value is not None and value.isdigit() and len(value) <= _COUNT_DIGITS:
                return int(value)
    return 0


class MessageIds:
    """The ids of messages whose senders gave them none: made of the topic's id and the offset, and so known to both
    sides without being told."""

    __slots__ = ("_low", "_prefix")

    def __init__(self, topic_id: UUID) -> None:
        self._prefix = str(topic_id)[:24]
        self._low = topic_id.int & _LOW

    def at(self, offset: int) -> str:
        return f"{self._prefix}{self._low ^ offset & _LOW:012x}"
