"""Message filters of peeks and moves. Pure."""

from headrace.model.queue_wire import Filter
from headrace.model.queued import read_origin
from headrace.queues.host.codec import DecodedMessage


class MessageMatcher:
    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted
        self._ids = frozenset(wanted.ids)

    def matches(self, message: DecodedMessage) -> bool:
        wanted = self._wanted
        if self._ids and message.id not in self._ids:
            return False
        if wanted.sent_from_ms is not None and message.sent_at_ms < wanted.sent_from_ms:
            return False
        if wanted.sent_before_ms is not None and message.sent_at_ms >= wanted.sent_before_ms:
            return False
        if wanted.body_contains and wanted.body_contains not in message.body:
            return False
        if wanted.reason_contains:
            reason = read_origin(message.origin).get("reason")
            return isinstance(reason, str) and wanted.reason_contains in reason
        return True
