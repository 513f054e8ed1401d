"""Encodes and decodes Kafka's field types, for records of internal topics, for which kio has no schemas. Pure.

Strings have a length of two bytes; in flexible versions strings, bytes and arrays are compact (their length plus one as
a varint), and a struct ends in tagged fields, of which a reader skips those that it does not know. On malformed data
the reader raises a `ValueError`, an `IndexError` or a `struct.error`.
"""

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import TypeVar
from uuid import UUID

from headrace.model.errors import ProtocolError, RecordTooLarge
from headrace.runtime.varint import encode_uvarint, read_uvarint

T = TypeVar("T")

INT8, INT16, INT32, INT64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")
_UINT16 = Struct(">H")
_NULL = b"\xff\xff"
MAX_STRING_BYTES = 2**15 - 1
"""Kafka's limit for a string with a two-byte length. Our reader treats the length as unsigned."""
_NULL_LENGTH = 2**16 - 1
NO_TAGS = b"\x00"


def check_name(name: str) -> None:
    """Raise `ProtocolError` if a name is too long for a key, as Kafka does."""
    if len(name) > MAX_STRING_BYTES // 4 and len(name.encode()) > MAX_STRING_BYTES:
        raise ProtocolError(f"a name of {len(name)} characters is too long: it can have {MAX_STRING_BYTES} bytes")


# -- writing


def string(text: str) -> bytes:
    data = text.encode()
    if len(data) >= _NULL_LENGTH:
        raise RecordTooLarge(f"a name has {len(data)} bytes: it can have {MAX_STRING_BYTES}")
    return _UINT16.pack(len(data)) + data


def nullable_string(text: str | None) -> bytes:
    return _NULL if text is None else string(text)


def sized_bytes(data: bytes) -> bytes:
    return INT32.pack(len(data)) + data


def compact_bytes(data: bytes) -> bytes:
    return encode_uvarint(len(data) + 1) + data


def compact_string(text: str) -> bytes:
    return compact_bytes(text.encode())


def compact_nullable_string(text: str | None) -> bytes:
    return b"\x00" if text is None else compact_string(text)


def compact_array(elements: Iterable[bytes]) -> bytes:
    elements = tuple(elements)
    return encode_uvarint(len(elements) + 1) + b"".join(elements)


def tagged(fields: Mapping[int, bytes]) -> bytes:
    """Encode the tagged fields that end a struct of a flexible version."""
    parts = [encode_uvarint(len(fields))]
    for tag in sorted(fields):
        parts += [encode_uvarint(tag), encode_uvarint(len(fields[tag])), fields[tag]]
    return b"".join(parts)


# -- reading


class FieldReader:
    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def number(self, kind: Struct) -> int:
        (value,) = kind.unpack_from(self._data, self._at)
        self._at += kind.size
        return value  # type: ignore[no-any-return]

    def uvarint(self) -> int:
        value, self._at = read_uvarint(self._data, self._at)
        return value

    def taken(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise ValueError("more than there are bytes")
        found = self._data[self._at : end]
        self._at = end
        return found

    def string(self) -> str:
        return self.taken(self.number(_UINT16)).decode()

    def nullable_string(self) -> str | None:
        length = self.number(_UINT16)
        return None if length == _NULL_LENGTH else self.taken(length).decode()

    def sized_bytes(self) -> bytes:
        return self.taken(self.number(INT32))

    def compact_bytes(self) -> bytes:
        return self.taken(self.uvarint() - 1)

    def compact_string(self) -> str:
        return self.compact_bytes().decode()

    def compact_nullable_string(self) -> str | None:
        length = self.uvarint() - 1
        return None if length < 0 else self.taken(length).decode()

    def uuid(self) -> UUID:
        return UUID(bytes=self.taken(16))

    def array(self, element: Callable[[], T]) -> tuple[T, ...]:
        return self._elements(self.number(INT32), element)

    def compact_array(self, element: Callable[[], T]) -> tuple[T, ...]:
        """Read an array; null, which Kafka sometimes writes for an empty array, is empty."""
        return self._elements(max(0, self.uvarint() - 1), element)

    def _elements(self, count: int, element: Callable[[], T]) -> tuple[T, ...]:
        if not 0 <= count <= len(self._data):
            raise ValueError("more elements than there are bytes")
        return tuple([element() for _ in range(count)])

    def tags(self) -> dict[int, bytes]:
        return {self.uvarint(): self.taken(self.uvarint()) for _ in range(self.uvarint())}
