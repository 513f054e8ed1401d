"""The bound on the backlog of one partition: whether more records may be appended, and who waits until they may.

What the backlog has is measured by others: by a queue's engine, or by the offsets that groups have committed. The
decision and the append are made in one turn of the event loop, so that however many producers there are, a bound of
messages is never exceeded.
"""

import asyncio
from typing import NamedTuple, Protocol

from headrace.model.backlog import BacklogBound
from headrace.model.errors import BacklogBlocked, BacklogFull, HeadraceError

WAIT_S = 5.0
"""How long a request waits for room. A client has five requests in flight and waits 30 seconds for each."""
WAITING_MAX = 10_000


class BacklogMeasure(Protocol):
    """What a backlog has now, with what is not committed yet. `HeadraceError` while that is not known: retry."""

    def messages(self) -> int: ...

    def size_bytes(self) -> int: ...

    def oldest_ms(self) -> int | None:
        """The time of its oldest message; None if it is empty."""
        ...

    def undroppable(self) -> int:
        """How many messages cannot be dropped."""
        ...

    def now_ms(self) -> int: ...


class _WaitingProducer(NamedTuple):
    messages: int
    size_bytes: int
    done: "asyncio.Future[None]"


class BacklogGuard:
    def __init__(self, what: str, prefix: str, bound: BacklogBound, measure: BacklogMeasure) -> None:
        """`what` the backlog is of, for errors; `prefix` is that of its settings."""
        self.bound = bound
        self._what = what
        self._prefix = prefix
        self._measure = measure
        self._waiting: list[_WaitingProducer] = []

    def check(self, count: int, size_bytes: int) -> None:
        """`BacklogFull` or `BacklogBlocked` if so much must not be appended now."""
        refusal = self.refusal(count, size_bytes)
        if refusal is not None:
            raise refusal

    def refusal(self, count: int, size_bytes: int) -> HeadraceError | None:
        """Why so much must not be appended now; None if it may be."""
        try:
            return self._dropping(size_bytes) if self.bound.drops else self._over(count, size_bytes)
        except HeadraceError as error:
            return BacklogBlocked(f"the backlog of {self._what} is not known for now: {error}")

    def _dropping(self, size_bytes: int) -> HeadraceError | None:
        bound = self.bound
        if bound.size_bytes and size_bytes > bound.size_bytes:
            return self._too_large(size_bytes)
        if not bound.messages:
            return None
        fixed = self._measure.undroppable()
        if fixed < bound.messages:
            return None
        return BacklogFull(
            f"the backlog of {self._what} may have {bound.messages} messages ({self._prefix}max.backlog.messages), and "
            f"{fixed} are in flight or delayed, which are not dropped. Nothing was written: try again when some are "
            "deleted, or raise the bound"
        )

    def _over(self, count: int, size_bytes: int) -> HeadraceError | None:
        bound, measure = self.bound, self._measure
        if bound.messages and count > bound.messages:
            return BacklogFull(
                f"{count} messages at once are more than the backlog of {self._what} may have: send at most "
                f"{bound.messages} at once, or raise {self._prefix}max.backlog.messages"
            )
        if bound.size_bytes and size_bytes > bound.size_bytes:
            return self._too_large(size_bytes)
        if bound.messages and (messages := measure.messages()) + count > bound.messages:
            return self._full("messages", f"{messages} of at most {bound.messages} messages wait")
        if bound.size_bytes and (size := measure.size_bytes()) + size_bytes > bound.size_bytes:
            return self._full("bytes", f"{size} of at most {bound.size_bytes} bytes wait")
        if bound.age_ms and (oldest_ms := measure.oldest_ms()) is not None:
            age_ms = measure.now_ms() - oldest_ms
            if age_ms > bound.age_ms:
                return self._full("age.ms", f"its oldest message is {age_ms} ms old, of at most {bound.age_ms}")
        return None

    def _full(self, setting: str, reason: str) -> HeadraceError:
        kind = BacklogBlocked if self.bound.blocks else BacklogFull
        return kind(
            f"the backlog of {self._what} is full: {reason} ({self._prefix}max.backlog.{setting}). Nothing was "
            "written: try again when consumers have caught up, start more of them, or raise the bound"
        )

    def _too_large(self, size_bytes: int) -> HeadraceError:
        return BacklogFull(
            f"{size_bytes} bytes at once are more than the backlog of {self._what} may have: send less at once, or "
            f"raise {self._prefix}max.backlog.bytes"
        )

    # -- waiting

    @property
    def has_waiting(self) -> bool:
        """Whether producers wait for room: others come after them."""
        return bool(self._waiting)

    @property
    def is_crowded(self) -> bool:
        """Whether so many wait that no one else may."""
        return len(self._waiting) >= WAITING_MAX

    async def until_room(self, count: int, size_bytes: int, wait_s: float = WAIT_S) -> None:
        """Return when so much may be appended, in turn, or may never be, or after a while: the caller checks again."""
        refusal = self.refusal(count, size_bytes)
        is_in_turn = refusal is None and not self._waiting
        if is_in_turn or isinstance(refusal, BacklogFull) or wait_s <= 0 or self.is_crowded:
            return
        waiting = _WaitingProducer(count, size_bytes, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(wait_s):
                await waiting.done
        except TimeoutError:
            return
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                # It may have held up others that need less room.
                self.changed()

    def changed(self) -> None:
        """The backlog or its bound may have changed: those go on for which there is room, in the order they came."""
        count = size_bytes = 0
        while self._waiting:
            first = self._waiting[0]
            count, size_bytes = count + first.messages, size_bytes + first.size_bytes
            refusal = self.refusal(count, size_bytes)
            if refusal is not None and (count > first.messages or not isinstance(refusal, BacklogFull)):
                return
            del self._waiting[0]
            if not first.done.done():
                first.done.set_result(None)

    def configure(self, bound: BacklogBound) -> None:
        self.bound = bound
        self.changed()

    def close(self) -> None:
        """The bound is gone, or the partition is led by another broker: no one waits any longer."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done.done():
                each.done.set_result(None)
