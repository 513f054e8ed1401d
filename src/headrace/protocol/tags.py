"""Removes tagged fields that our schemas do not know from requests: the protocol says to skip them.

kio's reader fails on them. To support newer clients, such a request is copied without the unknown tags and then
decoded. The copy is the slow path of a rare case. Its input was walked by `bounds.py`: every length in it is valid.
"""

from headrace.protocol.shapes import FIXED_SIZES, Shape, layout
from headrace.runtime.varint import encode_uvarint, read_uvarint

Buffer = bytes | memoryview


def without_unknown_tags(entity: type, buffer: Buffer, at: int) -> bytes:
    """The bytes of an entity of a flexible version from `at` on, without its unknown tagged fields."""
    copier = _Copier(memoryview(buffer), at)
    copier.copy_entity(entity)
    return bytes(copier.out)


class _Copier:
    def __init__(self, buffer: memoryview, at: int) -> None:
        self.out = bytearray()
        self._buffer = buffer
        self._at = at

    def copy_entity(self, entity: type) -> None:
        plain, tagged = layout(entity)
        for shape in plain:
            self._copy(shape)
        known: list[tuple[int, bytearray]] = []
        for _ in range(self._number()):
            tag, size = self._number(), self._number()
            if tag in tagged:
                inside = _Copier(self._buffer, self._at)
                inside._copy(tagged[tag])
                known.append((tag, inside.out))
            self._at += size
        self._put_number(len(known))
        for tag, content in known:
            self._put_number(tag)
            self._put_number(len(content))
            self.out += content

    def _copy(self, shape: Shape) -> None:
        if shape.is_array:
            for _ in range(self._copy_number() - 1):
                self._copy_one(shape)
        elif shape.entity is not None and shape.is_nullable:
            is_null = self._buffer[self._at] >= 0x80
            self._copy_bytes(1)
            if not is_null:
                self._copy_one(shape)
        else:
            self._copy_one(shape)

    def _copy_one(self, shape: Shape) -> None:
        if shape.entity is not None:
            self.copy_entity(shape.entity)
        elif shape.primitive in FIXED_SIZES:
            self._copy_bytes(FIXED_SIZES[shape.primitive])
        else:
            self._copy_bytes(max(0, self._copy_number() - 1))

    def _copy_bytes(self, size: int) -> None:
        self.out += self._buffer[self._at : self._at + size]
        self._at += size

    def _copy_number(self) -> int:
        value = self._number()
        self._put_number(value)
        return value

    def _number(self) -> int:
        value, self._at = read_uvarint(self._buffer, self._at)
        return value

    def _put_number(self, value: int) -> None:
        self.out += encode_uvarint(value)
