"""The entries of a queue's state in memory; large values that shrink by a third are compressed. Pure.

Most of a large backlog's state is the names of message groups, once for each chunk of the log they are in. It is read
only when a queue is opened, or copied to another cluster.
"""

from collections.abc import Iterator, MutableMapping

import cramjam

_LARGE_BYTES = 2048
_LEVEL = 1


class _Compressed:
    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class StateEntries(MutableMapping[bytes, bytes]):
    def __init__(self) -> None:
        self._values: dict[bytes, bytes | _Compressed] = {}

    def __getitem__(self, key: bytes) -> bytes:
        value = self._values[key]
        return bytes(cramjam.zstd.decompress(value.data)) if isinstance(value, _Compressed) else value

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._values[key] = value if len(value) < _LARGE_BYTES else _compressed(value)

    def __delitem__(self, key: bytes) -> None:
        del self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def stored_bytes(self, key: bytes) -> int:
        """How much memory the value takes."""
        value = self._values[key]
        return len(value.data if isinstance(value, _Compressed) else value)


def _compressed(value: bytes) -> bytes | _Compressed:
    data = bytes(cramjam.zstd.compress(value, _LEVEL))
    return _Compressed(data) if 3 * len(data) <= 2 * len(value) else value
