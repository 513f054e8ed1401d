"""The cached description of a queue: its settings and its topic's id, refreshed every half minute."""

import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from headrace.client.errors import NoSuchQueue, QueueFailed, Unreachable
from headrace.client.queue.rpc import QueueRpc
from headrace.model import queue_wire as wire
from headrace.model.queue_wire import Counts
from headrace.model.queued import MessageIds

_KNOWN_FOR_S = 30.0
"""After this long it is asked again whether the queue is there: sending to one that is not would make a topic of it."""


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue and its settings in force, by the names of `headrace.config.queue.QueueSettings`."""

    name: str
    settings: dict[str, bool | int | float | str]
    counts: Counts | None = None

    @property
    def is_fifo(self) -> bool:
        return self.settings.get("type") == "fifo"


class KnownQueue:
    """Requests the description on demand, at most every half minute. Raises `NoSuchQueue`."""

    def __init__(self, name: str, rpc: QueueRpc) -> None:
        self._name = name
        self._rpc = rpc
        self._known: tuple[wire.Description, float] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings in force, as they were within the last half minute."""
        return self.look().settings

    @property
    def ids(self) -> MessageIds:
        """The ids of messages by their offsets."""
        return MessageIds(UUID(self.look().topic_id))

    def look(self) -> wire.Description:
        known = self._known
        if known is None:
            try:
                return self.ask()
            except NoSuchQueue as error:
                if error.code == "QueueElsewhere":
                    raise
                text = f"{error}; make it with queue.create() or `headrace queue create {self._name}`"
                raise NoSuchQueue(text, code=error.code) from None
        found, asked_at_s = known
        if time.monotonic() - asked_at_s <= _KNOWN_FOR_S:
            return found
        try:
            return self.ask(patience_s=0)
        except NoSuchQueue:
            self.forget()
            raise
        except (Unreachable, QueueFailed):
            # The producer waits for the broker by itself.
            return self.note(found)

    def ask(self, patience_s: float | None = None) -> wire.Description:
        return self.note(self._rpc.call(wire.DescribeQueue(self._name), wire.Description, patience_s=patience_s))

    def note(self, found: wire.Description) -> wire.Description:
        self._known = (found, time.monotonic())
        return found

    def forget(self) -> None:
        """It was changed, or deleted."""
        self._known = None
