"""A decoder of DescribeTransactions v0 responses for one id: kio refuses the start time -1, which means "not open".

throttle time int32, count uvarint + 1, then per transaction:
error int16, id and state (compact strings), timeout int32, start time int64, producer id int64, epoch int16,
topics and their partitions, tags
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from headrace.model.errors import ProtocolError
from headrace.runtime.varint import VarintTooLong, read_uvarint

_I32 = Struct(">i")
_ERROR = Struct(">h")
_FACTS = Struct(">iqqh")


class DescribedTransaction(NamedTuple):
    error_code: int
    state: str
    timeout_ms: int
    started_ms: int
    producer_id: int
    producer_epoch: int


def read_transaction_state(frame: bytes | memoryview, at: int) -> DescribedTransaction:
    """The first transaction of the response; `ProtocolError` if there is none or the response is malformed."""
    view = memoryview(frame)
    try:
        count, at = read_uvarint(view, at + _I32.size)
        if count < 2:
            raise ProtocolError("the answer to DescribeTransactions v0 tells of no transaction")
        (error_code,) = _ERROR.unpack_from(view, at)
        _, at = _text(view, at + _ERROR.size)
        state, at = _text(view, at)
        return DescribedTransaction(error_code, state, *_FACTS.unpack_from(view, at))
    except (StructError, IndexError, UnicodeDecodeError, VarintTooLong) as error:
        raise ProtocolError(f"the answer to DescribeTransactions v0: {error}") from error


def _text(view: memoryview, at: int) -> tuple[str, int]:
    length, at = read_uvarint(view, at)
    end = at + max(0, length - 1)
    if end > len(view):
        raise IndexError(f"a text of {length - 1} bytes where {len(view) - at} are left")
    return bytes(view[at:end]).decode(), end
