"""The hash by which producers assign keys to partitions."""


def murmur2(data: bytes) -> int:
    """MurmurHash2 with Kafka's seed, as an unsigned 32-bit number."""
    m = 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & 0xFFFFFFFF
        k = (k ^ k >> 24) * m & 0xFFFFFFFF
        h = h * m & 0xFFFFFFFF ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, as Java's producer chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
