"""Handles of redrives: a broker moves messages from one queue to another, and a user follows its progress."""

import time
from collections.abc import Callable, Iterable
from datetime import datetime

from headrace.client.errors import QueueFailed
from headrace.client.keywords import checks_keywords
from headrace.client.queue.rpc import QueueRpc
from headrace.model import queue_wire as wire

_LOOK_EVERY_S = 0.2


@checks_keywords
class Redrive:
    """The progress of a redrive: messages that the broker moves from one queue to another.

    ```python
    redrive = client.queue("emails-dead").redrive(reason_contains="Timeout", rate=100)
    print(redrive.wait().status, redrive.moved)
    ```

    `look` refreshes it.
    """

    def __init__(self, rpc: QueueRpc, move: wire.Move) -> None:
        self._rpc = rpc
        self._move = move

    @property
    def id(self) -> str:
        return self._move.id

    @property
    def to(self) -> str | None:
        """The queue that messages are moved to; None: each to where it came from."""
        return self._move.destination

    @property
    def status(self) -> str:
        """RUNNING, COMPLETED, CANCELLING, CANCELLED or FAILED."""
        return self._move.status

    @property
    def moved(self) -> int:
        return self._move.moved

    @property
    def to_move(self) -> int:
        """Roughly, when it began."""
        return self._move.to_move

    @property
    def is_over(self) -> bool:
        return self._move.status not in ("RUNNING", "CANCELLING")

    def look(self) -> "Redrive":
        """Ask the broker how far it is."""
        for each in self._rpc.call(wire.ListMoves(self._move.source), wire.Moves).moves:
            if each.id == self.id:
                self._move = each
                return self
        raise QueueFailed(f"the move {self.id} is not known any more", code="UnknownMove")

    def cancel(self) -> "Redrive":
        """Cancel it; messages that were moved stay moved."""
        self._move = self._rpc.call(wire.CancelMove(self.id), wire.Move)
        return self

    def wait(
        self, timeout: float | None = None, on_progress: "Callable[[Redrive], None]" = lambda _: None
    ) -> "Redrive":
        """Wait until it is over. Raises `QueueFailed` if it failed and `TimeoutError` if it is not over in time."""
        give_up_at_s = float("inf") if timeout is None else time.monotonic() + timeout
        while not self.look().is_over:
            on_progress(self)
            if time.monotonic() > give_up_at_s:
                raise TimeoutError(f"{self.moved} of {self.to_move} messages are moved after {timeout} seconds")
            time.sleep(_LOOK_EVERY_S)
        on_progress(self)
        if self.status == "FAILED":
            raise QueueFailed(f"the move ended after {self.moved} messages: {self._move.failure}", code="MoveFailed")
        return self


def filter_of(
    ids: Iterable[str],
    body_contains: str | bytes,
    reason_contains: str,
    limit: int | None,
    sent_from: datetime | None = None,
    sent_before: datetime | None = None,
) -> wire.Filter:
    """Which messages of a queue are meant: those that agree with everything given."""
    body = body_contains.encode() if isinstance(body_contains, str) else body_contains
    return wire.Filter(list(ids), reason_contains, body, _ms(sent_from), _ms(sent_before), limit)


def _ms(when: datetime | None) -> int | None:
    return None if when is None else round(when.timestamp() * 1000)
