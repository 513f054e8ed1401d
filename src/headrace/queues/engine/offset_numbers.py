"""A number for each offset of a log, 0 unless it is set: in two to four bytes. Pure.

Numbers below 65,535 take two bytes. A chunk of offsets with more than a few that are larger has four for each. What is
too large for that, which is rare, is in a dictionary.
"""

from array import array

from headrace.queues.engine.stored import CHUNK, CHUNK_BITS

_IN_CHUNK = CHUNK - 1
_ELSEWHERE = 0xFFFF
"""The number is in `_large`."""
_LARGE_MOST = 64
_FOUR_BYTES_MOST = 0xFFFF_FFFF
_GROWTH = 64
_ZEROS = bytes(CHUNK)


class OffsetNumbers:
    def __init__(self) -> None:
        self._chunks: dict[int, array[int]] = {}
        """As far as their numbers were set."""
        self._large: dict[int, dict[int, int]] = {}
        """By chunk, and by place in it."""

    def __getitem__(self, offset: int) -> int:
        try:
            number = self._chunks[offset >> CHUNK_BITS][offset & _IN_CHUNK]
        except (KeyError, IndexError):
            return 0
        return number if number != _ELSEWHERE else self._large[offset >> CHUNK_BITS][offset & _IN_CHUNK]

    def __setitem__(self, offset: int, number: int) -> None:
        if number != _ELSEWHERE:
            try:
                self._chunks[offset >> CHUNK_BITS][offset & _IN_CHUNK] = number
            except (KeyError, IndexError, OverflowError):
                pass
            else:
                return
        self._make_room(offset, number)

    def _make_room(self, offset: int, number: int) -> None:
        chunk, place = offset >> CHUNK_BITS, offset & _IN_CHUNK
        numbers = self._chunks.setdefault(chunk, array("H"))
        if place >= len(numbers):
            missing = (place // _GROWTH + 1) * _GROWTH - len(numbers)
            numbers.frombytes(_ZEROS[:missing] * numbers.itemsize)
        try:
            numbers[place] = number if number != _ELSEWHERE else _FOUR_BYTES_MOST + 1
        except OverflowError:
            numbers[place] = _ELSEWHERE
            large = self._large.setdefault(chunk, {})
            large[place] = number
            if len(large) > _LARGE_MOST and numbers.typecode == "H":
                self._widen(chunk)

    def _widen(self, chunk: int) -> None:
        numbers = self._chunks[chunk] = array("I", self._chunks[chunk])
        for place, number in self._large.pop(chunk).items():
            if numbers[place] != _ELSEWHERE:
                continue  # It was set again since.
            if number != _ELSEWHERE and number <= _FOUR_BYTES_MOST:
                numbers[place] = number
            else:
                self._large.setdefault(chunk, {})[place] = number

    def forget_before(self, offset: int) -> None:
        """Free the memory of the chunks before this offset."""
        for passed in [chunk for chunk in self._chunks if chunk < offset >> CHUNK_BITS]:
            del self._chunks[passed]
            self._large.pop(passed, None)
