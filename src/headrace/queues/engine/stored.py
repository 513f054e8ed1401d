"""The layout of a queue's persisted state: its entries in `__queue_state`. Pure.

A key is one letter and a number of 8 bytes, a value a msgpack array. Offsets are counted in chunks of `CHUNK`.

    key          value          meaning
    h 0          ["head-1", …]  all messages below this offset are acked
    d <chunk>    ["done-1", …]  the acked messages of the chunk
    m <offset>   ["held-1", …]  a message that was received and is not acked
    l <offset>   ["lease-1", …] messages that were received together, each for the first time; m and d override it
    i <chunk>    ["index-1", …] the index of the chunk: its records need not be read again
    i <chunk>    ["index-2", …] the same in fewer bytes, from feature level 2 on
    u <chunk>    ["ids-1", …]   the de-duplication ids of the chunk
    p <stream>   ["pages-1", …] the last pages that came from another queue

The tag of a value ends in the version of its layout. A tombstone removes an entry. An unknown entry is refused: a newer
broker wrote it, and ignoring it would silently lose messages.

Live keys are bounded by the messages between head and end (two per chunk, one per message that was received), and by
those of the last five minutes (one per chunk), and by the queues that messages came from (two each).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from struct import Struct
from struct import error as StructError

import msgspec

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import CorruptBatch

CHUNK_BITS = 12
CHUNK = 1 << CHUNK_BITS
"""Offsets per key. The acked messages of a chunk take at most 512 bytes, and at most this many records of the log are
read again when a queue is loaded."""

WIDE_ITEM_BYTES = 4
ITEM_BYTES = (2, 3, WIDE_ITEM_BYTES)
"""The sizes of the items of times."""

HEAD = b"h"
ACKED = b"d"
HELD = b"m"
LEASE = b"l"
INDEX = b"i"
IDS = b"u"
PAGES = b"p"


class HeadValue(msgspec.Struct, array_like=True, frozen=True, tag="head-1"):
    head: int


class AckedValue(msgspec.Struct, array_like=True, frozen=True, tag="done-1"):
    bits: bytes
    """Bit n, counted from the lowest of the first byte, is the chunk's n-th offset."""


class LeaseRecord(msgspec.Struct, array_like=True, tag="held-1", gc=False):
    """A message that was received at least once and is not acked. Changed in place by its owner, `leases.Leases`."""

    attempt: int
    """How often it was received."""
    is_leased: bool
    until_ms: int
    """The end of its lease, or of its time hidden after a return. Past: it is available."""
    first_received_ms: int
    received_ms: int
    """The last time."""
    reason: str = ""
    """Why it failed the last time, as its receiver said."""
    receiver: str = ""
    excused: int = 0
    """How many of these attempts do not count towards the receive limit."""


class TimesValue(msgspec.Struct, array_like=True, frozen=True):
    """Due times of messages of a chunk, packed by `packed_times`. Read in place: a copy would cost as much again."""

    start: int = 0
    """The first, in steps."""
    times: memoryview = memoryview(b"")
    lengths: memoryview = memoryview(b"")
    item_bytes: int = WIDE_ITEM_BYTES
    """Other sizes only in `NarrowIndexValue`: 0.1 ignores this field."""


class LeaseValue(msgspec.Struct, array_like=True, frozen=True, tag="lease-1"):
    """The lease of many messages. It does not count for those that are acked, or have a `LeaseRecord`."""

    until_ms: int
    received_ms: int
    receiver: str
    steps: Sequence[int]
    """From the offset of the key to the next message, from there to the next, and so on."""

    def held(self, first: int) -> Iterator[tuple[int, LeaseRecord]]:
        """Each message with its offset; `first` is that of the key."""
        for offset in accumulate(self.steps, initial=first):
            yield offset, LeaseRecord(1, True, self.until_ms, self.received_ms, self.received_ms, "", self.receiver)


class IndexValue(msgspec.Struct, array_like=True, frozen=True, tag="index-1"):
    end: int
    """The first offset that is not indexed."""
    ages: Sequence[tuple[int, int]] = ()
    """Number in the chunk, and the time by which records up to it were sent; both rising."""
    levels: Sequence[tuple[int, bytes]] = ()
    """For each priority except the normal one, its messages as in `AckedValue.bits`."""
    delayed: TimesValue = TimesValue()
    expiring: TimesValue = TimesValue()
    groups: Sequence[bytes] = ()
    members: bytes = b""
    """Of a fifo queue: two bytes per offset of the chunk, little endian: which of `groups` the message is in."""


class NarrowIndexValue(IndexValue, array_like=True, frozen=True, tag="index-2"):
    """An index with times in items of less than four bytes, or levels in bit planes, which 0.1 cannot read."""

    level_planes: Sequence[bytes] = ()
    """For each bit of the messages' levels, exclusive or the normal one, those that have it set, as in
    `AckedValue.bits`. There are no `levels` then."""


class IdsValue(msgspec.Struct, array_like=True, frozen=True, tag="ids-1"):
    ids: Sequence[tuple[int, int, bytes, str]]
    """Number in the chunk, when it was sent, the digest of its id, and the message's id."""


class PagesValue(msgspec.Struct, array_like=True, frozen=True, tag="pages-1"):
    pages: Sequence[tuple[int, int]]
    """Number and first offset of each, both rising."""


Value = HeadValue | AckedValue | LeaseRecord | LeaseValue | IndexValue | NarrowIndexValue | IdsValue | PagesValue

_LARGE_BYTES = 512
_KEY = Struct(">cQ")
_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], Value] = msgspec.msgpack.Decoder(Value).decode
_KINDS: dict[bytes, type] = {
    HEAD: HeadValue, ACKED: AckedValue, HELD: LeaseRecord, LEASE: LeaseValue, INDEX: IndexValue, IDS: IdsValue,
    PAGES: PagesValue
}  # fmt: skip


def entry(kind: bytes, number: int, value: Value) -> InternalRecord:
    encoded = _encode(value)
    # The encoder leaves up to half as much again behind its bytes; a copy has none of it.
    return InternalRecord(
        _KEY.pack(kind, number), encoded if len(encoded) < _LARGE_BYTES else bytes(memoryview(encoded))
    )


def tombstone(kind: bytes, number: int) -> InternalRecord:
    return InternalRecord(_KEY.pack(kind, number), None)


def is_index(record: InternalRecord) -> bool:
    return record.key[:1] == INDEX and record.value is not None


def number_of(record: InternalRecord) -> int:
    """The number of an entry, without decoding its value."""
    return int.from_bytes(record.key[1:], "big")


def decode(record: InternalRecord) -> tuple[bytes, int, Value | None]:
    """Kind, number and value of an entry; `CorruptBatch` if it is damaged or of a newer version."""
    try:
        kind, number = _KEY.unpack(record.key)
        value: Value | None = None if record.value is None else _decode(record.value)
    except (StructError, msgspec.MsgspecError) as error:
        raise CorruptBatch(
            f"a record of a queue's state is damaged or of a newer version of Headrace: {error}"
        ) from error
    if kind not in _KINDS or (value is not None and not isinstance(value, _KINDS[kind])):
        raise CorruptBatch(f"a record of a queue's state has a key of a newer version of Headrace: {record.key!r}")
    return kind, number, value
