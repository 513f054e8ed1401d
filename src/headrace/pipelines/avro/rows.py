"""Many Avro values at once: a place in each of them, moved on field by field with numpy.

A value that turns out to be wrong gets a fault, is parked at its end and read on as if it were right, so that the
others need not wait; what is read of it is thrown away. Nothing is read outside the buffer, and a length is checked
against the bytes that the value has left before it is used.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.records.columns import pieces
from headrace.records.varints import INT32_BYTES, INT64_BYTES, Bytes, Integers, try_varints

Mask = npt.NDArray[np.bool_]

TOO_DEEP_FOR_COLUMNS = 1
"""The fault of a value that is not wrong, but has so many items that it is read alone."""


class FaultTexts:
    """The texts of faults, by number."""

    def __init__(self) -> None:
        self.texts = ["", "left to be read alone"]
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


class RowCursors:
    """Places in values: `at` and `ends` are positions in `data`, `faults` numbers of `reasons`, 0 where all is well."""

    def __init__(
        self, buffer: pa.Buffer, data: Bytes, at: Integers, ends: Integers, faults: Integers, reasons: FaultTexts
    ):
        self.buffer = buffer
        self.data = data
        self.at = at
        self.ends = ends
        self.faults = faults
        self.reasons = reasons

    def __len__(self) -> int:
        return len(self.at)

    def some(self, which: Integers) -> "RowCursors":
        """A part of the rows; `put_back` brings what became of them."""
        return RowCursors(self.buffer, self.data, self.at[which], self.ends[which], self.faults[which], self.reasons)

    def put_back(self, which: Integers, part: "RowCursors") -> None:
        self.at[which] = part.at
        self.faults[which] = part.faults

    def fail(self, wrong: Mask, reason: str | int) -> None:
        """These are wrong; the first fault of a value is the one that counts."""
        number = reason if isinstance(reason, int) else self.reasons.number(reason)
        self.faults[wrong & (self.faults == 0)] = number
        self.at[wrong] = self.ends[wrong]

    def numbers(self, path: str, max_bytes: int = INT64_BYTES) -> Integers:
        """Read a number of each."""
        found, after, wrong = try_varints(self.data, self.at, max_bytes)
        self.at = after
        if len(wrong):
            mask = np.zeros(len(self), np.bool_)
            mask[wrong] = True
            bits = 32 if max_bytes == INT32_BYTES else 64
            self.fail(mask, f"{path} has a number of more than {bits} bits")
        self._check_ends(path)
        return found

    def chunks(self, sizes: Integers, path: str) -> tuple[Integers, Integers]:
        """Pass over so many bytes of each; the places where they begin and how many they are, none if it is wrong."""
        wrong = (sizes < 0) | (sizes > self.ends - self.at)
        if wrong.any():
            self.fail(wrong, f"{path} is cut off")
            sizes = np.where(wrong, 0, sizes)
        starts = self.at
        self.at = starts + sizes
        return starts, sizes

    def fixed(self, size: int, path: str) -> npt.NDArray[np.uint8]:
        """Read so many bytes of each."""
        starts, _ = self.chunks(np.full(len(self), size, np.int64), path)
        return self.data.take(starts[:, None] + np.arange(size), mode="clip")

    def binary(self, starts: Integers, sizes: Integers) -> pa.Array:
        return pieces(self.buffer, starts, sizes)

    def _check_ends(self, path: str) -> None:
        short = self.at > self.ends
        if short.any():
            self.fail(short, f"{path} is cut off")
