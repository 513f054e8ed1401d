"""Large buffers that are used again: fresh ones cost more in page faults than the bytes that go through them.

A buffer is given back only by whoever knows that nothing refers to it any more. One that is never given back is simply
freed, so forgetting costs time and never correctness.
"""

_SMALLEST_BYTES = 64 * 1024
_LARGEST_KEPT_BYTES = 8 * 1024 * 1024


class BufferPool:
    def __init__(self, kept_bytes_max: int = 32 * 1024 * 1024) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept_bytes = 0
        self._free: dict[int, list[bytearray]] = {}

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes with anything in it."""
        capacity = _capacity_for(size)
        free = self._free.get(capacity)
        if free:
            self._kept_bytes -= capacity
            return free.pop()
        return bytearray(capacity)

    def give_back(self, buffer: bytearray) -> None:
        """The buffer may be handed out again: no view of it is used after this call."""
        capacity = len(buffer)
        if capacity > _LARGEST_KEPT_BYTES or self._kept_bytes + capacity > self._kept_bytes_max:
            return
        self._kept_bytes += capacity
        self._free.setdefault(capacity, []).append(buffer)


def _capacity_for(size: int) -> int:
    """Powers of two, so that few sizes serve all; what is too large to be kept is made to measure."""
    if size > _LARGEST_KEPT_BYTES:
        return size
    return max(_SMALLEST_BYTES, 1 << (size - 1).bit_length())
