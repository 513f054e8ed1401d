"""Markers: control batches of one record, which consumers skip.

A transaction marker ends a producer's transaction on a partition; a reset marker ends the history of all producers
there: those after it are other producers, though they may have the same ids.

key    version (int16, 0), type (int16): 0 abort, 1 commit, 18514 reset (Kafka has 0 to 6)
value  version (int16, 0), coordinator epoch (int32); of a reset marker the version only

A coordinator epoch is that of the shard of `__transaction_state`, followed by a count in the lowest twelve bits: how
often the coordinator got no answer for a marker of this producer. A marker that is sent again has a larger epoch, so
the first, should it arrive late, is refused where the second was written. It could otherwise end the next transaction.
"""

from struct import Struct
from typing import NamedTuple

from headrace.model.errors import InvalidRecord
from headrace.records.batch import BatchHeader, Buffer
from headrace.records.builder import build_batch
from headrace.records.reader import Record, iter_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_ABORT, _COMMIT, _RESET = 0, 1, 0x4852
_RESET_VALUE = Struct(">h")
_DOUBT_BITS = 12
_DOUBTS_MAX = (1 << _DOUBT_BITS) - 1
_SHARD_EPOCH_MAX = (1 << 31 - _DOUBT_BITS) - 1


class Marker(NamedTuple):
    committed: bool
    coordinator_epoch: int


class ResetMarker(NamedTuple):
    """Producers before it are unknown after it."""


RESET_MARKER = ResetMarker()


def coordinator_epoch(shard_epoch: int, doubts: int) -> int:
    """The epoch for markers of a coordinator that got no answer for `doubts` earlier markers of this producer."""
    return min(shard_epoch, _SHARD_EPOCH_MAX) << _DOUBT_BITS | min(doubts, _DOUBTS_MAX)


def build_marker(producer_id: int, producer_epoch: int, marker: Marker, now_ms: int) -> bytes:
    """Build the control batch that commits or aborts the transaction of this producer."""
    key = _KEY.pack(0, _COMMIT if marker.committed else _ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(0, now_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def build_reset_marker(now_ms: int) -> bytes:
    """Build the control batch after which all producers are unknown."""
    return build_batch([Record(0, now_ms, _KEY.pack(0, _RESET), _RESET_VALUE.pack(0))], control=True)


def read_marker(batch: Buffer, header: BatchHeader) -> Marker | None:
    """The marker in a control batch; None if it ends no transaction: another control record, or an empty batch."""
    found = read_control(batch, header)
    return found if isinstance(found, Marker) else None


def read_control(batch: Buffer, header: BatchHeader) -> Marker | ResetMarker | None:
    """The marker of either kind in a control batch; None for another control record, or an empty batch."""
    for record in iter_records(batch, header):
        if record.key is None or len(record.key) < _KEY.size:
            raise InvalidRecord("a control record has a key of less than four bytes")
        _, kind = _KEY.unpack_from(record.key)
        if kind == _RESET:
            return RESET_MARKER
        if kind not in (_ABORT, _COMMIT):
            return None
        epoch = _VALUE.unpack_from(record.value)[1] if record.value and len(record.value) >= _VALUE.size else -1
        return Marker(kind == _COMMIT, epoch)
    return None
