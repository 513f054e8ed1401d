"""Scalars of Protobuf in bulk: from their bytes or numbers to Arrow."""

from struct import Struct
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.pipelines.protobuf.schema import MessageField
from headrace.records.varints import Integers

FIXED: Final = {
    "double": "<f8", "float": "<f4", "fixed32": "<u4", "sfixed32": "<i4", "fixed64": "<u8", "sfixed64": "<i8",
}  # fmt: skip
"""Scalars of a fixed size, by their names in numpy."""
_WIRE: Final = {"string": 2, "bytes": 2, "message": 2} | {kind: 1 if "8" in of else 5 for kind, of in FIXED.items()}
PLAIN_NUMBERS: Final = frozenset(
    {"double", "float", "int32", "int64", "uint32", "sint32", "sint64", "fixed32", "sfixed32", "sfixed64", "bool"}
)
"""Scalars that numpy and Arrow have alike, with the default zero."""
STRUCTS: Final = {
    kind: Struct("<" + code)
    for kind, code in zip(("double", "float", "fixed32", "sfixed32", "fixed64", "sfixed64"), "dfIiQq", strict=True)
}
MAX_S: Final = (2**63 - 1) // 1_000_000 - 3
"""Seconds of a time, such that the nanoseconds beside them, any number of 32 bits, do not overflow."""
_DEFAULTS: Final[dict[str, Any]] = {"string": "", "bytes": b"", "bool": False}


def wire_type(kind: str) -> int:
    """How a scalar, an enum or a message is written: 0 varint, 1 eight bytes, 2 with its length, 5 four bytes."""
    return _WIRE.get(kind, 0)


def default_of(field: MessageField) -> Any:
    """The value of a field that is not written."""
    return field.symbols[0][1] if field.kind == "enum" else _DEFAULTS.get(field.kind, 0)


def enum_name(field: MessageField, number: int) -> str:
    """The name of an enum's value; the number itself, if the schema does not have it."""
    return dict(field.symbols).get(number, str(number))


class ScalarColumn:
    """Makes Arrow columns of a field's values."""

    def __init__(self, field: MessageField) -> None:
        self._field = field

    def of_fixed(self, found: Any) -> pa.Array:
        """From numbers of a fixed size."""
        if self._field.kind == "fixed64":
            return _decimals(found)
        return pa.array(found.astype(np.int64) if self._field.kind == "fixed32" else found)

    def of_numbers(self, numbers: Integers) -> pa.Array:
        """From varints, as they are written."""
        match self._field.kind:
            case "int64":
                return pa.array(numbers)
            case "int32":
                return pa.array(numbers.astype(np.int32))
            case "uint32":
                return pa.array(numbers & 0xFFFF_FFFF)
            case "uint64":
                return _decimals(numbers.view(np.uint64))
            case "bool":
                return pa.array(numbers != 0)
            case "enum":
                return self._names(numbers.astype(np.int32))
            case "sint32":
                return pa.array(_unzigzagged(numbers & 0xFFFF_FFFF).astype(np.int32))
        return pa.array(_unzigzagged(numbers))

    def _names(self, numbers: Any) -> pa.Array:
        different, index = np.unique(numbers, return_inverse=True)
        names = pa.array([enum_name(self._field, each) for each in different.tolist()], pa.string())
        return names.take(pa.array(index))


def _unzigzagged(numbers: Integers) -> Integers:
    return (numbers.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(numbers & 1)


def _decimals(numbers: Any) -> pa.Array:
    """Unsigned numbers of 64 bits as decimals, which have 16 bytes, the least significant first."""
    data = np.zeros((len(numbers), 2), np.uint64)
    data[:, 0] = numbers
    return pa.Array.from_buffers(pa.decimal128(20, 0), len(numbers), [None, pa.py_buffer(data)])
