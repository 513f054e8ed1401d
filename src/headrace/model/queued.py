"""How a queue's message is a record: the value is its body, the key its message group, and headers say the rest.

Whoever writes such a record with any Kafka client has sent the message; a record without any of these headers is a
plain message. Headers with other names are the message's own attributes.

    hr.id         the message's id; without it, the id is made of the offset
    hr.priority   0 to 9 as an ASCII digit, 9 first; without it 4
    hr.due        milliseconds since the epoch as ASCII digits: not to be received before
    hr.expires    the same: not to be received from then on
    hr.group      the message group (UTF-8); in a fifo queue a record without it belongs to the group of its key
    hr.dedupe     the de-duplication id (UTF-8)
    hr.attempt    of a message that was moved: how often it was received where it was before
    hr.origin     of a message that was moved: queue, offset and reason, as JSON
    sqs.<name>    an attribute of the SQS API: its type, a line feed, its value
    sqs-<name>    a system attribute of the SQS API, such as AWSTraceHeader and SenderId
"""

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

LOWEST_PRIORITY = 0
NORMAL_PRIORITY = 4
HIGHEST_PRIORITY = 9

_LOW = (1 << 48) - 1


class Ids:
    """The ids of messages whose senders gave them none: made of the topic's id and the offset, and so known to both
    sides without being told."""

    __slots__ = ("_low", "_prefix")

    def __init__(self, topic_id: UUID) -> None:
        self._prefix = str(topic_id)[:24]
        self._low = topic_id.int & _LOW

    def at(self, offset: int) -> str:
        return f"{self._prefix}{self._low ^ offset & _LOW:012x}"
