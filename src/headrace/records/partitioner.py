"""Assigns the rows of a block to partitions.

A row goes to the partition that it names, else by its key as in Java's producer (murmur2), so that all clients agree
on the partition of a key; rows with neither go to one partition for a run of rows, then to the next, so that batches
get full. There is no state between blocks: a caller with several blocks passes the partition of the first run.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.errors import InvalidRecord
from headrace.records.varints import Integers

RUN_ROWS = 10_000
_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)


def rows_by_partition(
    partitions: int,
    rows: int,
    *,
    keys: pa.Array | None = None,
    explicit: pa.Array | None = None,
    start: int = 0,
    run_rows: int = RUN_ROWS,
) -> dict[int, Integers]:
    """The rows of each partition that gets any, ascending.

    `keys` (binary or string) and `explicit` (integers) are columns of the block, null where a row has none. The n-th
    row with neither goes to partition `start + n // run_rows`, modulo their number; a `run_rows` of 1 is round robin.
    """
    chosen = np.full(rows, -1, np.int64)
    if explicit is not None:
        chosen = np.asarray(explicit.cast(pa.int64()).fill_null(-1))
        given = np.asarray(explicit.is_valid())
        if (wrong := given & ((chosen < 0) | (chosen >= partitions))).any():
            row = int(wrong.argmax())
            raise InvalidRecord(
                f"row {row} names partition {chosen[row]}: the topic has {partitions}, numbered from 0", (row,)
            )
    if keys is not None and (chosen < 0).any():
        keyed = (chosen < 0) & np.asarray(keys.is_valid())
        chosen = np.where(keyed, (murmur2(keys) & 0x7FFFFFFF) % partitions, chosen)
    free = np.flatnonzero(chosen < 0)
    if len(free):
        chosen = chosen.copy()
        chosen[free] = (start + np.arange(len(free)) // run_rows) % partitions
    # numpy has a radix sort for 16-bit integers, several times as fast as its other sorts.
    order = np.argsort(chosen.astype(np.uint16) if partitions <= 1 << 16 else chosen, kind="stable")
    numbers, counts = np.unique(chosen, return_counts=True)
    return dict(zip(numbers.tolist(), np.split(order, np.cumsum(counts))[:-1], strict=True))


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """MurmurHash2 of every key with Kafka's seed; the value for a null is undefined."""
    keys = keys.cast(pa.binary()).fill_null(b"")
    if not len(keys):
        return np.zeros(0, np.uint32)
    bounds = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    lengths = np.diff(bounds)
    order = np.argsort(-lengths, kind="stable")
    at, lengths = bounds[:-1][order], lengths[order]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths // 4
    # Longest keys first, so that those with an n-th word are a prefix.
    for step, active in enumerate(np.searchsorted(-words, -np.arange(words[0]), side="left").tolist()):
        k = _word(data, at[:active] + 4 * step, 4) * _M
        hashes[:active] = (hashes[:active] * _M) ^ ((k ^ (k >> np.uint32(24))) * _M)
    for size in (1, 2, 3):
        rows = np.flatnonzero(lengths % 4 == size)
        if len(rows):
            rest = _word(data, at[rows] + lengths[rows] - size, size)
            hashes[rows] = (hashes[rows] ^ rest) * _M
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
    hashes ^= hashes >> np.uint32(15)
    found = np.empty_like(hashes)
    found[order] = hashes
    return found


def _word(data: npt.NDArray[np.uint8], places: Integers, size: int) -> npt.NDArray[np.uint32]:
    word = data.take(places).astype(np.uint32)
    for byte in range(1, size):
        word |= data.take(places + byte).astype(np.uint32) << np.uint32(8 * byte)
    return word
