"""Read positions in many values at once, advanced field by field with numpy.

A value that cannot be decoded gets a fault, and its position moves to its end; decoding continues for the others, and
what is read for this value is discarded. Nothing is read outside the buffer: every length is checked against the
remaining bytes of the value before it is used.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.records.columns import pieces
from headrace.records.varints import INT32_BYTES, INT64_BYTES, Bytes, Integers, try_uvarints, try_varints, words_at

Mask = npt.NDArray[np.bool_]

TOO_DEEP_FOR_COLUMNS = 1
"""The fault of a valid value that has so many items that it is read on its own."""


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
    """Positions in values: `at` and `ends` are indexes into `data`, `faults` into `reasons`, 0 for no fault."""

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
        """A part of the rows; `put_back` stores their new positions and faults."""
        return RowCursors(self.buffer, self.data, self.at[which], self.ends[which], self.faults[which], self.reasons)

    def put_back(self, which: Integers, part: "RowCursors") -> None:
        self.at[which] = part.at
        self.faults[which] = part.faults

    def fail(self, wrong: Mask, reason: str | int) -> None:
        """Set the fault of some rows; a value keeps its first fault."""
        number = reason if isinstance(reason, int) else self.reasons.number(reason)
        self.faults[wrong & (self.faults == 0)] = number
        self.at[wrong] = self.ends[wrong]

    def numbers(self, path: str, max_bytes: int = INT64_BYTES) -> Integers:
        """Read a number from each row."""
        return self._passed(path, max_bytes, *try_varints(self.data, self.at, max_bytes))

    def unsigned(self, path: str) -> Integers:
        """Read an unsigned number of 64 bits from each row; those with the highest bit are negative here."""
        return self._passed(path, INT64_BYTES, *try_uvarints(self.data, self.at, INT64_BYTES))

    def chunks(self, sizes: Integers, path: str) -> tuple[Integers, Integers]:
        """Skip so many bytes of each row; returns their starts and sizes, size 0 for a row with a fault."""
        wrong = (sizes < 0) | (sizes > self.ends - self.at)
        if wrong.any():
            self.fail(wrong, f"{path} is cut off")
            sizes = np.where(wrong, 0, sizes)
        starts = self.at
        self.at = starts + sizes
        return starts, sizes

    def fixed(self, kind: str, path: str) -> npt.NDArray[Any]:
        """Read a number of a fixed size from each row, such as `<f8`."""
        starts, _ = self.chunks(np.full(len(self), np.dtype(kind).itemsize, np.int64), path)
        return words_at(self.data, starts, kind)

    def binary(self, starts: Integers, sizes: Integers) -> pa.Array:
        return pieces(self.buffer, starts, sizes)

    def _passed(self, path: str, max_bytes: int, found: Integers, after: Integers, wrong: Integers) -> Integers:
        self.at = after
        if len(wrong):
            mask = np.zeros(len(self), np.bool_)
            mask[wrong] = True
            bits = 32 if max_bytes == INT32_BYTES else 64
            self.fail(mask, f"{path} has a number of more than {bits} bits")
        short = self.at > self.ends
        if short.any():
            self.fail(short, f"{path} is cut off")
        return found
