"""Transaction markers: control batches of one record that end a producer's transaction on a partition.

key    version (int16, 0), type (int16): 0 abort, 1 commit
value  version (int16, 0), coordinator epoch (int32)

A coordinator epoch is that of the shard of `__transaction_state`, followed by a number in the lowest twelve bits: how
often the coordinator has not heard what became of a marker of this producer. One that it sends again has a larger
epoch, and so the one before, should it arrive late, is refused where the second was written. It could otherwise end the
next transaction.
"""

from struct import Struct
from typing import NamedTuple

from headrace.model.errors import InvalidRecord
from headrace.records.batch import BatchHeader, Buffer
from headrace.records.builder import build_batch
from headrace.records.reader import Record, iter_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1
_DOUBT_BITS = 12
_DOUBTS_MAX = (1 << _DOUBT_BITS) - 1
_SHARD_EPOCH_MAX = (1 << 31 - _DOUBT_BITS) - 1


class Marker(NamedTuple):
    committed: bool
    coordinator_epoch: int


def coordinator_epoch(shard_epoch: int, doubts: int) -> int:
    """The epoch for markers of a coordinator that has not heard of so many earlier ones of the same producer."""
    return min(shard_epoch, _SHARD_EPOCH_MAX) << _DOUBT_BITS | min(doubts, _DOUBTS_MAX)


def build_marker(producer_id: int, producer_epoch: int, marker: Marker, now_ms: int) -> bytes:
    """The batch that commits or aborts what this producer wrote."""
    key = _KEY.pack(0, _COMMIT if marker.committed else _ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(0, now_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: Buffer, header: BatchHeader) -> Marker | None:
    """What a control batch says; None if it ends no transaction: another kind of control record, or an emptied one."""
    for record in iter_records(batch, header):
        if record.key is None or len(record.key) < _KEY.size:
            raise InvalidRecord("a control record has a key of less than four bytes")
        _, kind = _KEY.unpack_from(record.key)
        if kind not in (_ABORT, _COMMIT):
            return None
        epoch = _VALUE.unpack_from(record.value)[1] if record.value and len(record.value) >= _VALUE.size else -1
        return Marker(kind == _COMMIT, epoch)
    return None
