"""A one-shot result without an event loop: `resolve` runs the callback at once, in the resolver's turn.

Lighter than a future where thousands are created per second, and usable without asyncio.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    """A value that is resolved later, with one callback.

    Once it is resolved it refers to neither of its callbacks, nor to the value after the call: they often refer to what
    holds the deferred, as a fetch does that waits for data. Such a cycle would keep all of that, and the value, which
    may be megabytes, until the garbage collector runs, which hardly ever looks at what was waited for.
    """

    __slots__ = ("_callback", "_done", "_hurry", "_value", "size_bytes")

    def __init__(self, hurry: Callable[[], None] | None = None, *, size_bytes: int = 0) -> None:
        """`hurry` resolves early; `size_bytes` is an upper bound of the value's size, for memory limits."""
        self.size_bytes = size_bytes
        self._callback: Callable[[T], None] | None = None
        self._hurry = hurry
        self._done = False
        self._value: T

    @property
    def done(self) -> bool:
        return self._done

    def resolve(self, value: T) -> None:
        """Resolve; a second call is a no-op, so that a timer and an event may race."""
        if self._done:
            return
        self._done = True
        callback, self._callback = self._callback, None
        self._hurry = None
        if callback is None:
            self._value = value
        else:
            callback(value)

    def then(self, callback: Callable[[T], None]) -> None:
        """Set the only callback; it runs at once if the value is already resolved."""
        if self._done:
            value = self._value
            del self._value
            callback(value)
        else:
            self._callback = callback

    def hurry(self) -> None:
        """Resolve early with what is available, if possible: the client is gone, or the broker is stopping."""
        if not self._done and self._hurry is not None:
            self._hurry()
