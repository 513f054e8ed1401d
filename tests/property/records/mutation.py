"""Batches as a malicious producer may send them."""

from hypothesis import strategies as st

_HEADER_BYTES = 61


def mutate(batch: bytearray, data: st.DataObject, first: int = 0) -> None:
    """Change, add and remove bytes from `first` on; what is left has the size of a header at least."""
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(first, len(batch) - 1))
        change = data.draw(st.integers(0, 2))
        if change == 0:
            batch[position] = data.draw(st.integers(0, 255))
        elif change == 1:
            batch[position:position] = data.draw(st.binary(min_size=1, max_size=10))
        elif len(batch) > _HEADER_BYTES + 1:
            del batch[position : position + data.draw(st.integers(1, 10))]
        batch += bytes(max(0, _HEADER_BYTES - len(batch)))
