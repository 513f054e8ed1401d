"""A pool of large buffers: new ones cost more in page faults than copying the bytes through them.

A buffer is returned only when nothing refers to it any more. One that is never returned is freed as usual, which costs
time but not correctness.
"""

_SMALLEST_BYTES = 64 * 1024
_LARGEST_POOLED_BYTES = 8 * 1024 * 1024


class BufferPool:
    """Reuses buffers, up to a total of `free_bytes_max` free bytes."""

    def __init__(self, free_bytes_max: int = 32 * 1024 * 1024) -> None:
        self._free_bytes_max = free_bytes_max
        self._free_bytes = 0
        self._free: dict[int, list[bytearray]] = {}

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes with undefined content."""
        capacity = _capacity_for(size)
        free = self._free.get(capacity)
        if free:
            self._free_bytes -= capacity
            return free.pop()
        return bytearray(capacity)

    def release(self, buffer: bytearray) -> None:
        """Return a buffer for reuse: no view of it may be used after this call."""
        capacity = len(buffer)
        if capacity > _LARGEST_POOLED_BYTES or self._free_bytes + capacity > self._free_bytes_max:
            return
        self._free_bytes += capacity
        self._free.setdefault(capacity, []).append(buffer)


def _capacity_for(size: int) -> int:
    """The next power of two, so that few sizes suffice; the exact size if it is too large for the pool."""
    if size > _LARGEST_POOLED_BYTES:
        return size
    return max(_SMALLEST_BYTES, 1 << (size - 1).bit_length())
