"""The state of a queue of another cluster, as entries for the mirror of the queue here. Pure.

The mirror's log is the source's below an offset, its end: of the source's state that part is true here, and no other.
What is acked at or past the end would be the loss of messages that are sent here after a takeover (invariant 96).
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import CorruptBatch
from headrace.model.queue_state import OWN_KEYS
from headrace.queues.engine.chunk_index import NO_GROUP, members_of
from headrace.queues.engine.stored import (
    ACKED,
    CHUNK,
    CHUNK_BITS,
    HEAD,
    HELD,
    IDS,
    INDEX,
    ITEM_BYTES,
    LEASE,
    PAGES,
    AckedValue,
    HeadValue,
    IdsValue,
    IndexValue,
    LeaseValue,
    NarrowIndexValue,
    PagesValue,
    TimesValue,
    Value,
    decode,
    entry,
)

_SET_ORDER = (IDS, PAGES, HEAD, ACKED, HELD, LEASE, INDEX)
_REMOVAL_ORDER = (ACKED, HELD, LEASE, INDEX, IDS, PAGES, HEAD)
_CHUNKED = (ACKED, INDEX, IDS)
_CHUNK_BYTES = CHUNK // 8
_MEMBERS_BYTES = CHUNK * 2


def check(key: bytes, value: bytes) -> None:
    """Raise `CorruptBatch` if an entry of another cluster could not be loaded here."""
    kind, number, decoded = decode(InternalRecord(key, value))
    base = number << CHUNK_BITS
    match decoded:
        case IndexValue():
            is_whole = base <= decoded.end <= base + CHUNK and _has_groups(decoded)
            is_whole = is_whole and all(len(bits) <= _CHUNK_BYTES for _, bits in decoded.levels)
            if isinstance(decoded, NarrowIndexValue):
                is_whole = is_whole and all(len(bits) <= _CHUNK_BYTES for bits in decoded.level_planes)
            is_whole = is_whole and _has_items(decoded.delayed) and _has_items(decoded.expiring)
        case AckedValue():
            is_whole = len(decoded.bits) <= _CHUNK_BYTES
        case LeaseValue():
            is_whole = all(offset >= 0 for offset in accumulate(decoded.steps, initial=number))
        case HeadValue():
            is_whole = number == 0 and decoded.head >= 0
        case IdsValue():
            is_whole = all(0 <= each[0] < CHUNK for each in decoded.ids)
        case _:
            is_whole = True
    if not is_whole:
        raise CorruptBatch(f"an entry {kind.decode()} {number} of a queue's state makes no sense")


def _has_items(times: TimesValue) -> bool:
    """Whether its bytes are whole items."""
    return times.item_bytes in ITEM_BYTES and len(times.times) % times.item_bytes == 0 and len(times.lengths) % 2 == 0


def _has_groups(value: IndexValue) -> bool:
    """Whether each message is in a group that is named."""
    if len(value.members) not in (0, _MEMBERS_BYTES):
        return False
    return all(each < len(value.groups) or each == NO_GROUP for each in members_of(value))


def below(entries: Mapping[bytes, bytes], end: int) -> dict[bytes, bytes]:
    """The part of an engine's live entries that is about messages below an offset. Those of a host are left out."""
    found: dict[bytes, bytes] = {}
    for key, value in entries.items():
        if key.startswith(OWN_KEYS):
            continue
        kind, number = key[:1], int.from_bytes(key[1:], "big")
        first = number << CHUNK_BITS if kind in _CHUNKED else number
        if (kind in _CHUNKED and first + CHUNK <= end) or (kind == HELD and number < end):
            found[key] = value
        elif kind not in (*_CHUNKED, HELD) or (kind in _CHUNKED and first < end):
            cut = _cut(key, value, end)
            if cut is not None and cut.value is not None:
                found[cut.key] = cut.value
    return found


def _cut(key: bytes, value: bytes, end: int) -> InternalRecord | None:
    kind, number, decoded = decode(InternalRecord(key, value))
    if isinstance(decoded, LeaseValue):
        return _cut_lease(key, value, decoded, end)
    cut = None if decoded is None else _cut_value(number, decoded, end)
    if cut is None or cut is decoded:
        return None if cut is None else InternalRecord(key, value)
    return entry(kind, number, cut)


def _cut_lease(key: bytes, value: bytes, lease: LeaseValue, end: int) -> InternalRecord | None:
    """The messages of a lease are in the order in which they were received; the key is the first."""
    offsets = list(accumulate(lease.steps, initial=int.from_bytes(key[1:], "big")))
    inside = [offset for offset in offsets if offset < end]
    if len(inside) == len(offsets):
        return InternalRecord(key, value)
    steps = [after - before for before, after in pairwise(inside)]
    cut = LeaseValue(lease.until_ms, lease.received_ms, lease.receiver, steps)
    return entry(LEASE, inside[0], cut) if inside else None


def _cut_value(number: int, value: Value, end: int) -> Value | None:
    """The value of an entry that reaches `end`, or may; None if nothing of it is below."""
    room = end - (number << CHUNK_BITS)
    match value:
        case HeadValue():
            return value if value.head <= end else HeadValue(end)
        case AckedValue():
            bits = int.from_bytes(value.bits, "little") & ((1 << room) - 1)
            return AckedValue(bits.to_bytes((bits.bit_length() + 7) // 8, "little")) if bits else None
        case IndexValue():
            # Without it the records of the chunk are read again.
            return value if value.end <= end else None
        case IdsValue():
            ids = [each for each in value.ids if each[0] < room]
            return IdsValue(ids) if ids else None
        case PagesValue():
            pages = [page for page in value.pages if page[1] < end]
            return PagesValue(pages) if pages else None
        case _:
            return value


def changes_between(stored: Mapping[bytes, bytes], wanted: Mapping[bytes, bytes]) -> list[InternalRecord]:
    """The entries that make one state of a queue a later one. Any prefix of them is a state in which no message is
    acked that is not acked in either: the order is that of `persistence.take_changes`."""
    changed = (key for key, value in wanted.items() if stored.get(key) != value)
    gone = (key for key in stored if key not in wanted)
    return [
        *(InternalRecord(key, wanted[key]) for key in _ordered(changed, _SET_ORDER)),
        *(InternalRecord(key, None) for key in _ordered(gone, _REMOVAL_ORDER)),
    ]


def _ordered(keys: Iterable[bytes], kinds: tuple[bytes, ...]) -> Iterator[bytes]:
    by_kind: dict[bytes, list[bytes]] = {kind: [] for kind in kinds}
    for key in keys:
        by_kind[key[:1]].append(key)
    for found in by_kind.values():
        yield from sorted(found)
