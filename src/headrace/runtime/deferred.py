"""A value that comes later, without an event loop: resolving it calls back at once, in the resolver's turn.

Lighter than a future where thousands a second are made, and usable by the simulator, which has no loop of asyncio.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    __slots__ = ("_callback", "_done", "_hurry", "_value", "size_bytes")

    def __init__(self, hurry: Callable[[], None] | None = None, *, size_bytes: int = 0) -> None:
        """`size_bytes` is how large the value may turn out, for those who bound what they wait for."""
        self.size_bytes = size_bytes
        self._callback: Callable[[T], None] | None = None
        self._hurry = hurry
        self._done = False
        self._value: T

    @property
    def done(self) -> bool:
        return self._done

    def resolve(self, value: T) -> None:
        """Settle it; a second time is a no-op, so that a timer and an event may race."""
        if self._done:
            return
        self._done = True
        self._value = value
        if self._callback is not None:
            self._callback(value)

    def then(self, callback: Callable[[T], None]) -> None:
        """Call back with the value, at once if it is there. There is one listener."""
        if self._done:
            callback(self._value)
        else:
            self._callback = callback

    def hurry(self) -> None:
        """Waiting for more is no use (the client is gone, the broker stops): settle with what there is, if it can."""
        if not self._done and self._hurry is not None:
            self._hurry()
