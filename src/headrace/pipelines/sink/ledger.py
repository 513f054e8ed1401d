"""What a sink has decided: one entry per sink, in the compacted topic `__pipeline_commits`, and nowhere else.

An entry says which batch of which query was last decided, with the transactions that hold its rows. Writing it is the
commit point of the batch: before it, everything the batch wrote is aborted in the end; from it on, everything is
committed in the end. Pure: nothing here talks to a broker; `two_phase.py` does, in the order that makes this true.

    key     the sink's id
    value   JSON: version, query, batch, transactions as [transactional id, producer id, epoch], settled, earlier

`settled` says that each of the transactions is known to be ended, so that their ids may be used again. `earlier` has
the last batches of queries that had the sink before this one, so that going back to an old checkpoint repeats nothing.
"""

import re
from collections.abc import Iterable

import msgspec

from headrace.model.errors import HeadraceError

LEDGER_TOPIC = "__pipeline_commits"
LEDGER_PARTITIONS = 8
"""When it is made. A sink's partition follows from its id and the number there is."""
LEDGER_SETTINGS = {
    "cleanup.policy": "compact",
    # Small segments are compacted soon, and an old entry is found fast.
    "segment.bytes": str(4 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.2",
}
_VERSION = 1
_EARLIER_KEPT = 16
_SINK_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")
_PREFIX = "pipeline"
_SLOTS = 8


class LedgerError(HeadraceError):
    """A sentence about an entry that cannot be read or may not be written."""


class OpenTransaction(msgspec.Struct, array_like=True, frozen=True):
    """An open transaction, and who can end it."""

    transactional_id: str
    producer_id: int
    epoch: int


class LedgerEntry(msgspec.Struct, frozen=True):
    query: str
    batch: int
    transactions: tuple[OpenTransaction, ...]
    settled: bool = False
    earlier: tuple[tuple[str, int], ...] = ()
    """Queries that had the sink before, with the last batch of each; the most recent first."""
    version: int = _VERSION


def is_sink_id(text: str) -> bool:
    return _SINK_ID.fullmatch(text) is not None


def ledger_transactional_id(sink_id: str) -> str:
    """Held by the driver of the sink's query: of two drivers only the newer can write an entry."""
    return f"{_PREFIX}/{sink_id}"


def task_transactional_id(sink_id: str, claim_epoch: int, partition: int, attempt: int) -> str:
    """No two attempts at the same rows share one, nor do tasks under one claim and under the next few.

    Used again after a while, so that their number is bounded by the number of tasks, however many batches there are.
    """
    return f"{task_prefix(sink_id)}{claim_epoch % _SLOTS}/{partition}/{attempt}"


def task_prefix(sink_id: str) -> str:
    """What the transactional ids of a sink's tasks begin with, and nobody else's."""
    return f"{ledger_transactional_id(sink_id)}/"


def has_decided(entry: LedgerEntry | None, query: str, batch: int) -> bool:
    """Whether the rows of a batch are committed or will be: they must not be written again."""
    if entry is None:
        return False
    known = dict(entry.earlier)
    known[entry.query] = entry.batch
    return batch <= known.get(query, -1)


def decide(entry: LedgerEntry | None, query: str, batch: int, transactions: Iterable[OpenTransaction]) -> LedgerEntry:
    """The entry that commits a batch."""
    if entry is None:
        return LedgerEntry(query, batch, tuple(transactions))
    if has_decided(entry, query, batch):
        raise LedgerError(f"batch {batch} of query {query} is decided already")
    if not entry.settled:
        raise LedgerError(f"batch {entry.batch} of query {entry.query} is not settled yet")
    earlier = tuple(each for each in entry.earlier if each[0] not in (query, entry.query))
    if entry.query != query:
        earlier = ((entry.query, entry.batch), *earlier)[:_EARLIER_KEPT]
    return LedgerEntry(query, batch, tuple(transactions), earlier=earlier)


def settle(entry: LedgerEntry) -> LedgerEntry:
    """The entry once each of its transactions is ended."""
    return msgspec.structs.replace(entry, settled=True, transactions=())


class _Version(msgspec.Struct, frozen=True):
    """What every entry has, of whichever version the rest is."""

    version: int = _VERSION


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LedgerEntry).decode
_decode_version = msgspec.json.Decoder(_Version).decode


def to_bytes(entry: LedgerEntry) -> bytes:
    return _encode(entry)


def from_bytes(data: bytes) -> LedgerEntry:
    try:
        if (version := _decode_version(data).version) != _VERSION:
            raise LedgerError(
                f"an entry of {LEDGER_TOPIC} was written by a newer Headrace (version {version}): use that one"
            )
        return _decode(data)
    except msgspec.MsgspecError as error:
        raise LedgerError(f"an entry of {LEDGER_TOPIC} cannot be read: {error}") from error
